"""The stages as they are, on a local disk and without a JVM; Spark's part in the schedule is played here.

What these stages do with small batches they do in this process, and their warehouse has no session. A stage that needs
Spark after all fails, so nothing is left out unnoticed. Each call does one batch. A stage may die after any step that
it notes; the next call begins it anew from what the tables hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

from pipeline.config.options import Observer, Options, nobody
from pipeline.config.settings import Clock, Settings, VirtualClock
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.delta import deltars
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, SOURCES, Position
from pipeline.delta.logs.entries import newest
from pipeline.delta.tables import check_restored
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.publisher import Publisher
from pipeline.dispatch.restore import restore
from pipeline.dispatch.stage import Dispatch
from pipeline.ingest.stage import Ingest
from pipeline.service.run import taking_in
from pipeline.service.startup import check_batches, check_clock, check_owner, check_source
from pipeline.settle.sources import Source
from pipeline.settle.stage import Settle
from pipeline.storage.files import Files
from schemas import INBOX, REDELIVERY
from state.units import Ms
from tests.support.batches import Batches, Schedule
from tests.support.stream import Killed, empty_warehouse

VIRTUAL = VirtualClock()
"""The clock of most tests: stages have the instants that they are given."""
_SEGMENT_MS = 300_000


class Stages:
    """The stages of one warehouse, each of which may die by itself."""

    def __init__(
        self, root: str, settings: Settings | None = None, observe: Observer = nobody, clock: Clock = VIRTUAL
    ) -> None:
        """Make the warehouse, if it is not there; begin the stages when they are called.

        Who observes may let one die, too.
        """
        if not Path(root).exists():
            copytree(empty_warehouse(_SEGMENT_MS), root)
        self.root, self.warehouse = root, Warehouse(root)
        self.settings, self._observe_step, self.clock = settings or Settings(), observe, clock
        self._bodies: dict[str, Any] = {}
        self._books: dict[str, Batches] = {}
        self._fatal: str | None = None
        self.instant = 0
        self.steps: list[str] = []

    def die_after(self, step: str | None) -> None:
        """The stage that notes this step next dies."""
        self._fatal = step

    @property
    def schedule(self) -> Schedule:
        """The index."""
        found: Schedule = self._body(SCHEDULE)
        return found

    def release(self) -> bool:
        """Let the schedule take in what is new, and release what is due; whether that was done."""
        self.steps = []
        try:
            self.schedule.step(self.instant)
        except Killed:
            self._bodies.pop(SCHEDULE, None)
            return False
        return True

    def ingest(self, *rows: dict[str, Any]) -> bool:
        """Append rows to the inbox, and take a batch; whether that was done."""
        if rows:
            deltars.append(self.root, INBOX, deltars.rows_of(INBOX, list(rows)))
        return self._batch(INGEST)

    @property
    def has_ingest(self) -> bool:
        """Whether there is something for a batch of ingest: one that died, rows, or a later instant."""
        book = self._book(INGEST)
        return self._follows(INGEST) or book.start(book.next).instant < self.instant

    @property
    def has_dispatch(self) -> bool:
        """Whether there is something for a batch of dispatch: one that died, rows, or what it held and may let go."""
        return self._follows(DISPATCH) or bool(self._body(DISPATCH).has_work(self.instant))

    def _follows(self, stage: str) -> bool:
        """Whether a batch of a stage died, or its source has rows behind the last one."""
        book = self._book(stage)
        return book.died or newest(Files(), self.warehouse.path(SOURCES[stage])) >= book.start(book.next).version

    def dispatch(self) -> bool:
        """Take a batch; whether that was done."""
        return self._batch(DISPATCH)

    def released(self) -> Iterator[dict[str, Any]]:
        """The rows of `redelivery` of the batch of dispatch that was done last, or that died."""
        book = self._book(DISPATCH)
        last = book.next if book.died else book.next - 1
        if last < 0:
            return
        begin, end = (each.version for each in (book.start(last), book.position(last)))
        source = Source(self.warehouse, REDELIVERY, REDELIVERY.schema.names)
        for _, rows in source.versions(begin - 1, end - 1):
            yield from rows.to_pylist()

    def settle(self) -> bool:
        """Take batches until there is nothing for one; whether that was done."""
        self.steps = []
        try:
            while self._body(SETTLE).step(self.instant, patient=False):
                pass
        except Killed:
            self._bodies.pop(SETTLE, None)
            return False
        return True

    def restart(self, stage: str) -> None:
        """Begin a stage anew from what tables and checkpoint hold, when it is called next."""
        self._bodies.pop(stage, None)
        self._books.pop(stage, None)

    def restart_all(self) -> None:
        """Begin all of them anew."""
        for stage in ALL_STAGES:
            self.restart(stage)

    def start(self, stage: str) -> None:
        """Begin a stage, if it has not begun.

        Raises:
            PipelineError: it is refused.
        """
        self._body(stage)

    def last_instant(self, stage: str) -> int:
        """The last instant of a query's clock, ms UTC; 0 before the first one."""
        return self._body(SCHEDULE).book.instant if stage == SCHEDULE else self._book(stage).instant

    def ahead(self, stage: str) -> int:
        """The instant at which a stage stands that may not have begun, ms UTC."""
        if stage == SETTLE:
            return Settle(self.warehouse, nobody).instant
        return Batches(self.warehouse, stage).instant

    def publish(self) -> bool:
        """Make visible what is prepared and due, as the publisher does beside the batches; whether that was done."""
        try:
            self._body(DISPATCH).publisher.publish_due()
        except Killed:
            self._bodies.pop(DISPATCH, None)
            return False
        return True

    def _batch(self, name: str) -> bool:
        """Do a batch, or the one that died again; it ends where the table ended when it was begun."""
        self.steps = []
        book = self._book(name)
        if not book.died:
            begin, end = book.start(book.next), newest(Files(), self.warehouse.path(SOURCES[name])) + 1
            place = max(begin.offset, (end, EVERYTHING_BEFORE))
            book.plan(Position(Ms(max(begin.instant, self.instant)), *place))
        try:
            self._body(name)(None, book.next)
        except Killed:
            self._bodies.pop(name, None)
            return False
        book.commit()
        return True

    def _book(self, name: str) -> Batches:
        if name not in self._books:
            self._books[name] = Batches(self.warehouse, name)
        return self._books[name]

    def _body(self, name: str) -> Any:  # noqa: ANN401 - four kinds
        """A stage that runs, or a new one."""
        if name not in self._bodies:
            self._bodies[name] = self._begun(name)
        return self._bodies[name]

    def _begun(self, name: str) -> Any:  # noqa: ANN401 - as above
        """A stage as `pipeline.service.run.start` begins it.

        Raises:
            PipelineError: it is refused.
        """
        check_restored(Files(), self.warehouse)
        if name == SETTLE:
            settle = Settle(self.warehouse, self._observe)
            check_clock(name, self.clock, settle.instant)
            return settle
        if name == SCHEDULE:
            schedule = Schedule(self.warehouse, self._observe)
            self._check(name, schedule.book, schedule.sinks.values())
            return schedule
        book = self._book(name)
        check_clock(name, self.clock, book.instant)
        options = Options(self.clock, self.settings, observe=self._observe)
        if name == INGEST:
            ingest = Ingest(self.warehouse, book, taking_in(options))
            self._check(name, book, ingest.sinks.values())
            return ingest
        restore(self.warehouse, self.settings)
        dispatch = Dispatch(self.warehouse, book, options)
        self._check(name, book, dispatch.sinks.values(), dispatch.publisher)
        return dispatch

    def _check(self, name: str, book: Batches, sinks: Collection[Sink], publisher: Publisher | None = None) -> None:
        """Whether tables and checkpoint fit."""
        check_clock(name, self.clock, book.instant)
        check_owner(name, sinks, publisher, book)
        check_batches(name, sinks, publisher, book)
        source = SOURCES[name]
        check_source(name, source.name, newest(Files(), self.warehouse.path(source)), book)

    def _observe(self, step: str, batch: int) -> None:
        self.steps.append(step)
        self._observe_step(step, batch)
        if step == self._fatal:
            self._fatal = None
            raise Killed(f"after {step} of batch {batch}")
