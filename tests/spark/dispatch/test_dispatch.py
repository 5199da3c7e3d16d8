"""Runs of positions joined with their messages, in the stated order, numbered."""

from __future__ import annotations

from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta.reading.messages import Bounds
from pipeline.delta.writing.numbering import NUMBER, columns_of, in_order
from pipeline.dispatch import release_spark
from pipeline.dispatch.release import ORDER, Stamp, Window
from pipeline.dispatch.release_spark import delivery_rows, join, listening, look, missing, positions
from schemas import DELIVERIES, REJECTED_DISPATCH
from state.units import Ms
from tests.support.rows import T0, messages, runs

Found = list[tuple[str, str, int, int]]


def window_of(redelivery: DataFrame) -> Window:
    """The window of a batch that is not empty."""
    window = look(redelivery)
    assert window is not None
    return window


def joined(redelivery: DataFrame, log: DataFrame) -> DataFrame:
    """The join as dispatch does it."""
    return join(redelivery, log, window_of(redelivery))


def found(rows: DataFrame) -> Found:
    """(topic, subscription, ledger, entry), sorted."""
    return sorted(map(tuple, rows.select("topic", "subscription", "ledger_id", "entry_id").collect()))


def log_of(spark: SparkSession, count: int, **fields: Any) -> DataFrame:  # noqa: ANN401 - values of any column
    """A ledger with so many messages."""
    return messages(spark, *({"entry_id": entry, **fields} for entry in range(count)))


def test_an_empty_batch_has_no_window(spark: SparkSession) -> None:
    """So nothing is read and nothing is written."""
    assert look(runs(spark)) is None


def test_a_window_spans_all_runs(spark: SparkSession) -> None:
    """It is what files and row groups are skipped by: too narrow would lose messages."""
    batch = runs(
        spark,
        {"ledger_id": 3, "first_entry": 2, "last_entry": 5, "due_time": T0 + 9, "message_due": T0 + 4, "tick_ms": 8},
        {"ledger_id": 7, "first_entry": 0, "due_time": T0 + 1, "released_at": T0 + 6},
    )
    bounds = Bounds(3, 7, T0 + 1 - 7, T0 + 4)
    assert look(batch) == Window(2, 5, 2, T0 + 9, Ms(T0 + 6), (bounds,))
    late = {"redelivery_count": 2, "due_time": T0 + 90, "first_entry": 4, "tick_ms": 4_000}
    again = runs(spark, *({**late, "ledger_id": ledger} for ledger in (1, 2, 9)))
    assert look(again) == Window(3, 3, 3, T0 + 90, Ms(T0), (), (Bounds(1, 2), Bounds(9, 9)))
    both = look(batch.unionByName(again))
    assert both == Window(5, 8, 5, T0 + 90, Ms(T0 + 6), (bounds,), (Bounds(1, 2), Bounds(9, 9)))


def test_a_run_takes_the_messages_between_its_ends(spark: SparkSession) -> None:
    """Both ends are in it; another topic or ledger with the same entries is not."""
    log = log_of(spark, 6).unionByName(log_of(spark, 6, topic="u")).unionByName(log_of(spark, 6, ledger_id=1))
    batch = runs(spark, {"first_entry": 1, "last_entry": 3}, {"first_entry": 3, "subscription": "z"})
    assert found(joined(batch, log)) == [("t", "s", 0, 1), ("t", "s", 0, 2), ("t", "s", 0, 3), ("t", "z", 0, 3)]


def test_a_bucket_takes_messages_due_up_to_its_width_before_it(spark: SparkSession) -> None:
    """A bucket is rounded up: with a tick of 1000 ms its messages were due in the 512 ms before, and at its time."""
    due = [T0 - 512, T0 - 511, T0, T0 + 1]
    log = messages(spark, *({"entry_id": entry, "due_time": ms} for entry, ms in enumerate(due)))
    batch = runs(spark, {"first_entry": 0, "last_entry": 3, "tick_ms": 1_000})
    assert found(joined(batch, log)) == [("t", "s", 0, 1), ("t", "s", 0, 2)]


def test_many_runs_in_a_ledger_give_what_few_give(spark: SparkSession) -> None:
    """Beyond a number of runs they are taken apart to positions, which must not change the result."""
    spread = [{"first_entry": entry, "last_entry": entry + entry % 2} for entry in range(0, 120, 3)]
    batch, log = runs(spark, *spread), log_of(spark, 200)
    window = window_of(batch)
    assert window.runs > release_spark._RUNS_PER_LEDGER * window.ledgers
    few = Window(**{**vars(window), "runs": 1})
    apart, between = (join(batch, log, each).drop("properties") for each in (window, few))
    assert_df_equality(apart, between, ignore_row_order=True)
    expected = [e for run in spread for e in range(run["first_entry"], run["last_entry"] + 1)]
    assert [entry for *_, entry in found(join(batch, log, window))] == expected


@pytest.mark.parametrize(("rows", "way"), [(90, "SortMergeJoin"), (161, "BroadcastHashJoin")])
def test_many_positions_are_sorted_where_most_messages_are_wanted(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, rows: int, way: str
) -> None:
    """A large release would not fit into every task, and a log of which little is wanted is not sorted for it."""
    batch, log = runs(spark, *({"first_entry": entry} for entry in range(0, 80, 2))), log_of(spark, 90)
    wanted = found(joined(batch, log))
    monkeypatch.setattr(release_spark, "_BROADCAST", 1)
    many = join(batch, log, window_of(batch), rows=rows)
    assert way in str(many._jdf.queryExecution().executedPlan())
    assert found(many) == wanted
    assert len(wanted) == 40


def test_runs_are_taken_apart_into_positions(spark: SparkSession) -> None:
    """A run of one stays, a run of three becomes three."""
    batch = runs(spark, {"first_entry": 4}, {"first_entry": 7, "last_entry": 9})
    wanted = runs(spark, *({"first_entry": entry} for entry in (4, 7, 8, 9)))
    assert_df_equality(positions(batch), wanted, ignore_nullable=True, ignore_row_order=True)


ORDERED: list[dict[str, Any]] = [
    {"due_time": T0, "rank": -1, "exact": T0 - 1, "ledger_id": 11},
    {"due_time": T0, "exact": T0 - 5, "ledger_id": 9},
    {"due_time": T0, "exact": T0 - 1, "ledger_id": 3, "entry_id": 7},
    {"due_time": T0, "exact": T0 - 1, "ledger_id": 4, "entry_id": 2},
    {"due_time": T0, "exact": T0 - 1, "ledger_id": 4, "entry_id": 6},
    {"due_time": T0 + 1, "exact": T0 - 9, "ledger_id": 0},
    {"due_time": T0 + 2, "exact": T0 + 2, "ledger_id": 1, "topic": "a"},
    {"due_time": T0 + 2, "exact": T0 + 2, "ledger_id": 1, "topic": "b", "subscription": "a"},
    {"due_time": T0 + 2, "exact": T0 + 2, "ledger_id": 1, "topic": "b", "subscription": "b"},
]
"""Due bucket, then rank, exact time, ledger, entry, topic, subscription: each differs from the last in the next one."""


def ordered_batch(spark: SparkSession) -> DataFrame:
    """The rows of `ORDERED` as the join gives them, many times over, backwards and spread."""
    schema = (
        "due_time bigint, exact_due bigint, ledger_id bigint, entry_id bigint, topic string, subscription string, "
        "redelivery_count bigint, place bigint, rank bigint"
    )
    rows = [
        (
            row["due_time"], row["exact"], row["ledger_id"], row.get("entry_id", 0), row.get("topic", "t"),
            row.get("subscription", "s"), repeat, place * 10 + repeat, row.get("rank", 0),
        )
        for place, row in enumerate(ORDERED)
        for repeat in range(10)
    ]  # fmt: skip
    times = {name: F.timestamp_millis(name) for name in ("due_time", "exact_due")}
    return spark.createDataFrame(rows[::-1], schema).withColumns(times).repartition(4)


@pytest.mark.parametrize("tasks", [1, 2, 3, 100])
def test_rows_are_numbered_without_a_gap_and_in_order_whatever_the_tasks(spark: SparkSession, tasks: int) -> None:
    """One task or several, or more than there are rows, give every row the same number."""
    rows = (
        in_order(ordered_batch(spark), columns_of(ORDER), 90, tasks)
        .select(NUMBER, "place", F.spark_partition_id())
        .collect()
    )
    assert sorted((number, place) for number, place, _ in rows) == [(place, place) for place in range(90)]
    assert len({task for _, _, task in rows}) >= min(tasks, 60), "the work was not shared"


def test_a_delivery_carries_the_message_and_the_time_it_asked_for(spark: SparkSession) -> None:
    """`deliver_at` is exact, also where the bucket was rounded up, and NULL where none was asked for."""
    log = messages(
        spark,
        {"entry_id": 0, "due_time": T0 - 3, "deliver_at": T0 - 3, "message_key": "k", "payload": bytearray(b"p")},
        {"entry_id": 1, "due_time": T0 - 2, "batch_id": 99},
    )
    batch = runs(spark, {"first_entry": 0, "last_entry": 1, "tick_ms": 8, "released_at": T0 + 4})
    rows = delivery_rows(joined(batch, log), 2, 1, Stamp(6, Ms(T0 + 9)))
    assert rows.columns == DELIVERIES.schema.names
    said = rows.selectExpr(
        "entry_id", "unix_millis(due_time)", "unix_millis(deliver_at)", "unix_millis(released_at)", "batch_id",
        "sequence", "message_key", "CAST(payload AS string)",
    )  # fmt: skip
    wanted = [(0, T0, T0 - 3, T0 + 9, 6, 1, "k", "p"), (1, T0, None, T0 + 9, 6, 2, None, None)]
    assert sorted(map(tuple, said.collect())) == wanted


def test_a_position_without_a_message_is_rejected_with_the_reason(spark: SparkSession) -> None:
    """Nothing vanishes: what became due and is not in the log is named, and only that."""
    batch, log = runs(spark, {"first_entry": 0, "last_entry": 4}), messages(spark, {"entry_id": 1}, {"entry_id": 3})
    rows = missing(batch, joined(batch, log), T0, 5)
    assert rows.columns == REJECTED_DISPATCH.schema.names
    said = rows.select("reason", "batch_id", "subscription", "entry_id").orderBy("entry_id")
    wanted = [("message_missing", 5, "s", entry) for entry in (0, 2, 4)]
    assert_df_equality(
        said,
        spark.createDataFrame(wanted, "reason string, batch_id int, subscription string, entry_id bigint"),
        ignore_nullable=True,
    )


def test_runs_of_a_removed_subscription_and_of_an_earlier_life_are_dropped(spark: SparkSession) -> None:
    """Their state drains, and what it let go is handed to nobody."""
    batch = runs(
        spark,
        {"first_entry": 0, "life": 2},
        {"first_entry": 1, "life": 2, "subscription": "gone"},
        {"first_entry": 2, "life": 2, "topic": "u"},
        {"first_entry": 3, "life": 1},
    )
    kept = listening(batch, {("t", "s"): 2})
    wanted = runs(spark, {"first_entry": 0, "life": 2})
    assert_df_equality(kept.select(*wanted.columns), wanted, ignore_nullable=True)
    assert listening(batch, {}).isEmpty()
