"""Schedule: encoded positions wait in streaming state, and leave as runs when they are due.

The function is called with a key's rows, or when its alarm fires; either way it releases all that is due at the
batch's instant. A call costs milliseconds whatever is in it, so many subscriptions share a key; those of a topic that
listen alike share an index, too. The function answers with one row for each index of which something is due, the runs
packed in a binary column, because a million positions as pandas rows take seconds; they become rows for each
subscription in `Unpacker`, by whole arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.config.lazyspark import F, pyspark
from pipeline.config.options import Observer, StageListener
from pipeline.config.routes import DRIVER, SETTING, SIZE
from pipeline.config.session import kept
from pipeline.config.settings import Settings
from pipeline.config.stages import SCHEDULE
from pipeline.delta.checkpoints import COMMITS, Log
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import BatchCommits
from pipeline.delta.writing.oncewriter import Sink
from pipeline.schedule.keys import NO_POSITION, addressed
from pipeline.worker.release import KEY, RELEASE, release
from pipeline.worker.unpack import RUN, Refusals, Unpacker, listeners
from schemas import REDELIVERY, REJECTED_SCHEDULE
from schemas.state import STATE_ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

RETRY = "retry"
"""The kind of rows with what comes again to one subscription, with `redelivery_count`, `round` and `cause`."""
REBUILD = "rebuild"
"""The kind of the rows with which a rebuild fills a new checkpoint; their `batch_id` is the rebuild's number."""
_OF_OWNER = ("owner", "tick_ms", "instant")
"""What the runs of an answer have in common."""
_HEARERS = "coalesce((json_array_length(owner) - 1) div 2, 1)"
_SIZE = f"coalesce(sum(octet_length(runs) * {_HEARERS}), 0)"
"""Bytes of runs for all who get them. As text: each call that builds a column asks the JVM several times."""
_FAILED = "count_if(error IS NOT NULL)"
_ROWS = f"coalesce(sum({_HEARERS}), 0)"
_RUN_BYTES = 32
"""Bytes of a run in an answer."""
_FEW, _SHORT = 64, 1 << 20
"""Up to so many rows of answers, with so many bytes of runs each, come to the driver by the job that counts them."""


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
    timeout = pyspark.sql.streaming.state.GroupStateTimeout.EventTimeTimeout
    return positions.applyInPandasWithState(release, RELEASE, STATE_ROW.struct, "append", timeout)


def of_rebuild(segments: DataFrame, rebuilt: int | None) -> DataFrame:
    """Rows of `segments` less those of other rebuilds: each is for one checkpoint, and repeats what others had."""
    regular = F.col("kind") != REBUILD
    return segments.where(regular if rebuilt is None else regular | (F.col("batch_id") == rebuilt))


class Schedule:
    """The body of the schedule query: call it with each batch of releases."""

    def __init__(self, warehouse: Warehouse, checkpoint: Log, settings: Settings, observe: Observer) -> None:
        """Look up once what the tables hold."""
        self._checkpoint, self._settings, self._observe = checkpoint, settings, observe
        self.watch, self._few = StageListener(), True
        self.sinks = {t.name: Sink(warehouse, t, SCHEDULE, checkpoint.wrote) for t in COMMITS[SCHEDULE]}

    def __call__(self, released: DataFrame, batch_id: int) -> None:
        """Write one batch. The stateful function runs in the first job; everything after reads what it gave."""
        commits = BatchCommits(SCHEDULE, self.sinks, self._checkpoint.owner or "", batch_id, self._observe)
        begin, end = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
        note = {**end.as_dict(), "begin": begin.offset}
        with kept(released):
            answers = self._answers(released)
            if answers.size or answers.failed:
                self._observe("schedule.counted", batch_id)
            if answers.failed:
                commits.append(REJECTED_SCHEDULE, failures(released, batch_id), note)
            if answers.size:
                commits.append(REDELIVERY, self._rows(released, answers, batch_id), note)

    def _answers(self, released: DataFrame) -> Answers:
        """Run the stateful function. A batch is expected to be as small as the one before it."""
        answers = few(released) if self._few else None
        if answers is None:
            answers = counted(released)
            self._few = answers.rows <= _FEW and answers.size <= _SHORT
        return answers

    def _rows(self, released: DataFrame, answers: Answers, batch_id: int) -> DataFrame | pa.Table:
        """The runs as rows of `redelivery`: in the driver, when they are there or are few enough."""
        small = answers.size <= self._settings.driver_rows * _RUN_BYTES
        self.watch.routed(SCHEDULE, DRIVER if small else SIZE if self._settings.driver_rows else SETTING)
        if small and answers.held:
            return held_run_rows(answers.held, batch_id)
        return local_run_rows(released, batch_id) if small else run_rows(released, batch_id)


@dataclass(frozen=True)
class Answers:
    """What the stateful function gave in a batch.

    Attributes:
        size: bytes of runs, for all who get them.
        failed: answers that are errors.
        rows: answers, those without runs, too. Where they were counted: for all who get them.
        held: the answers with runs, when all are in the driver already.
    """

    size: int
    failed: int
    rows: int
    held: tuple[Row, ...] = ()


def few(released: DataFrame) -> Answers | None:
    """Answers, all of them, by one job; None when they are too many or too large for that.

    The job ends early only when it has seen too many: otherwise the function has run over all partitions.
    """
    held = f"if(octet_length(runs) <= {_SHORT}, runs, NULL) AS runs"
    columns = "coalesce(octet_length(runs), 0) AS bytes", "error IS NOT NULL AS failed"
    rows = released.selectExpr(*_OF_OWNER, held, *columns).limit(_FEW + 1).collect()
    if len(rows) > _FEW or any(row["bytes"] > _SHORT for row in rows):
        return None
    size, failed = sum(row["bytes"] * len(listeners(row["owner"])) for row in rows), sum(row["failed"] for row in rows)
    return Answers(size, failed, len(rows), tuple(row for row in rows if row["bytes"]))


def counted(released: DataFrame) -> Answers:
    """How many answers there are, by a job that runs the function over all partitions."""
    return Answers(*released.selectExpr(_SIZE, _FAILED, _ROWS).collect()[0])


def run_rows(released: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `redelivery`."""
    return _packed(released).mapInArrow(Unpacker(batch_id).of_owners, REDELIVERY.schema)


def held_run_rows(held: Sequence[Row], batch_id: int) -> pa.Table:
    """Rows of `redelivery` from answers that are in the driver already."""
    return _unpacked([pa.RecordBatch.from_pylist([row.asDict() for row in held])], batch_id)


def local_run_rows(released: DataFrame, batch_id: int) -> pa.Table:
    """Rows of `redelivery`, unpacked in the driver."""
    return _unpacked(_packed(released).toArrow().to_batches(), batch_id)


def _unpacked(answers: Iterable[pa.RecordBatch], batch_id: int) -> pa.Table:
    return pa.Table.from_batches(Unpacker(batch_id).of_owners(iter(answers)), RUN)


def _packed(released: DataFrame) -> DataFrame:
    """Answers that hold runs."""
    return released.where("octet_length(runs) > 0").select(*_OF_OWNER, "runs")


def failures(released: DataFrame, batch_id: int) -> DataFrame:
    """Rows of `rejected_schedule`."""
    return released.where("error IS NOT NULL").mapInArrow(Refusals(batch_id).__call__, REJECTED_SCHEDULE.schema)
