"""The mistakes that Spark forgives in silence, planted one by one, and the check that catches each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from pipeline.config.session import set_meanwhile
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.segments import NEAR, Membership, Span, segment_rows
from pipeline.schedule import keys
from pipeline.schedule import stage as schedule
from pipeline.service.replay import Producer, ReplayClock, entering
from pipeline.subscriptions.incarnations import Subscription
from pipeline.worker import release as worker
from schemas import INBOX, MESSAGES, SEGMENTS, TABLES
from schemas.columns import LONG
from schemas.state import STATE_ROW
from tests.support.rows import T0, messages, rows_of
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    empty_warehouse,
    message,
    play,
    subscribe,
)
from tests.support.together import Played, play_together

MINUTE = 60_000


def with_event_times(segments: DataFrame, ticks: DataFrame, count: int) -> DataFrame:
    """The planted mistake: data rows carry an event time, that of their segment, as ticks do."""
    rows = keys.addressed(segments, count).withColumn("event_time", F.timestamp_millis("segment_ms"))
    instants = ticks.select(F.timestamp_millis("instant").alias("event_time"))
    both = rows.unionByName(instants, allowMissingColumns=True).withWatermark("event_time", "0 seconds")
    grouped = both.where("owner IS NOT NULL OR event_time IS NULL").groupBy(*worker.KEY)
    timeout = GroupStateTimeout.EventTimeTimeout
    return grouped.applyInPandasWithState(worker.release, worker.RELEASE, STATE_ROW.struct, "append", timeout)


def test_data_rows_with_an_event_time_are_dropped_and_the_metric_tells(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row behind the watermark never reaches the function; every stream test ends with a look at the metric."""
    monkeypatch.setattr(schedule, "releases", with_event_times)
    late = [subscribe("t", "s"), advance(T0), append(message("late", after=0)), advance(T0 + 1)]
    with pytest.raises(AssertionError, match="dropped by the watermark"):
        play(spark, folder, late)


def test_a_far_event_time_moves_the_clock_and_delivers_early(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery time that feeds the watermark makes Spark believe that it has come."""
    monkeypatch.setattr(schedule, "releases", with_event_times)
    early = [
        subscribe("t", "s"),
        append(message("far", after=50 * MINUTE), message("near", after=20 * MINUTE)),
        advance(T0),
        delivered(),
    ]
    with pytest.raises(AssertionError) as raised:
        play(spark, folder, early)
    assert "in step 3" in raised.value.__notes__[0]


def counting(path: Path) -> Any:  # noqa: ANN401 - a function as Spark takes it
    """The stateful function, with a line in a file for each of its calls."""
    inner, name = worker.release, str(path)

    def release(key: worker.Key, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        with open(name, "a", encoding="ascii") as file:  # noqa: PTH123 - runs in a worker
            file.write("called\n")
        yield from inner(key, frames, state)

    return release


def calls(path: Path) -> int:
    """How often the function was called."""
    return len(path.read_text(encoding="ascii").splitlines()) if path.exists() else 0


def versions(world: World) -> dict[str, int]:
    """The version of each table."""
    return {table.name: DeltaTable(world.warehouse.path(table)).version() for table in TABLES}


def files(world: World, folder: str) -> list[pq.ParquetFile]:
    """The data files of a table."""
    return [pq.ParquetFile(path) for path in sorted(Path(world.warehouse.root, folder).rglob("*.parquet"))]


def prunable(file: pq.ParquetFile, column: str) -> bool:
    """Whether pages of a file can be skipped by a time column: a 64-bit integer with a column index."""
    number = file.schema.names.index(column)
    chunk = file.metadata.row_group(0).column(number)
    return chunk.physical_type == "INT64" and chunk.has_column_index and chunk.statistics is not None


ONE_MESSAGE = [subscribe("t", "s"), append(message("a", after=10)), advance(T0), advance(T0 + 10), delivered("a")]
"""Two calls of the stateful function: one with the chunk, one when it is due."""


def idle(path: Path) -> list[Step]:
    """The clock goes on, and there is nothing to do."""
    before: dict[str, int] = {}

    def note(world: World) -> None:
        before.update(versions(world))

    def nothing_written(world: World) -> None:
        assert versions(world) == before
        assert calls(path) == 2
        written = files(world, MESSAGES.name)
        assert written
        assert all(prunable(file, "due_time") and prunable(file, "deliver_at") for file in written)

    idling = [check(note), advance(T0 + MINUTE), advance(T0 + 2 * MINUTE), check(nothing_written)]
    return [*ONE_MESSAGE, *idling]


def looked_at() -> list[Step]:
    """Somebody looks at the plans of the batches with the message: that of ingest has places only."""

    def small(world: World) -> None:
        ingest, planned = (plan_of(stage.query) for stage in world.running[:2])
        progress = world.running[1].query.lastProgress
        assert progress is not None
        tables = [each.description for each in progress.sources if "Delta" in each.description]
        assert [each.rstrip("]").rpartition("/")[2] for each in tables] == [SEGMENTS.name]
        assert "instant" in ingest
        assert "chunk" in planned
        assert not [word for word in ("payload", MESSAGES.name, INBOX.name) if word in planned or word in ingest]

    return [advance(T0), advance(T0 + 10), check(small)]


def with_another_row() -> list[Step]:
    """The rows of the state get a column while a message waits."""

    def changed(world: World) -> None:
        world.end()
        more = STATE_ROW.and_optional(("more", LONG))
        with patch.object(schedule, "STATE_ROW", more):
            world.begin()
            with pytest.raises(StreamingQueryException, match="STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"):
                advance(T0 + 4 * MINUTE)(world)

    return [append(message("b", after=10)), advance(T0 + 3 * MINUTE), check(changed)]


@cache
def minutes() -> Played:
    """A run with one message, in which calls of the stateful function are counted."""
    path = Path(mkdtemp()) / "calls"
    with patch.object(schedule, "release", counting(path)):
        return play_together({"idle": idle(path), "looked at": looked_at(), "another row": with_another_row()})


def test_the_stateful_function_runs_once_a_batch_and_idle_ticks_write_nothing() -> None:
    """An empty batch is found empty: no table gets a commit; and what was written can be pruned by time."""
    minutes().shows("idle")


def test_two_actions_without_persist_run_the_stateful_function_twice(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The planted mistake is seen by counting calls: results alone would look right."""
    path = tmp_path / "calls"
    monkeypatch.setattr(schedule, "release", counting(path))
    # A few answers come with the job that counts them; more than that take a second one.
    monkeypatch.setattr(schedule, "_FEW", 0)
    monkeypatch.setattr(type(spark.range(1)), "persist", lambda frame, _level: frame)
    play(spark, folder, ONE_MESSAGE)
    assert calls(path) > 2


def test_a_time_without_statistics_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """The planted mistake is Spark's default for timestamps, with which a load reads whole tables."""
    setting = "spark.sql.parquet.outputTimestampType"
    ours = str(spark.conf.get(setting))
    log = messages(spark, {"entry_id": 0}).coalesce(1)
    for kind in ("INT96", ours):
        with set_meanwhile(spark, {setting: kind}):
            log.write.parquet(str(tmp_path / kind))
    seen = {kind: pq.ParquetFile(next((tmp_path / kind).glob("*.parquet"))) for kind in ("INT96", ours)}
    assert [prunable(file, "due_time") for file in seen.values()] == [False, True]


def test_encoding_positions_reads_no_payload(spark: SparkSession, folder: str) -> None:
    """The scan lists the columns that it reads; a plan that takes all of them is told apart."""
    warehouse = Warehouse(folder, spark)
    messages(spark, {"entry_id": 0, "payload": bytearray(b"p")}).write.format("delta").save(warehouse.path(MESSAGES))
    members = Membership.of({("t", "s"): Subscription("t", "s", 1, earliest=False)}, {}, 0)
    log = warehouse.read(MESSAGES)
    rows = segment_rows(log, members, Span(T0, 0, T0 + MINUTE, 0, 1), MINUTE, frozenset({NEAR}))
    assert rows.count() == 1
    assert "due_time:" in columns_read(spark, rows)
    assert "payload:" not in columns_read(spark, rows)
    assert "payload:" in columns_read(spark, log.mapInArrow(lambda batches: batches, log.schema))


def plan_of(query: Any) -> str:  # noqa: ANN401 - its Java object is not in its type
    """The plans of a query's last batch, logical and physical."""
    return str(query._jsq.explainInternal(True))  # noqa: FBT003 - the public method prints


def test_the_schedule_reads_segments_and_the_clock_and_never_a_payload() -> None:
    """What it reads is small, however large the messages are; ingest, which takes them in, is told apart."""
    minutes().shows("looked at")


def test_a_changed_state_row_is_refused_at_the_restart() -> None:
    """Spark would not read the old rows; so what may change lies in one binary column with a version of its own."""
    minutes().shows("another row")


def test_an_instant_of_a_course_enters_once(spark: SparkSession, folder: str) -> None:
    """A replay that is taken up again appends no instant twice; other instants and other courses are appended."""
    warehouse = Warehouse(copytree(empty_warehouse(300_000), folder), spark)
    rows = rows_of(spark, INBOX.schema, *({"topic": "t", "publish_time": ms} for ms in (1, 4, 6, 11)))
    course, other = ReplayClock(1, 10, 3), ReplayClock(1, 10, 9)
    counts = []
    for each, number in ((course, 0), (course, 0), (course, 1), (course, 3), (other, 1), (course, 1), (course, 2)):
        Producer(warehouse, entering(rows, each), each).append(number)
        counts.append(warehouse.read(INBOX).count())
    assert counts == [1, 1, 2, 2, 4, 4, 5]


def columns_read(spark: SparkSession, frame: DataFrame) -> str:
    """The `ReadSchema` of a frame's scans, whole: Spark cuts it after 100 characters."""
    with set_meanwhile(spark, {"spark.sql.maxMetadataStringLength": "10000"}):
        plan = str(frame._jdf.queryExecution().executedPlan().toString())
    return " ".join(line.partition("ReadSchema: ")[2] for line in plan.splitlines())
