"""Starting and stopping the stages: a streaming query each, with its own checkpoint, and the loop of settle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pipeline.config.errors import MemoryEnded
from pipeline.config.options import Options
from pipeline.config.session import set_meanwhile
from pipeline.config.settings import DAY_MS, LONGEST_HORIZON_MS, MINUTE_MS, Clock, LiveClock
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.delta.checkpoints import SOURCES, Checkpoint, Origin
from pipeline.delta.logs.entries import newest
from pipeline.delta.streams.log import ColumnsChanged, PlaceSource
from pipeline.delta.tables import bring_up_to_date
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.publisher import Publisher
from pipeline.dispatch.restore import restore
from pipeline.dispatch.stage import Dispatch
from pipeline.ingest.stage import Ingest
from pipeline.schedule import keys
from pipeline.schedule import stage as schedule
from pipeline.schedule.stage import Schedule
from pipeline.service.catchup import CatchUp
from pipeline.service.clock import TickSource, Wakes, never, ticks, work_ticks
from pipeline.service.currentbatch import AtWork, memory_ended
from pipeline.service.outages import Wait, no_answer
from pipeline.service.settling import Query, SettleLoop
from pipeline.service.startup import check_batches, check_clock, check_owner, check_source
from pipeline.settle.stage import Settle
from pipeline.storage.files import Files
from pipeline.storage.locks import StageLock
from schemas import CURSORS, INBOX, REDELIVERY, SEGMENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_ALL_FILES = 1_000_000
_NO_WORKER = "Python worker failed to connect back"
"""What Spark says when a Python worker did not start within ten seconds: the machine is very busy, for instance."""
STORE_AWAY = "the store did not answer"
"""Why a stage ended that waits until the store answers."""
_MOST_STARTS = 3
"""In a row without a batch: a Python that never starts ends the stage."""
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_STEPS = 2
"""Steps of the clocks within a lookahead."""
_GATHER_MS, _PARTS = 1_000, 5
"""The schedule gathers positions for so long, and for such a part of the express bound, at most."""


@dataclass
class Stage:
    """A running stage; dispatch has a publisher beside its query, and settle is a loop of its own."""

    name: str
    query: Query
    lock: StageLock
    publisher: Publisher | None = None
    work: AtWork | None = None
    again: Callable[[], Stage] | None = None
    starts: int = 1
    clock: TickSource | None = None
    remote: bool = False
    wait: Wait | None = None
    refusal: str | None = None

    @property
    def failure(self) -> str | None:
        """Why the stage ended; None while it runs. One that ends without being asked has failed too."""
        if not self._ended:
            return None
        errors = self._errors
        if self.work is not None and any(memory_ended(str(each)) for each in errors):
            return str(MemoryEnded(self.name, "memory ended", self.work.files, self.work.memory))
        return f"stage {self.name}: {self.refusal or next(iter(errors), 'the query ended')}"

    @property
    def passing(self) -> str | None:
        """Why the stage ended, when a new one can go on; None: it runs, or a new one would end as well.

        Streams keep the columns that they began with. A worker that did not start in time starts later, and a store
        answers later. What the stage committed is in its checkpoint, so starting it again is like starting the process
        again.
        """
        if self.refusal is not None or not self._ended:
            return None
        errors = [str(each) for each in self._errors]
        if any(map(memory_ended, errors)):
            return None
        if any(ColumnsChanged.__name__ in each for each in errors):
            return "its source has other columns now"
        if any(_NO_WORKER in each for each in errors):
            return "a Python worker did not start in time" if self._may_start else None
        away = self.remote and errors and all(no_answer(each) is not None for each in errors)
        return STORE_AWAY if away and not Wait.after(self.wait, self.query).over else None

    @property
    def _errors(self) -> list[BaseException]:
        """What the stage died of: the publisher beside its query, the query, or both."""
        of_query = None if self.query.isActive else self.query.exception()
        errors = [None if self.publisher is None else self.publisher.error, of_query]
        return [each for each in errors if each is not None]

    @property
    def _ended(self) -> bool:
        beside = self.publisher is not None and self.publisher.error is not None
        return self.refusal is not None or beside or not self.query.isActive

    @property
    def _may_start(self) -> bool:
        return self.query.lastProgress is not None or self.starts < _MOST_STARTS

    def restarted(self) -> Stage:
        """A new query in place of one that ended.

        Raises:
            PipelineError: the stage is refused now: a column that it reads is not there any more, for instance.
        """
        starts = 1 if self.query.lastProgress is not None else self.starts + 1
        self.stop()
        if self.again is None:
            return self
        if self.work is not None:
            self.work.check_alone()
        return replace(self.again(), starts=starts)

    def pause_clock(self) -> None:
        """Take no more instants and wait for none, so that the query comes to stand between two batches."""
        if self.clock is not None:
            self.clock.end()

    def stop(self) -> None:
        """Stop the query, then what runs beside it, and give the stage free."""
        self.pause_clock()
        try:
            self.query.stop()
        finally:
            if self.publisher is not None:
                self.publisher.stop()
            self.lock.release()


Body = Ingest | Schedule | Dispatch


def start(warehouse: Warehouse, stage: str, options: Options) -> Stage:
    """Start one stage.

    Raises:
        StageRunning: another process runs it.
        ForeignOwner: its tables were last written from another checkpoint.
        CheckpointBehind, BatchDiffers, TableBehind: tables and checkpoint do not fit.
        SourceBehind: the table that it follows ends before the place where it goes on.
        ClockAhead: the last run was at a time that is still to come.
    """
    bring_up_to_date(warehouse)
    with _batches_for_watermarks(warehouse.spark, options.clock):
        return _start(warehouse, stage, options)


def _start(warehouse: Warehouse, stage: str, options: Options) -> Stage:
    """Start one stage of a warehouse that has all tables and columns."""
    lock = StageLock(stage, f"{warehouse.root}/_checkpoints")
    lock.take()
    publisher: Publisher | None = None
    again = partial(start, warehouse, stage, options)
    # HDFS, which only Spark reaches, has a client that waits by itself.
    remote = Files().local(warehouse.root) is None and Files().reaches(warehouse.root)
    try:
        if stage == SETTLE:
            settle = Settle(warehouse, options.observe)
            check_clock(stage, options.clock, settle.instant)
            settle.watch = options.watch
            return Stage(stage, SettleLoop(settle, warehouse, options.clock), lock, again=again, remote=remote)
        checkpoint = Checkpoint(warehouse.files, warehouse.checkpoint(stage))
        check_clock(stage, options.clock, checkpoint.instant)
        if stage == DISPATCH:
            restore(warehouse, options.settings)
        time, rows, body = _parts(warehouse, stage, options, checkpoint)
        publisher = body.publisher if isinstance(body, Dispatch) else None
        for check in (check_owner, check_batches):
            check(stage, body.sinks.values(), publisher, checkpoint)
        source = SOURCES[stage]
        check_source(stage, source.name, newest(warehouse.files, warehouse.path(source)), checkpoint)
        body.watch = options.watch
        if publisher is not None:
            publisher.watch = options.watch
            publisher.start()
        work = AtWork(warehouse, stage, _called(body), checkpoint)
        query = _write(rows, work, checkpoint, stage, options).start()
        return Stage(stage, query, lock, publisher, work, again, clock=time, remote=remote)
    except BaseException:
        if publisher is not None:
            publisher.stop()
        lock.release()
        raise


def start_all(warehouse: Warehouse, options: Options, stages: Sequence[str] = ALL_STAGES) -> list[Stage]:
    """Start stages in one session, side by side: each waits for the JVM in another place.

    None stays up when one is refused.
    """
    bring_up_to_date(warehouse)
    begun: list[Future[Stage]] = []
    try:
        with _batches_for_watermarks(warehouse.spark, options.clock), ThreadPoolExecutor(len(stages)) as pool:
            begun = [pool.submit(_start, warehouse, stage, options) for stage in stages]
        return [each.result() for each in begun]
    except BaseException:
        stop_all([each.result() for each in begun if each.exception() is None])
        raise


def stop_all(running: list[Stage]) -> None:
    """Stop stages, the last one first."""
    for stage in reversed(running):
        stage.stop()


def _parts(
    warehouse: Warehouse, stage: str, options: Options, checkpoint: Checkpoint
) -> tuple[TickSource, DataFrame, Body]:
    """The clock of a stage, its stream, and what is done with each batch."""
    origin, settings = checkpoint.origin, options.settings
    wakes = _wakes(warehouse, stage, checkpoint, options)
    if stage == INGEST:
        options = taking_in(options)
        clock = ticks(warehouse.spark, options.clock, warehouse.instants(stage), origin.instant, wakes)
        rows = _places(warehouse.spark, warehouse.path(INBOX), clock, origin, settings.max_files, settings.max_bytes)
        take = Ingest(warehouse, checkpoint, options)
        return clock, rows, take
    if stage == SCHEDULE:
        # An instant of the virtual clock is one release, so what came with it is one batch.
        most = settings.max_bytes if isinstance(options.clock, LiveClock) else None
        segments = warehouse.follow(SEGMENTS, origin.position, settings.max_files, most)
        # A state that was never begun holds nothing that could come too soon.
        is_held = CatchUp.of(warehouse).lasts if checkpoint.begun else never
        asking, instants = a_step_ahead(options.clock), warehouse.instants(stage)
        clock = ticks(warehouse.spark, asking, instants, origin.instant, wakes, is_held)
        rows = schedule.releases(
            schedule.of_rebuild(segments, origin.rebuilt), clock.stream(), keys.shards(warehouse.spark)
        )
        return clock, rows, Schedule(warehouse, checkpoint, options.settings, options.observe)
    checkpoint.know_clock()
    give = Dispatch(warehouse, checkpoint, options)
    # What is held has no news in `redelivery` when it may be taken.
    clock = work_ticks(warehouse.spark, options.clock, warehouse.instants(stage), give.has_work, wakes)
    return clock, _places(warehouse.spark, warehouse.path(REDELIVERY), clock, origin, _ALL_FILES), give


def _places(
    spark: SparkSession, path: str, clock: TickSource, origin: Origin, max_files: int, max_bytes: int | None = None
) -> DataFrame:
    """Instants of a clock, and places in the log of a table, as one stream; only an instant is a row.

    Made before the function of the query looks at the table: what changes in between is seen.

    The clock comes first: Spark asks the sources in this order, and who waits for the clock has not asked the table.
    """
    places = PlaceSource(spark, path, origin.position.offset, max_files, max_bytes)
    return clock.stream().union(places.stream())


def taking_in(options: Options) -> Options:
    """The options as ingest needs them: its clock does not run ahead: delays count from when it takes.

    The schedule's does, so what it will ask for has to be near that much earlier, and a step of the clock.
    """
    clock, asking = in_steps(options.clock), a_step_ahead(options.clock)
    if not isinstance(clock, LiveClock) or not isinstance(asking, LiveClock):
        return options
    horizon = options.settings.horizon_ms + asking.lookahead_ms + clock.resolution_ms
    express = options.settings.express_ms
    # The clock of the schedule is past it already.
    express = clock.lookahead_ms // _STEPS if express is None else express
    settings = replace(options.settings, horizon_ms=min(horizon, LONGEST_HORIZON_MS), express_ms=express)
    return replace(options, clock=replace(clock, lookahead_ms=0), settings=settings)


def in_steps(clock: Clock) -> Clock:
    """The clock in steps of half the lookahead, so that batches with nothing but a tick are few.

    What is due within a step is prepared at its begin, and becomes visible in its own time. What ingest takes in is
    stamped with the time at which it does (`Ingest`), and waits for no step.
    """
    if not isinstance(clock, LiveClock):
        return clock
    return replace(
        clock, resolution_ms=max(clock.resolution_ms, min(clock.lookahead_ms // _STEPS, clock.max_step_ms, MINUTE_MS))
    )


def a_step_ahead(clock: Clock) -> Clock:
    """The clock of the schedule. An instant is its watermark from the batch after it on, so it is told a step early.

    Then the batch of a tick releases what is due before the tick before. A batch of its own for each watermark, as a
    replay has it, costs as much as the one that brought the instant (decision 0040).
    """
    clock = in_steps(clock)
    if not isinstance(clock, LiveClock):
        return clock
    return replace(clock, lookahead_ms=min(clock.lookahead_ms + clock.resolution_ms, DAY_MS))


def _called(body: Body) -> Callable[[DataFrame, int], None]:
    """What the query calls. Ingest and dispatch read what is new themselves, and need the session of the query."""
    return body if isinstance(body, Schedule) else lambda rows, batch_id: body(rows.sparkSession, batch_id)


def _write(rows: DataFrame, body: AtWork, checkpoint: Checkpoint, stage: str, options: Options) -> DataStreamWriter:
    writer = rows.writeStream.queryName(f"delayline-{stage}").foreachBatch(body)
    writer = writer.option("checkpointLocation", checkpoint.path).outputMode("append")
    return writer if options.trigger is None else writer.trigger(processingTime=options.trigger)


def _batches_for_watermarks(spark: SparkSession, clock: Clock) -> AbstractContextManager[None]:
    """Queries that are started meanwhile run a batch without rows when their watermark has moved, or none if live."""
    return set_meanwhile(spark, {_NO_DATA: str(not isinstance(clock, LiveClock)).lower()})


def _wakes(warehouse: Warehouse, stage: str, checkpoint: Checkpoint, options: Options) -> Wakes:
    """What wakes a stage: news in the log of its source, and in that of its own batches.

    A batch may have left something for the next one, but for those of dispatch, which take all that is there. The
    schedule gathers (decision 0056). What settle puts back may be due sooner than the rest, and the log of `cursors`
    tells of it at once.
    """
    source, cursors = (_folder(f"{warehouse.path(table)}/_delta_log") for table in (SOURCES[stage], CURSORS))
    places = [source] if stage == DISPATCH else [source, _folder(f"{checkpoint.path}/offsets")]
    here = Files().local(warehouse.root) is not None
    gather_ms = _gathering_ms(options) if stage == SCHEDULE else 0
    return Wakes([cursors], places, gather_ms, here) if gather_ms else Wakes(places, here=here)


def _folder(path: str) -> str:
    """A folder as this machine names it, if it is here."""
    found = Files().local(path)
    return path if found is None else str(found)


def _gathering_ms(options: Options) -> int:
    """How long positions for the state may wait, so that the schedule has fewer batches, ms.

    What ingest gives to the state is not due before the bound of its express way has passed; a part of that is spent.
    """
    express = taking_in(options).settings.express_ms or 0
    return min(express // _PARTS, _GATHER_MS) if isinstance(options.clock, LiveClock) else 0
