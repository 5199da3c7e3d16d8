"""Rebuild: a stage goes on from what the tables say, on a new checkpoint, as if nothing had happened.

One batch job, with the stage stopped (and ingest, for the schedule). It finishes a batch that was torn apart, says
where the new checkpoint begins (`Origin`), and moves the old one aside. Killed anywhere, it is called again. A
warehouse without a session is rebuilt in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline.config.lazyspark import F
from pipeline.config.options import Options, nobody
from pipeline.config.stages import INGEST, SCHEDULE, SETTLE
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, ORIGIN, Origin
from pipeline.delta.logs.entries import newest
from pipeline.delta.tables import bring_up_to_date, segment_ms
from pipeline.delta.warehouse import Warehouse, frame_of
from pipeline.delta.writing.batchcommits import last_commits
from pipeline.delta.writing.oncewriter import Sink, last_commit
from pipeline.dispatch.release_spark import positions
from pipeline.schedule import stage as schedule
from pipeline.service import pending_local, takeover
from pipeline.service.clock import given
from pipeline.settle.stage import Settle
from pipeline.settle.undone import undone
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.incarnations import Incarnation, Name, Subscription, alive, audiences
from pipeline.subscriptions.markers import IngestMemory, Markers
from pipeline.subscriptions.settled import SettledMark, read_mark
from pipeline.worker.audience import Audience
from pipeline.worker.encode import ROW, Encoder
from pipeline.worker.express import Express
from schemas import CLOSED, MESSAGES, REDELIVERY, ROUND, SEGMENTS, Table
from state.units import EPOCH, Ms

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

_ALIKE = ("subscription", "life", "tick_ms", "redelivery_count", "round", "cause")
"""What the positions have in common that wait in one index to come again; with their topic."""


_NAMED = ("topic", "subscription", "life", "ledger_id", "first_entry", "last_entry", "redelivery_count")
"""What names a run of a release."""


@dataclass(frozen=True)
class Holding:
    """What the tables hold at fixed versions, of what concerns the schedule.

    Attributes:
        segments: version of `segments`.
        memory: what ingest has addressed: ledgers, due times, subscriptions.
        messages: the log, less what is settled.
        redelivery: what was released.
        retries: rows of `segments` that say what is to come again.
        closed: redeliveries that are not to be made.
        mark: below it all was released, and rows that say so may be deleted.
    """

    segments: int
    memory: IngestMemory
    messages: DataFrame
    redelivery: DataFrame
    retries: DataFrame
    closed: DataFrame
    mark: SettledMark

    @property
    def lives(self) -> dict[Name, Incarnation]:
        """Who listens."""
        return alive(self.memory.lives)


def rebuild(
    warehouse: Warehouse, stage: str, options: Options, *, latest: Ms | None = None, whole: bool = False
) -> Origin:
    """Prepare a new checkpoint for a stage and take over its tables; give where it begins.

    The stage must be stopped, for the schedule ingest too. Nothing starts here. The old checkpoint folder stays
    beside the new one, under another name. With ingest the schedule is rebuilt, too, when `messages` holds what
    `segments` does not address: somebody copied or restored the two at different times.

    Args:
        warehouse: whose stage it is.
        stage: which one.
        options: as for a start.
        latest: the clock begins at this instant at the latest, ms UTC; None: where it was.
        whole: all that dispatch has prepared is known to be there, so that it is not looked for.

    Raises:
        StageRunning: a stage that must be stopped runs.
        SourceBehind: dispatch has read more of `redelivery` than is there.
        SessionNeeded: the warehouse has no session, and only Spark can do it.
    """
    bring_up_to_date(warehouse)
    stages = (stage, SCHEDULE) if stage == INGEST and takeover.unaddressed(warehouse) else (stage,)
    with ExitStack() as held:
        for each in {INGEST, *stages} if SCHEDULE in stages else stages:
            held.enter_context(StageLock(each, f"{warehouse.root}/_checkpoints").held())
        origin, *_ = [_prepare(warehouse, each, options, latest, whole=whole) for each in stages]
        return origin


def reset_settle(warehouse: Warehouse, latest: Ms) -> None:
    """Let settle, which needs no rebuild, go on at `latest` (ms UTC) when its last batch was at a later time.

    Raises:
        StageRunning: it runs.
    """
    bring_up_to_date(warehouse)
    with StageLock(SETTLE, f"{warehouse.root}/_checkpoints").held():
        Settle(warehouse, nobody).reset_clock(latest)


def _prepare(warehouse: Warehouse, stage: str, options: Options, latest: Ms | None, *, whole: bool) -> Origin:
    if stage == INGEST:
        origin = takeover.take_over_ingest(warehouse, options)
    elif stage == SCHEDULE:
        origin = _rebuild_schedule(warehouse, options, latest)
    else:
        origin = takeover.take_over_dispatch(warehouse, options, whole=whole)
    if latest is not None:
        origin = replace(origin, instant=min(origin.instant, latest))
    _place(warehouse, stage, origin, options)
    return origin


def _rebuild_schedule(warehouse: Warehouse, options: Options, latest: Ms | None) -> Origin:
    """Write what is pending as rows that only the new checkpoint reads."""
    last, taken = last_commits(warehouse, SCHEDULE).values(), last_commit(warehouse, SEGMENTS, INGEST)
    known = [Ms(commit.note["instant"]) for commit in last]
    known += [Ms(taken.note["now"])] if taken is not None else []
    instant = max([*known, *given(warehouse.instants(SCHEDULE))[-1:]], default=EPOCH)
    write = _write_pending_here if warehouse.session is None else _write_pending
    number = write(warehouse, options, instant if latest is None else min(instant, latest))
    options.observe("rebuild.segments", number)
    # One millisecond back: the first tick is the instant itself, and releases what should have been released by then.
    return Origin(number, EVERYTHING_BEFORE, Ms(max(0, instant - 1)), number, takeover.owners(last))


def _write_pending(warehouse: Warehouse, options: Options, instant: int) -> int:
    """One commit of `segments`; give the rebuild's number, which is the version that follows what it has read."""
    holding = _holding(warehouse, options.settings.driver_rows)
    number = holding.segments + 1
    segment = segment_ms(warehouse)
    rows = pending_rows(holding, segment, instant)
    if (again := retry_rows(holding, segment, instant)) is not None:
        rows = rows.unionByName(again)
    sink = Sink(warehouse, SEGMENTS, "rebuild")
    sink.append(rows.withColumn("batch_id", F.lit(number)), f"rebuild-{number}", number, {"instant": instant})
    return number


def _write_pending_here(warehouse: Warehouse, options: Options, instant: int) -> int:  # noqa: ARG001 - as above
    """The same in this process."""
    files = warehouse.files
    version = newest(files, warehouse.path(SEGMENTS))
    memory = IngestMemory.addressed(Markers(warehouse, version))
    lives, again = alive(memory.lives), _retries(undone(warehouse))
    # No maintenance runs, so the mark is as old as the tables.
    mark, segment, number = read_mark(files, warehouse.root), segment_ms(warehouse), version + 1
    within = pending_local.Range(version, memory.loaded, memory.next_ledger, lives, again, mark, segment, instant)

    def pieces() -> Iterator[pa.Table]:
        for make in (pending_local.pending_pieces, pending_local.retry_pieces):
            for piece in make(warehouse, within):
                yield pending_local.of_batch(piece, number)

    sink = Sink(warehouse, SEGMENTS, "rebuild")
    sink.append(pieces(), f"rebuild-{number}", number, {"instant": instant})
    return number


def _holding(warehouse: Warehouse, most: int) -> Holding:
    """The tables as they are. What is read of one, up to so many rows, is read here and now."""
    files = warehouse.files

    def fixed(table: Table, *columns: str) -> DataFrame:
        return frame_of(warehouse, table, columns, most=most)

    version = newest(files, warehouse.path(SEGMENTS))
    messages = fixed(MESSAGES, "topic", "ledger_id", "entry_id", "due_time")
    redelivery, closed = fixed(REDELIVERY, *_NAMED, "round"), fixed(CLOSED, *_NAMED)
    retries = frame_of(warehouse, SEGMENTS, ROW.names, version, _retries(undone(warehouse)), most)
    memory = IngestMemory.addressed(Markers(warehouse, version))
    # Read after the tables: whatever maintenance has deleted from them by now is below this mark.
    mark = read_mark(files, warehouse.root)
    return Holding(version, memory, messages, redelivery, retries, closed, mark)


def _retries(again: tuple[int, int] | None) -> str:
    """Says in SQL of rows of `segments` that they are of what comes again; but for some batches of settle."""
    of_kind = f"kind = '{schedule.RETRY}'"
    return of_kind if again is None else f"{of_kind} AND NOT batch_id BETWEEN {again[0]} AND {again[1]}"


def pending_rows(holding: Holding, segment: int, instant: int) -> DataFrame:
    """Rows of `segments`, less `batch_id`: what was addressed to each subscription and is not released yet.

    What was addressed is known without reading chunks: all ledgers that markers name as used, due before the instant
    up to which they say that parked messages were loaded. Payloads are not read.

    Args:
        holding: the tables.
        segment: span of a segment, ms.
        instant: what is due already goes into the segment of this instant (ms).
    """
    memory, lives, listeners = holding.memory, holding.lives, _listeners(holding)
    loaded = F.col("due_time") < F.timestamp_millis(F.lit(memory.loaded))
    taken_in = _unsettled(holding.messages, holding).where(loaded & (F.col("ledger_id") < memory.next_ledger))
    taken_in = taken_in.select("topic", "ledger_id", "entry_id", F.unix_millis("due_time").alias("due_ms"))
    addressed = taken_in.join(listeners, "topic").where("ledger_id >= since")
    released = positions(holding.redelivery.where(f"{ROUND} = 0")).withColumnRenamed("first_entry", "entry_id")
    keys = ["topic", "subscription", "life", "ledger_id", "entry_id"]
    pending = addressed.join(released.select(*keys), keys, "left_anti")
    places = (F.col("subscription").alias("kind"), "topic", "ledger_id", "entry_id", "due_ms")
    heard = {
        (name, topic): audiences([Subscription(topic, name, life.tick_ms, earliest=False)], lives)[topic]
        for (topic, name), life in lives.items()
    }
    encoded = pending.select(*places).mapInArrow(Encoder(heard, segment, instant).__call__, ROW.struct)
    return encoded.withColumn("kind", F.lit(schedule.REBUILD))


def retry_rows(holding: Holding, segment: int, instant: int) -> DataFrame | None:
    """Rows of `segments` for what is to come again, less what came again or is closed; None: nothing was put back.

    Chunks are read here: nothing else says when it comes again. Each subscription, count, round and cause has its own.
    """
    named = F.to_json(F.array(*(F.col(name).cast("string") for name in _ALIKE))).alias("kind")
    heard = {(row["kind"], row["topic"]): _one(row) for row in _asked(holding.retries).select("*", named).collect()}
    if not heard:
        return None
    waiting = holding.retries.select(*ROW.names).mapInArrow(Express(0, 0).__call__, REDELIVERY.schema)
    waiting = waiting.join(_listeners(holding), ["topic", "subscription", "life"], "left_semi")
    pending = _unsettled(positions(waiting), holding)
    keys = ["topic", "subscription", "life", "ledger_id", "first_entry", "redelivery_count"]
    pending = pending.join(positions(holding.closed).select(*keys), keys, "left_anti")
    number = F.expr(ROUND).alias("number")
    released = positions(holding.redelivery.where(f"{ROUND} > 0")).select(*keys, number)
    pending = pending.select("*", number).join(released, [*keys, "number"], "left_anti")
    # Batches of settle that a copy did not know have put the same there as those that took their place.
    pending = pending.dropDuplicates([*keys, "number"])
    due = F.unix_millis("due_time").alias("due_ms")
    places = pending.select(named, "topic", "ledger_id", F.col("first_entry").alias("entry_id"), due)
    encoded = places.mapInArrow(Encoder(heard, segment, instant).__call__, ROW.struct)
    texts = F.from_json("kind", "array<string>")
    count, number, cause = (texts[_ALIKE.index(name)] for name in _ALIKE[-3:])
    numbers = {"redelivery_count": count.cast("bigint"), "round": number.cast("bigint")}
    return encoded.withColumns({**numbers, "cause": cause, "kind": F.lit(schedule.REBUILD)})


def _asked(retries: DataFrame) -> DataFrame:
    """Whose positions come again, how often and why; a row for each."""
    each = retries.select("*", F.explode("subscriptions").alias("each"))
    return each.select("topic", F.col("each.name").alias("subscription"), "each.*", *_ALIKE[-3:]).distinct()


def _one(row: Row) -> Audience:
    """One subscription, to all ledgers."""
    return Audience((0,), ((row["subscription"], row["life"], row["tick_ms"]),))


def _listeners(holding: Holding) -> DataFrame:
    """Who listens, since which ledger."""
    rows = [(*name, life.number, life.since) for name, life in sorted(holding.lives.items())]
    columns = "topic string, subscription string, life bigint, since bigint"
    return F.broadcast(holding.messages.sparkSession.createDataFrame(rows, columns))


def _unsettled(rows: DataFrame, holding: Holding) -> DataFrame:
    """Rows with a due time that are not below the mark."""
    return rows.where(f"NOT {holding.mark.covers('due_time')}")


def _place(warehouse: Warehouse, stage: str, origin: Origin, options: Options) -> None:
    """Move the old checkpoint aside, then write where the new one begins. In between the stage refuses to start."""
    files, folder = warehouse.files, warehouse.checkpoint(stage)
    number = next(n for n in range(1, 1_000_000) if not files.exists(f"{folder}.aside-{n}"))
    files.move(folder, f"{folder}.aside-{number}")
    options.observe("rebuild.aside", number)
    files.write(f"{folder}/{ORIGIN}", origin.dumps())
