"""A replay gives the same deliveries each time, whatever the sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.errors import BadSetting
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import DAY_MS, HOUR_MS, LAST_INSTANT_MS, Settings
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.segments import local_segment_rows
from pipeline.service.replay import ReplayClock, replay
from schemas import DELIVERIES, MESSAGES, PUBLICATIONS, REJECTED_DISPATCH, REJECTED_INGEST, SUBSCRIPTIONS, Table
from tests.support.spark import session
from tests.support.stream import empty_warehouse

T0 = 1_700_000_000_000
COURSE = ReplayClock(T0, T0 + 14 * DAY_MS, 5 * DAY_MS)
COUNT = 400
SUBSCRIBED = [("a", "fine", 1), ("a", "coarse", HOUR_MS), ("b", "only", 60_000)]
Row = tuple[Any, ...]


def sent(number: int) -> dict[str, Any]:
    """A row of the input: published in the first week, due at once or up to six days later."""
    published = T0 + number * 7_919 % 604_800 * 1_000
    asked: dict[str, Any] = {"deliver_at": (published + number % 37 * 4 * HOUR_MS) // HOUR_MS * HOUR_MS}
    if number % 5 == 0:
        asked = {"deliver_after_ms": number * 60_000}
    if number % 50 == 49:
        asked = {"deliver_after_ms": -1}
    at = None if number % 40 == 0 else published
    return {"topic": "ab"[number % 2], "publish_time": at, "payload": b"%d" % number, **asked}


def the_input(spark: SparkSession) -> DataFrame:
    """All rows of the input; some publish times are NULL."""
    rows = [{"message_key": None, "deliver_at": None, "deliver_after_ms": None, **sent(n)} for n in range(COUNT)]
    times, long = pa.timestamp("ms", "UTC"), pa.int64()
    kinds = {"topic": pa.string(), "message_key": pa.string(), "publish_time": times, "deliver_at": times}
    schema = pa.schema([*kinds.items(), ("deliver_after_ms", long), ("payload", pa.binary())])
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))
    return frame.selectExpr("*", "CAST(NULL AS map<string,string>) AS properties")


def fresh() -> Warehouse:
    """A warehouse with the subscriptions."""
    folder = str(Path(mkdtemp()) / "warehouse")
    copytree(empty_warehouse(6 * HOUR_MS), folder)
    topics, names, ticks = zip(*SUBSCRIBED, strict=True)
    who = {"topic": topics, "subscription": names, "type": ["shared"] * 3, "start": ["latest"] * 3, "tick_ms": ticks}
    table = pa.table({**who, "policies": pa.nulls(3, pa.map_(pa.string(), pa.string())), "active": [True] * 3})
    write_deltalake(f"{folder}/{SUBSCRIPTIONS.name}", table, mode="append")
    return Warehouse(folder, session())


def replayed(settings: Settings | None = None) -> Warehouse:
    """A warehouse after a replay that nobody disturbed."""
    warehouse = fresh()
    replay(warehouse, the_input(session()), COURSE, settings=settings)
    return warehouse


@cache
def first() -> Warehouse:
    """The replay that others are compared with."""
    return replayed()


def in_order(warehouse: Warehouse, *without: str) -> list[Row]:
    """The deliveries in the order in which they were handed over, less some columns."""
    names = [name for name in DELIVERIES.schema.names if name not in without]
    found = warehouse.read(DELIVERIES).orderBy("batch_id", "sequence").collect()
    return [tuple(bytes(row[n]) if n == "payload" else row[n] for n in names) for row in found]


def counted(warehouse: Warehouse, *tables: Table) -> list[int]:
    """How many rows each table has."""
    return [warehouse.read(table).count() for table in tables]


def test_a_replay_delivers_every_message_once_to_each_subscription_and_never_early() -> None:
    """Checked against the input alone: nothing lost, nothing twice, nothing before its time."""
    good = [number for number in range(COUNT) if sent(number).get("deliver_after_ms") != -1]
    wanted = [(name, str(n)) for topic, name, _ in SUBSCRIBED for n in good if sent(n)["topic"] == topic]
    found = first().read(DELIVERIES).collect()
    assert sorted((row["subscription"], bytes(row["payload"]).decode()) for row in found) == sorted(wanted)
    assert all((row["deliver_at"] or row["due_time"]) <= row["due_time"] <= row["released_at"] for row in found)
    assert counted(first(), MESSAGES, REJECTED_INGEST, REJECTED_DISPATCH) == [len(good), COUNT - len(good), 0]
    assert sum(row["count"] for row in first().read(PUBLICATIONS).collect()) == len(wanted)


def test_one_instant_is_one_release_in_the_stated_order() -> None:
    """Within a release by bucket, exact time and position; releases follow the clock."""
    deliveries = in_order(first())
    names = DELIVERIES.schema.names
    columns = [names.index(name) for name in ("batch_id", "released_at", "due_time")]
    keys = [tuple(row[column] for column in columns) for row in deliveries]
    assert keys == sorted(keys)
    assert len({batch for batch, _, _ in keys}) == len({instant for _, instant, _ in keys}) == len(COURSE)


@pytest.mark.soak
def test_other_sizes_give_equal_deliveries_in_order_but_for_ids() -> None:
    """Rows, their order and their sequence stay; batch, ledger and entry ids may differ.

    Ingest and schedule take more batches; a release stays whole, as dispatch takes whole commits.
    """
    ids = ("batch_id", "ledger_id", "entry_id")
    other = replayed(Settings(partitions=3, rows_per_task=10, entries_per_ledger=16, max_files=1, driver_rows=0))
    assert in_order(other, *ids) == in_order(first(), *ids)
    entry = DELIVERIES.schema.names.index("entry_id")
    assert max(row[entry] for row in in_order(other)) < 16


def test_two_replays_of_one_input_give_equal_deliveries_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row for row, all columns: none of them comes from a wall clock.

    In the second one positions cannot be read here, and are read by Spark, whatever was read until then.
    """
    tried = []

    def half(*words: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - those of the other one
        some = list(local_segment_rows(*words))[:1]
        tried.extend(some)
        yield from some
        raise NotInDriver

    expected = in_order(first())
    monkeypatch.setattr("pipeline.ingest.stage.local_segment_rows", half)
    assert in_order(replayed()) == expected
    assert tried


def test_a_course_has_its_ends_and_steps_between_them() -> None:
    """The last instant is reached, also when the step does not divide the way."""
    assert list(ReplayClock(1, 10, 4)) == [1, 5, 9, 10]
    assert list(ReplayClock(1, 9, 4)) == [1, 5, 9]
    assert list(ReplayClock(5, 5, 1)) == [5]
    assert [len(ReplayClock(1, last, 4)) for last in (1, 9, 10)] == [1, 3, 4]


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "step", "field"),
    [(0, 1, 1, "first, last"), (2, 1, 1, "first, last"), (1, LAST_INSTANT_MS + 1, 1, "first, last"), (1, 2, 0, "step")],
)
def test_a_course_that_goes_nowhere_is_refused(first_ms: int, last_ms: int, step: int, field: str) -> None:
    """The error names the field."""
    with pytest.raises(BadSetting) as raised:
        ReplayClock(first_ms, last_ms, step)
    assert raised.value.field == field
