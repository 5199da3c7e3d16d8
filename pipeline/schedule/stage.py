"""Schedule: encoded positions wait in streaming state, and leave as runs when they are due.

The function is called with a key's rows, or when its alarm fires; either way it releases all that is due at the
batch's instant. A call costs milliseconds whatever is in it, so many subscriptions share a key; those of a topic that
listen alike share an index, too. The function answers with one row for each index of which something is due, the runs
packed in a binary column, because a million positions as pandas rows take seconds; they become rows for each
subscription in `Unpacker`, by whole arrays.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.state import GroupStateTimeout

from pipeline.config.options import Observer
from pipeline.config.settings import Settings
from pipeline.config.stages import SCHEDULE
from pipeline.config.watching import Watch
from pipeline.delta.checkpoints import Log
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.schedule.keys import NO_POSITION, addressed
from pipeline.storage.parquet import DRIVER, SETTING, SIZE
from pipeline.worker.release import KEY, RELEASE, release
from pipeline.worker.unpack import DUE, RUN, SAME, Unpacker
from schemas import REDELIVERY, REJECTED_SCHEDULE
from schemas.state import STATE_ROW

RETRY = "retry"
"""The kind of rows with what comes again to one subscription, with `redelivery_count` and `cause`."""
REBUILD = "rebuild"
"""The kind of the rows with which a rebuild fills a new checkpoint; their `batch_id` is the rebuild's number."""
_LISTENERS = """inline(transform(sequence(1, size(owners) - 2, 2), place ->
    named_struct('topic', owners[0], 'subscription', owners[place], 'life', cast(owners[place + 1] as bigint))
))"""
"""The subscriptions that share an index, a row each; `owners` is the array that the name of its owner holds."""
_AGAIN = "size(owners) % 2 = 0"
"""Whether the positions of an index come again: then the last text of `owners` is redelivery count, colon, cause."""
_COUNT = f"if({_AGAIN}, cast(substring_index(element_at(owners, -1), ':', 1) as bigint), 0)"
_CAUSE = f"if({_AGAIN}, substr(element_at(owners, -1), instr(element_at(owners, -1), ':') + 1), '{DUE}')"
_NAMES = "from_json(owner, 'array<string>', map('mode', 'FAILFAST'))"
"""A name that cannot be read would be nobody's, and what it was given would be gone without a word."""
_SIZE = "coalesce(sum(octet_length(runs) * coalesce((json_array_length(owner) - 1) div 2, 1)), 0)"
"""Bytes of runs for all who get them. As text: each call that builds a column asks the JVM several times."""
_FAILED = "count_if(error IS NOT NULL)"
_RUN_BYTES = 32
"""Bytes of a run in an answer."""


def releases(segments: DataFrame, ticks: DataFrame, count: int) -> DataFrame:
    """The stream of releases: a row for each index of which something is due, from `count` shards.

    Positions carry no event time, so Spark never drops them as late; ticks carry nothing else. One watermark, after
    the union. The filter behind it names the event time: one that did not would be pushed below the watermark, and the
    clock would stand.
    """
    rows = addressed(segments, count).withColumn("event_time", F.lit(None).cast("timestamp"))
    instants = ticks.selectExpr("timestamp_millis(instant) AS event_time", *NO_POSITION)
    both = instants.unionByName(rows, allowMissingColumns=True).withWatermark("event_time", "0 seconds")
    positions = both.where("event_time IS NULL").groupBy(*KEY)
    timeout = GroupStateTimeout.EventTimeTimeout
    return positions.applyInPandasWithState(release, RELEASE, STATE_ROW, "append", timeout)


def of_rebuild(segments: DataFrame, rebuilt: int | None) -> DataFrame:
    """Rows of `segments` less those of other rebuilds: each is for one checkpoint, and repeats what others had."""
    regular = F.col("kind") != REBUILD
    return segments.where(regular if rebuilt is None else regular | (F.col("batch_id") == rebuilt))


class Schedule:
    """The body of the schedule query: call it with each batch of releases."""

    def __init__(
        self, spark: SparkSession, warehouse: Warehouse, checkpoint: Log, settings: Settings, observe: Observer
    ) -> None:
        """Look up once what the tables hold."""
        self._checkpoint, self._settings, self._observe = checkpoint, settings, observe
        self.watch = Watch()
        tables = (REDELIVERY, REJECTED_SCHEDULE)
        self.sinks = {t.name: Sink(spark, warehouse, t, SCHEDULE, checkpoint.wrote) for t in tables}

    def __call__(self, released: DataFrame, batch_id: int) -> None:
        """Write one batch. The stateful function runs in the first job; everything after reads what it gave."""
        owner = self._checkpoint.owner or ""
        begin, end = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
        note = {**end.as_dict(), "begin": begin.offset}
        released.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            size, failed = _count(released)
            if size or failed:
                self._observe("schedule.counted", batch_id)
            if failed:
                self._append("rejected_schedule", failures(released, batch_id), owner, batch_id, note)
            if size:
                few = size <= self._settings.driver_rows * _RUN_BYTES
                self.watch.routed(SCHEDULE, DRIVER if few else SIZE if self._settings.driver_rows else SETTING)
                rows = local_run_rows(released, batch_id) if few else run_rows(released, batch_id)
                self._append("redelivery", rows, owner, batch_id, note)
        finally:
            released.unpersist()

    def _append(
        self, table: str, rows: DataFrame | pa.Table, owner: str, batch_id: int, note: Mapping[str, Any]
    ) -> None:
        self.sinks[table].append(rows, owner, batch_id, note)
        self._observe(f"schedule.{table}", batch_id)


def _count(released: DataFrame) -> tuple[int, int]:
    """The job that runs the stateful function, over all partitions: bytes of runs for all who get them, and errors."""
    row = released.selectExpr(_SIZE, _FAILED).collect()[0]
    return row[0], row[1]


def run_rows(released: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `redelivery`."""
    return _packed(released).mapInArrow(Unpacker(batch_id).__call__, REDELIVERY.schema)


def local_run_rows(released: DataFrame, batch_id: int) -> pa.Table:
    """The same in the driver."""
    return pa.Table.from_batches(Unpacker(batch_id)(iter(_packed(released).toArrow().to_batches())), RUN)


def _packed(released: DataFrame) -> DataFrame:
    """Answers that hold runs, for each subscription."""
    return _each(released.where("octet_length(runs) > 0")).select(*SAME, "runs")


def _each(released: DataFrame) -> DataFrame:
    """Answers, once for each subscription that shares the index, which `topic`, `subscription` and `life` name."""
    named = released.selectExpr("*", f"{_NAMES} AS owners")
    told = named.selectExpr("*", f"{_COUNT} AS redelivery_count", f"{_CAUSE} AS cause")
    return told.selectExpr("*", _LISTENERS).drop("owner", "owners")


def failures(released: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `rejected_schedule`."""
    reason = F.format_string("('%s', '%s', %d, %d): %s", "topic", "subscription", "life", "segment_ms", "error")
    return _each(released.where("error IS NOT NULL")).select(
        reason.alias("reason"),
        F.timestamp_millis("instant").alias("rejected_at"),
        F.lit(batch_id).alias("batch_id"),
        "topic",
        "subscription",
        F.timestamp_millis("segment_ms").alias("segment_start"),
        "chunk",
    )
