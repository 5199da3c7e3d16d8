"""Ingest, dispatch and settle as they are, on a local disk and without a JVM; the schedule is a list.

What these stages do with small batches they do in this process, and what they ask of a session there is next to
nothing: `Session` answers it. A stage that needs Spark after all fails, so nothing is left out unnoticed. Each call
does one batch. A stage may die after any step that it notes; the next call begins it anew from what the tables hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from threading import Lock
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from pipeline.config.options import Observer, nobody
from pipeline.config.settings import Settings
from pipeline.config.stages import SCHEDULE
from pipeline.config.timeline import Timeline
from pipeline.delta import deltars
from pipeline.delta.logs.entries import newest
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.offsets import EVERYTHING_BEFORE, Position
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.restore import restore
from pipeline.dispatch.stage import Dispatch
from pipeline.ingest.stage import Ingest
from pipeline.settle.sources import Source
from pipeline.settle.stage import Settle
from pipeline.storage.files import Files
from pipeline.storage.hadoop import HadoopFiles
from pipeline.worker.unpack import RUN
from schemas import INBOX, REDELIVERY, SEGMENTS, Table
from state.chunk import Chunk
from tests.support.stream import Killed, empty_warehouse

NO_CHECKPOINTS = {"foreign_owner", "clock_ahead"}
"""What the doctor finds here at all times: there are no checkpoints of Spark's, and the time is one still to come."""
_SEGMENT_MS = 300_000
_LIVE = Timeline(live=False)


class _Gate:
    """Stands for the lock that transactions of Delta's in the JVM take: there are none."""

    def __init__(self) -> None:
        self._lock = Lock()

    def snapshotLock(self) -> _Gate:  # noqa: N802 - Delta's name
        """The lock of a table."""
        return self

    def lock(self) -> None:
        """Take it."""
        self._lock.acquire()

    def unlock(self) -> None:
        """Give it back."""
        self._lock.release()


class _Hadoop:
    def hadoopConfiguration(self) -> None:  # noqa: N802 - Hadoop's name
        """Nobody reads it."""


class _Context:
    master = "local[1]"
    _gateway = None
    _jsc = _Hadoop()


class Session:
    """What stages ask of a session while they need no Spark."""

    sparkContext = _Context()  # noqa: N815 - Spark's name


@contextmanager
def no_jvm() -> Iterator[None]:
    """Meanwhile paths without a scheme are of this machine, and no transaction of Delta's has to be waited for."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(HadoopFiles, "here", lambda _: Path.cwd()))
        patches.enter_context(patch.object(TableLog, "_log", property(lambda _: _Gate())))
        yield


@dataclass
class Batches:
    """The checkpoint of a stage: where its batches end, and which one is to be done next."""

    owner: str
    ends: list[Position] = field(default_factory=list)
    done: int = 0

    def position(self, batch_id: int) -> Position:
        """The end of a batch."""
        return self.ends[batch_id]

    def start(self, batch_id: int) -> Position:
        """The start of a batch."""
        return self.ends[batch_id - 1] if batch_id else Position(0, 0, EVERYTHING_BEFORE)

    def wrote(self, table: str, number: int) -> None:
        """Nobody sets a table back."""


@dataclass(frozen=True)
class Placed:
    """A run of the index, for one subscription: topic, name, life and tick of that come first."""

    of: tuple[str, str, int, int]
    due: int
    ledger: int
    first: int
    last: int
    count: int
    number: int | None
    cause: str


class Schedule:
    """The index as a list: what `segments` hold, until it is due."""

    def __init__(self, session: Any, warehouse: Warehouse) -> None:  # noqa: ANN401 - stands for Spark's
        """Nothing is read yet."""
        self._source = Source(session, warehouse, SEGMENTS, SEGMENTS.schema.names)
        self._files, self._path = Files(), warehouse.path(SEGMENTS)
        self._sink = Sink(session, warehouse, REDELIVERY, SCHEDULE)
        self._seen, self._batch = -1, 0
        self.waiting: list[Placed] = []

    @property
    def seen(self) -> int:
        """The version of `segments` up to which it has read."""
        return max(0, self._seen)

    def step(self, instant: int) -> None:
        """Take in what is new, and release what is due."""
        last = newest(self._files, self._path)
        for _, rows in self._source.versions(self._seen, last):
            self.waiting += [each for row in rows.to_pylist() for each in _placed(row)]
        self._seen = last
        due = [each for each in self.waiting if each.due <= instant]
        self.waiting = [each for each in self.waiting if each.due > instant]
        if due:
            self._batch += 1
            rows = pa.Table.from_pylist([_row(each, instant, self._batch) for each in due], schema=RUN)
            self._sink.put(rows, SCHEDULE, self._batch, {})


def _placed(row: dict[str, Any]) -> Iterator[Placed]:
    for who in row["subscriptions"] if row["chunk"] is not None else ():
        of = row["topic"], who["name"], who["life"], who["tick_ms"]
        told = row["redelivery_count"] or 0, row["round"], row["cause"] or "due"
        runs = Chunk.from_bytes(row["chunk"]).runs()
        columns = (runs.due, runs.ledger_ids, runs.first_entries, runs.last_entries)
        for run in zip(*(each.tolist() for each in columns), strict=True):
            due, ledger, first, last = run
            yield Placed(of, due, ledger, first, last, *told)


def _row(each: Placed, instant: int, batch: int) -> dict[str, Any]:
    topic, name, life, tick_ms = each.of
    return {
        "topic": topic,
        "subscription": name,
        "life": life,
        "tick_ms": tick_ms,
        "ledger_id": each.ledger,
        "first_entry": each.first,
        "last_entry": each.last,
        "due_time": each.due * 1_000,
        "message_due": each.due * 1_000,
        "released_at": instant * 1_000,
        "redelivery_count": each.count,
        "round": each.number,
        "cause": each.cause,
        "batch_id": batch,
    }


class Stages:
    """The stages of one warehouse, each of which may die by itself."""

    def __init__(self, root: str, settings: Settings | None = None, observe: Observer = nobody) -> None:
        """Make the warehouse; begin the stages when they are called. Who observes may let one die, too."""
        copytree(empty_warehouse(_SEGMENT_MS), root)
        self.root, self.warehouse = root, Warehouse(root)
        self.settings, self._told = settings or Settings(), observe
        self._session: Any = Session()
        self._books = {name: Batches(name) for name in ("ingest", "dispatch")}
        self._bodies: dict[str, Any] = {}
        self._fatal: str | None = None
        self.instant = 0
        self.steps: list[str] = []
        self.schedule = Schedule(self._session, self.warehouse)

    def die_after(self, step: str | None) -> None:
        """The stage that notes this step next dies."""
        self._fatal = step

    def ingest(self, *rows: dict[str, Any]) -> bool:
        """Append rows to the inbox, and take a batch; whether that was done."""
        if rows:
            deltars.append(self.root, INBOX, deltars.rows_of(INBOX, list(rows)))
        return self._batch("ingest", INBOX)

    @property
    def has_ingest(self) -> bool:
        """Whether there is something for a batch of ingest: one that died, rows, or a later instant."""
        book = self._books["ingest"]
        return self._follows(book, INBOX) or book.start(book.done).instant < self.instant

    @property
    def has_dispatch(self) -> bool:
        """Whether there is something for a batch of dispatch: one that died, rows, or what it held and may let go."""
        return self._follows(self._books["dispatch"], REDELIVERY) or bool(self._body("dispatch").has_work(self.instant))

    def _follows(self, book: Batches, source: Table) -> bool:
        """Whether a batch of a stage died, or its source has rows behind the last one."""
        if book.done < len(book.ends):
            return True
        return newest(Files(), self.warehouse.path(source)) >= book.start(book.done).version

    def dispatch(self) -> bool:
        """Take a batch; whether that was done."""
        return self._batch("dispatch", REDELIVERY)

    def released(self) -> Iterator[dict[str, Any]]:
        """The rows of `redelivery` of the batch of dispatch that was done last, or that died."""
        book = self._books["dispatch"]
        last = book.done if book.done < len(book.ends) else book.done - 1
        if last < 0:
            return
        begin, end = (each.version for each in (book.start(last), book.position(last)))
        source = Source(self._session, self.warehouse, REDELIVERY, REDELIVERY.schema.names)
        for _, rows in source.versions(begin - 1, end - 1):
            yield from rows.to_pylist()

    def settle(self) -> bool:
        """Take batches until there is nothing for one; whether that was done."""
        self.steps = []
        try:
            while self._body("settle").step(self.instant, patient=False):
                pass
        except Killed:
            self._bodies.pop("settle", None)
            return False
        return True

    def begun(self, stage: str) -> int:
        """The version of its source at which the last batch of a stage began that is done."""
        if stage == SCHEDULE:
            return self.schedule.seen
        book = self._books[stage]
        return book.start(book.done - 1).version if book.done else 0

    def restart(self, stage: str) -> None:
        """Begin a stage anew from what the tables hold, when it is called next."""
        self._bodies.pop(stage, None)

    def _batch(self, name: str, follows: Table) -> bool:
        """Do a batch, or the one that died again; it ends where the table ended when it was begun."""
        book, self.steps = self._books[name], []
        if book.done == len(book.ends):
            end = newest(Files(), self.warehouse.path(follows)) + 1
            book.ends.append(Position(self.instant, end, EVERYTHING_BEFORE))
        try:
            self._body(name)(self._session, book.done)
        except Killed:
            self._bodies.pop(name, None)
            return False
        book.done += 1
        return True

    def _body(self, name: str) -> Any:  # noqa: ANN401 - three kinds
        if name not in self._bodies:
            self._bodies[name] = self._begun(name)
        return self._bodies[name]

    def _begun(self, name: str) -> Any:  # noqa: ANN401 - as above
        session = self._session
        if name == "settle":
            return Settle(session, self.warehouse, self._observe)
        book = self._books[name]
        parts = (session, self.warehouse, book, self.settings, _LIVE, self._observe)
        if name == "ingest":
            return Ingest(*parts)
        restore(session, self.warehouse, self.settings, _LIVE)
        return Dispatch(*parts)

    def _observe(self, step: str, batch: int) -> None:
        self.steps.append(step)
        self._told(step, batch)
        if step == self._fatal:
            self._fatal = None
            raise Killed(f"after {step} of batch {batch}")
