"""The stages as they are, without a JVM: their small batches are done in this process, and the index lies in a file.

A stage that needs Spark after all fails: the warehouse has no session. Each call does what there is to do at the
instant that the stages were given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pipeline.config.options import Observer, Options, nobody
from pipeline.config.settings import Clock, Settings, VirtualClock
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, SOURCES, Position
from pipeline.delta.logs.entries import newest
from pipeline.delta.tables import check_tables
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.publisher import Publisher
from pipeline.dispatch.restore import restore
from pipeline.dispatch.stage import Dispatch
from pipeline.ingest.stage import Ingest
from pipeline.planner.planner import Planner
from pipeline.service.run import taking_in
from pipeline.service.startup import check_batches, check_clock, check_owner, check_source
from pipeline.settle.stage import Settle
from pipeline.testing.batches import Batches
from pipeline.testing.schedule import Schedule
from schemas import SUBSCRIPTIONS, Table
from state.units import Ms

VIRTUAL = VirtualClock()
"""The stages have the instants that they are given."""


class Stages:
    """The stages of one warehouse. One begins when it is called, from what tables and checkpoint hold.

    Attributes:
        root: the folder of the warehouse.
        warehouse: the warehouse, without a session.
        settings: of stages that begin from now on.
        clock: by which stages are allowed to begin; their instants are given.
        instant: the time, ms UTC.
    """

    def __init__(
        self, root: str, settings: Settings | None = None, observe: Observer = nobody, clock: Clock = VIRTUAL
    ) -> None:
        self.root, self.warehouse = root, Warehouse(root)
        self.settings, self.clock, self._observe = settings or Settings(), clock, observe
        self._bodies: dict[str, Any] = {}
        self._books: dict[str, Batches] = {}
        self.instant, self._registry = 0, -1
        self._planner = self._new_planner()

    @property
    def schedule(self) -> Schedule:
        """The index."""
        schedule: Schedule = self._body(SCHEDULE)
        return schedule

    def plan(self) -> bool:
        """Plan what recurs; whether there was anything to do."""
        worked = list[bool]()
        return self._does(INGEST, lambda: worked.append(self._planner.step())) and worked[0]

    def ingest(self) -> bool:
        """Take a batch of ingest; whether that was done."""
        return self._does(INGEST, lambda: self._batch(INGEST))

    def release(self) -> bool:
        """Let the schedule take in what is new, and release what is due; whether that was done."""
        return self._does(SCHEDULE, lambda: self.schedule.step(self.instant))

    def dispatch(self) -> bool:
        """Take a batch of dispatch; whether that was done."""
        return self._does(DISPATCH, lambda: self._batch(DISPATCH))

    def publish(self) -> bool:
        """Make visible what is prepared and due, as the publisher does beside the batches; whether that was done."""

        def due() -> None:
            self._body(DISPATCH).publisher.publish_due()

        return self._does(DISPATCH, due)

    def settle(self) -> bool:
        """Take batches of settle until there is nothing for one; whether that was done."""

        def batches() -> None:
            while self.settle_once():
                pass

        return self._does(SETTLE, batches)

    def settle_once(self) -> bool:
        """Take a batch of settle, when there is anything for one; whether there was."""
        return bool(self._body(SETTLE).step(self.instant, patient=False))

    def work(self) -> bool:
        """Let all stages do what there is to do at the instant; whether there was anything."""
        worked = False
        while self._round():
            worked = True
        return worked

    def _round(self) -> bool:
        """Let each stage do a batch, if there is anything for one; whether there was for any of them."""
        registry, plans = self._newest(SUBSCRIPTIONS, max(0, self._registry)), self.plan()
        ingests, schedules = self.has_ingest or registry > self._registry, self.schedule.has_work(self.instant)
        if ingests:
            # Whoever subscribes while the clock stands is noticed all the same.
            self._registry = registry
            self.ingest()
        if schedules:
            self.release()
        dispatches = self.has_dispatch
        if dispatches:
            self.dispatch()
        return self.settle_once() or plans or ingests or schedules or dispatches

    @property
    def next_instant(self) -> int | None:
        """The next instant at which there may be something to do if nothing else happens, ms UTC; None: never."""
        held, planned = self._body(DISPATCH).next_look(self.instant), self._planner.next_look
        return min((each for each in (self.schedule.next_due, held, planned) if each is not None), default=None)

    @property
    def has_ingest(self) -> bool:
        """Whether there is something for a batch of ingest: one that died, rows, or a later instant."""
        book = self._book(INGEST)
        return self._follows(INGEST) or book.start(book.next).instant < self.instant

    @property
    def has_dispatch(self) -> bool:
        """Whether there is something for a batch of dispatch: one that died, rows, or what it held and may let go."""
        return self._follows(DISPATCH) or bool(self._body(DISPATCH).has_work(self.instant))

    def restart(self, stage: str) -> None:
        """Begin a stage anew from what tables and checkpoint hold, when it is called next."""
        self._bodies.pop(stage, None)
        self._books.pop(stage, None)
        if stage == INGEST:
            self._planner = self._new_planner()

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

    def _new_planner(self) -> Planner:
        """A planner that remembers nothing; it runs in the process of ingest."""
        return Planner(self.warehouse, lambda: self.instant, self.settings, observe=self._observe)

    def _does(self, _stage: str, work: Callable[[], object]) -> bool:
        """Let a stage work; whether it came to the end of that."""
        work()
        return True

    def _batch(self, name: str) -> None:
        """Do a batch, or the one that died again; it ends where the table ended when it was begun."""
        book = self._book(name)
        if not book.died:
            begin, end = book.start(book.next), self._newest(SOURCES[name]) + 1
            place = max(begin.offset, (end, EVERYTHING_BEFORE))
            book.plan(Position(Ms(max(begin.instant, self.instant)), *place))
        self._body(name)(self.warehouse.session, book.next)
        book.commit()

    def _follows(self, stage: str) -> bool:
        """Whether a batch of a stage died, or its source has rows behind the last one."""
        book = self._book(stage)
        return book.died or self._newest(SOURCES[stage]) >= book.start(book.next).version

    def _newest(self, table: Table, known: int = -1) -> int:
        """The newest version of a table, which has the known one; -1: none is known."""
        return newest(self.warehouse.files, self.warehouse.path(table), known)

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
        if not self._bodies:
            # Stages that begin together look once, as the process of a job does.
            check_tables(self.warehouse.files, self.warehouse)
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
        check_source(name, source.name, self._newest(source), book)
