"""The clock as a source of a query of Spark's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.support import processes
from pipeline.config.jvm import java_class
from pipeline.config.settings import LiveClock, VirtualClock
from pipeline.delta.checkpoints import parse
from pipeline.service.clock import TickSource, Wakes, advance, ticks


class Heard:
    """A query that notes the instants of its batches."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self.instants = spark, folder, list[tuple[int, list[int]]]()
        self.clock = str(folder / "clock")

    def source(self, start: int = 0) -> TickSource:
        """A virtual clock that begins behind an instant."""
        return ticks(self._spark, VirtualClock(), self.clock, start)

    def started(self, source: TickSource) -> StreamingQuery:
        """The query, on its checkpoint."""
        writer = source.stream().writeStream.foreachBatch(self._note)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def until(self, instant: int, start: int = 0) -> None:
        """Let the query hear of an instant, and stop it."""
        advance(self.clock, instant)
        query = self.started(self.source(start))
        query.processAllAvailable()
        query.stop()

    def lose_commit(self, batch: int) -> None:
        """As if the process had died before it noted that a batch is done."""
        (self._folder / "checkpoint" / "commits" / str(batch)).unlink()

    def logged(self, batch: int) -> list[str]:
        """The entry of a batch in the offset log."""
        return (self._folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()

    def _note(self, rows: DataFrame, batch: int) -> None:
        self.instants.append((batch, [row["instant"] for row in rows.collect()]))


def test_a_query_hears_of_each_instant_once_also_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """The log has it as releases before this one wrote it, who had another source: a start goes on from their logs."""
    heard = Heard(spark, tmp_path)
    for instant in (1_000, 2_000, 5 * 10**12):
        heard.until(instant)
    assert heard.instants == [(0, [1_000]), (1, [2_000]), (2, [5 * 10**12])]
    assert heard.logged(1)[2:] == ['{"instant": 2000}']
    assert parse("\n".join(heard.logged(2))).instant == 5 * 10**12


def test_a_repeated_batch_has_the_same_instant(spark: SparkSession, tmp_path: Path) -> None:
    """The first one too: it begins where no batch has ended."""
    heard = Heard(spark, tmp_path)
    heard.until(1_000)
    heard.lose_commit(0)
    heard.until(2_000)
    heard.lose_commit(1)
    heard.until(3_000)
    assert heard.instants == [(0, [1_000]), (0, [1_000]), (1, [2_000]), (1, [2_000]), (2, [3_000])]


def test_a_new_checkpoint_hears_of_what_comes_after_its_begin(spark: SparkSession, tmp_path: Path) -> None:
    """A rebuilt stage goes on where the old one was; a batch that ends there has no instant."""
    heard = Heard(spark, tmp_path)
    advance(heard.clock, 1_000)
    heard.until(2_000, start=2_000)
    heard.until(3_000, start=2_000)
    assert heard.instants == [(0, []), (1, [3_000])]


def pythons() -> set[Path]:
    """The Python processes of Spark below this one; what else the JVM starts for a moment is not among them."""
    found = set()
    for folder in processes.tree(os.getpid()):
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= {folder} if b"-m\0pyspark." in (folder / "cmdline").read_bytes() else set()
    return found


def test_a_clock_takes_no_process(spark: SparkSession, tmp_path: Path) -> None:
    """A Python for each query and others for its plan took a third of a start, and a hundred megabytes each."""
    heard, before = Heard(spark, tmp_path), pythons()
    query = heard.started(ticks(spark, LiveClock(), "", wakes=Wakes([str(tmp_path)])))
    while query.lastProgress is None:
        assert query.isActive
    assert pythons() <= before
    query.stop()


def test_an_instant_is_part_of_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    """A task that reads one row takes longer than most of a batch."""
    source = Heard(spark, tmp_path).source()
    batch = source.getBatch(java_class(spark, "scala.Option").empty(), source.deserializeOffset('{"instant": 5}'))
    plan = batch.queryExecution().analyzed()
    assert plan.nodeName() == "LocalRelation"
    assert plan.data().apply(0).getLong(0) == 5
