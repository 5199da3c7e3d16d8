"""Which inbox rows are accepted, when they are due, and which positions they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.accept import Limits, classify, ledgers, local_message_rows, message_rows, number, rejected_rows
from pipeline.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from schemas import REJECTED_INGEST
from tests.support.rows import T0, arrived, messages

US = 1_000
LIMITS = Limits(now=T0, max_delay_ms=10_000, max_payload_bytes=4)
YEAR_1900 = -2_208_988_800_000


def classified(spark: SparkSession, rows: list[dict[str, Any]], limits: Limits = LIMITS) -> DataFrame:
    """What acceptance says about rows, in a small frame."""
    said = classify(arrived(spark, *rows), limits)
    return said.select("arrival_row", "published_ms", "deliver_ms", "due_ms", "reason")


def expected(spark: SparkSession, rows: Sequence[tuple[int, int | None, int, str | None]]) -> DataFrame:
    """The same frame, written by hand."""
    schema = "arrival_row bigint, published_ms bigint, deliver_ms bigint, due_ms bigint, reason string"
    return spark.createDataFrame([(i, *row) for i, row in enumerate(rows)], schema)


def test_a_message_is_due_at_the_later_of_delivery_and_publication(spark: SparkSession) -> None:
    """Without a time it is due now; a duration counts from the later of batch and publication; 1900 is simply due."""
    said = classified(
        spark,
        [
            {},
            {"deliver_at": (T0 + 5) * US},
            {"deliver_after_ms": 7},
            {"deliver_after_ms": 0, "publish_time": (T0 + 3) * US},
            {"deliver_at": (T0 - 9) * US, "publish_time": (T0 - 2) * US},
            {"deliver_at": YEAR_1900 * US},
            {"deliver_at": YEAR_1900 * US, "publish_time": YEAR_1900 * US},
        ],
    )
    wanted = [
        (T0, None, T0, None),
        (T0, T0 + 5, T0 + 5, None),
        (T0, T0 + 7, T0 + 7, None),
        (T0 + 3, T0 + 3, T0 + 3, None),
        (T0 - 2, T0 - 9, T0 - 2, None),
        (T0, YEAR_1900, T0, None),
        (YEAR_1900, YEAR_1900, 0, None),
    ]
    assert_df_equality(said, expected(spark, wanted), ignore_nullable=True)


def test_microseconds_are_rounded_up(spark: SparkSession) -> None:
    """A microsecond after a millisecond is the next millisecond: rounding down would deliver early, before 1970 too."""
    said = classified(
        spark,
        [
            {"deliver_at": T0 * US + 1},
            {"deliver_at": T0 * US + 999},
            {"deliver_at": T0 * US + 1_000},
            {"publish_time": T0 * US + 1},
            {"publish_time": -1_999, "deliver_at": -1_001},
        ],
    )
    wanted = [
        (T0, T0 + 1, T0 + 1, None),
        (T0, T0 + 1, T0 + 1, None),
        (T0, T0 + 1, T0 + 1, None),
        (T0 + 1, None, T0 + 1, None),
        (-1, -1, 0, None),
    ]
    assert_df_equality(said, expected(spark, wanted), ignore_nullable=True)


@pytest.mark.parametrize(
    ("reason", "good", "bad"),
    [
        ("missing_topic", [{"topic": "t"}], [{"topic": None}, {"topic": ""}, {"topic": "  "}]),
        (
            "deliver_at_and_deliver_after",
            [{"deliver_at": T0 * US}, {"deliver_after_ms": 1}],
            [{"deliver_at": T0 * US, "deliver_after_ms": 1}],
        ),
        ("negative_delay", [{"deliver_after_ms": 0}], [{"deliver_after_ms": -1}, {"deliver_after_ms": -(2**63)}]),
        (
            "time_out_of_range",
            [{"publish_time": FIRST_INSTANT_MS * US}, {"deliver_at": FIRST_INSTANT_MS * US}],
            [
                {"deliver_at": (FIRST_INSTANT_MS - 1) * US},
                {"publish_time": (FIRST_INSTANT_MS - 1) * US},
                {"deliver_at": LAST_INSTANT_MS * US + 1},
                {"publish_time": -(2**63) + 1, "deliver_at": 2**63 - 1},
            ],
        ),
        (
            "max_delay_exceeded",
            [{"deliver_at": (T0 + 10_000) * US}, {"deliver_after_ms": 10_000}],
            [
                {"deliver_at": (T0 + 10_000) * US + 1},
                {"deliver_after_ms": 10_001},
                {"deliver_after_ms": 2**63 - 1},
                {"deliver_at": (T0 + 1) * US, "publish_time": (T0 - 10_000) * US},
            ],
        ),
        (
            "published_in_future",
            [{"publish_time": (T0 + 10_000) * US}],
            [{"publish_time": (T0 + 10_001) * US}, {"publish_time": LAST_INSTANT_MS * US}],
        ),
        ("payload_too_large", [{"payload": b"1234"}, {"payload": None}], [{"payload": b"12345"}]),
    ],
)
def test_each_rule_of_acceptance_has_its_limit(
    spark: SparkSession, reason: str, good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    """What stands at the limit is accepted, what is one past it is refused with the reason."""
    said = classify(arrived(spark, *good, *bad), LIMITS).orderBy("arrival_row").select("reason")
    wanted = spark.createDataFrame([*[(None,)] * len(good), *[(reason,)] * len(bad)], "reason string")
    assert_df_equality(said, wanted, ignore_nullable=True)


def test_a_topic_that_is_no_text_is_refused(spark: SparkSession) -> None:
    """Spark lets bytes pass for a text; nobody could subscribe to it, and Python cannot read it."""
    rows = arrived(spark, {}).withColumn("topic", F.expr("CAST(X'FF41' AS string)"))
    assert [row["reason"] for row in classify(rows, LIMITS).select("reason").collect()] == ["topic_not_utf8"]


def test_a_rejected_row_keeps_what_was_sent(spark: SparkSession) -> None:
    """The row can be corrected and sent again: nothing of it is lost."""
    rejected = rejected_rows(classify(arrived(spark, {"deliver_after_ms": -5, "payload": b"p"}), LIMITS), T0, 3)
    row = rejected.select(*REJECTED_INGEST.schema.names).collect()[0]
    assert (row["reason"], row["batch_id"], row["deliver_after_ms"]) == ("negative_delay", 3, -5)
    assert (row["topic"], bytes(row["payload"]), row["deliver_at"]) == ("t", b"p", None)


def test_rows_of_the_log_say_when_they_are_due_and_what_is_parked(spark: SparkSession) -> None:
    """What is due at the end of what is loaded is parked, what is due a millisecond before is near."""
    limits = replace(LIMITS, now=T0)
    rows: list[dict[str, Any]] = [{"payload": b"a"}, {"deliver_after_ms": 99}, {"deliver_at": (T0 + 100) * US}]
    numbered = number(classify(arrived(spark, *rows), limits), 3, 5, 50_000, 2)
    wanted = messages(
        spark,
        {"ledger_id": 5, "entry_id": 0, "payload": bytearray(b"a"), "batch_id": 8},
        {"ledger_id": 5, "entry_id": 1, "deliver_at": T0 + 99, "due_time": T0 + 99, "batch_id": 8},
        {"ledger_id": 5, "entry_id": 2, "deliver_at": T0 + 100, "due_time": T0 + 100, "parked": True, "batch_id": 8},
    )
    rows_written = message_rows(numbered, T0, T0 + 100, 8)
    cast = rows_written.select(*(rows_written[f.name].cast(f.dataType) for f in wanted.schema.fields))
    assert_df_equality(cast, wanted, ignore_nullable=True)


@pytest.mark.parametrize("entries", [3, 50_000])
def test_the_driver_makes_the_rows_that_spark_makes(spark: SparkSession, entries: int) -> None:
    """Order and numbers, times that are given, reckoned or missing, and everything else that a message may have."""
    given: list[dict[str, Any]] = [
        {"topic": topic, "arrival_file": file, "message_key": key, "properties": properties, "payload": payload, **time}
        for topic, file, key, properties, payload in (
            ("é", "b", None, None, b"1"), ("z", "a", "k", [("a", None)], None), ("\U0001f600", "b", "", [], b""),
        )
        for time in (
            {}, {"deliver_after_ms": 5}, {"deliver_at": (T0 + 5) * US}, {"deliver_at": T0 * US - 1},
            {"publish_time": (T0 - 7) * US + 3, "deliver_after_ms": 0}, {"deliver_at": YEAR_1900 * US},
        )
    ]  # fmt: skip
    classified = classify(arrived(spark, *given), LIMITS)
    assert classified.where("reason IS NOT NULL").isEmpty()
    by_spark = message_rows(number(classified, len(given), 5, entries, 2), T0, T0 + 5, 8).toArrow()
    in_driver = local_message_rows(classified.toArrow(), 5, entries, T0, T0 + 5, 8)
    place = [("ledger_id", "ascending"), ("entry_id", "ascending")]
    assert in_driver.to_pylist() == by_spark.sort_by(place).to_pylist()


def positions(
    spark: SparkSession, rows: list[dict[str, Any]], first_ledger: int, entries: int, tasks: int
) -> list[tuple[int, int, int]]:
    """(arrival row, ledger, entry) of numbered rows, by position."""
    spread = classify(arrived(spark, *rows), LIMITS).repartition(3)
    numbered = number(spread, len(rows), first_ledger, entries, tasks)
    found = numbered.select("arrival_row", "ledger_id", "entry_id").collect()
    return sorted(((row[0], row[1], row[2]) for row in found), key=lambda each: each[1:])


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_positions_follow_topic_then_due_time_then_arrival(spark: SparkSession, tasks: int) -> None:
    """What is due together is then a run of entries; ties keep the order in which they arrived."""
    rows: list[dict[str, Any]] = [
        {"topic": "z"},
        {"deliver_after_ms": 9},
        {"arrival_commit": 1, "arrival_row": 0},
        {"arrival_file": "a", "arrival_row": 9},
        {"arrival_row": 4},
        {"arrival_row": 2, "arrival_block": 7},
        {"arrival_row": 3},
    ]
    found = positions(spark, rows, 0, 50_000, tasks)
    assert [row for row, _, _ in found] == [9, 3, 4, 2, 0, 1, 0]
    assert [place for _, *place in found] == [[0, entry] for entry in range(7)]


@pytest.mark.parametrize("tasks", [1, 3, 20])
def test_a_ledger_is_rolled_when_it_is_full(spark: SparkSession, tasks: int) -> None:
    """Positions are the same for any number of tasks: two replays may be cut in different ways."""
    rows: list[dict[str, Any]] = [{"deliver_after_ms": i} for i in range(11)]
    assert positions(spark, rows, 7, 4, tasks) == [(i, 7 + i // 4, i % 4) for i in range(11)]


@pytest.mark.parametrize(("count", "taken"), [(0, 0), (1, 1), (4, 1), (5, 2), (99, 25)])
def test_a_batch_takes_the_ledgers_that_it_fills(count: int, taken: int) -> None:
    """The next batch starts behind them."""
    assert ledgers(count, 4) == taken
