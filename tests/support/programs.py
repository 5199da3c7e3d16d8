"""Programs that use the client, some of them at once, on the stages as they are, without a JVM.

A program is a client with its own engine, which is turned here: time goes on, and programs and stages take their turns,
where a test says so. Threads are only those of listeners and producers, and one for a call that may wait.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from pipeline.client import aio
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.engine import Engine
from pipeline.client.exceptions import AlreadyClosed
from pipeline.client.message import Message
from pipeline.client.producing.producer import Producer
from pipeline.client.subscribing.lives import lives
from pipeline.client.subscribing.subscriptions import Subscription, subscriptions
from pipeline.config.wallclock import wall_ms
from pipeline.subscriptions.incarnations import Name
from tests.support.consumed import SetClock
from tests.support.programmed import Ledger, Life, Notes
from tests.support.stages import Stages

STEP_MS = 400
LONGEST_S = 20.0
"""No call waits for longer than that beyond its own limit, whatever the machine does beside it."""
_LEASE_STEPS = 40
"""So many steps after a death others have its slots."""
T = TypeVar("T")


class Panic(BaseException):
    """As delta-rs raises it."""


@dataclass(eq=False)
class Taker:
    """A consumer of a program.

    Attributes:
        held: what it got and has said nothing of.
        over: it was closed.
    """

    program: Program
    consumer: Consumer
    subscription: str
    listens: bool = False
    held: list[Message] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    over: bool = False

    @property
    def topics(self) -> list[str]:
        """Its topics."""
        return [each.topic for each in self.consumer.topic_consumers]

    @property
    def gone(self) -> bool:
        """Whether it was closed, or knows that all its subscriptions were ended or made anew."""
        return self.over or all(each.failure for each in self.consumer.topic_consumers)

    def describe(self) -> tuple[object, ...]:
        """Where it stands."""
        topic_consumers = [
            (each.topic, each.life, each.owns, each.failure, each.tracker.queue.size)
            for each in self.consumer.topic_consumers
        ]
        return self.program.name, self.program.stalled, self.subscription, self.consumer.options.kind, topic_consumers

    def life(self, topic: str) -> int:
        """The life in which it is; 0: in none."""
        return next((each.life for each in self.consumer.topic_consumers if each.topic == topic), 0)


@dataclass(eq=False)
class Program:
    """A process with a client; `stalled`: so many steps more it gets no turn."""

    name: str
    aio: aio.Client
    engine: Engine
    dead: bool = False
    stalled: int = 0
    takers: list[Taker] = field(default_factory=list)
    producers: dict[str, Producer] = field(default_factory=dict)

    @property
    def client(self) -> Client:
        """The same client, for programs without a loop."""
        return self.aio._made

    @property
    def turns(self) -> bool:
        """Whether it gets turns."""
        return not self.dead and not self.stalled


class Programs:
    """Several programs, the stages, and what was noted of them."""

    def __init__(self, root: Path) -> None:
        """Make the warehouse."""
        self.stages, self.clock = Stages(str(root)), SetClock()
        self.root, self._base = self.stages.root, wall_ms() + 3_600_000 - self.clock.time
        self.notes, self.all = Notes(self.clock), list[Program]()
        self.lives: dict[Name, Life] = {}
        self.every: list[Life] = []
        self.round()

    @property
    def alive(self) -> list[Program]:
        """Those that did not die."""
        return [each for each in self.all if not each.dead]

    @property
    def takers(self) -> list[Taker]:
        """Consumers that somebody has."""
        return [each for program in self.alive for each in program.takers if not each.gone]

    # ---- time

    @property
    def instant(self) -> int:
        """The time of the stages, ms."""
        return self._base + self.clock.time

    def round(self) -> None:
        """Each stage does what there is to do."""
        self.stages.instant = self.instant
        while self.stages.has_ingest:
            assert self.stages.ingest()
        self.stages.schedule.step(self.instant)
        while self.stages.has_dispatch:
            assert self.stages.dispatch()
        assert self.stages.settle()

    def step(self, count: int = 1) -> None:
        """Time goes on, and programs get their turns."""
        for _ in range(count):
            self.clock.time += STEP_MS
            for each in self.alive:
                if each.turns and not each.engine.ended:
                    each.engine.turn()
                each.stalled = max(0, each.stalled - 1)

    def settle(self) -> None:
        """All that programs have said counts from here on."""
        before = self.notes.last
        self.step(2)
        self.round()
        self.notes.counted(before, {each.name for each in self.alive if each.turns})

    def wait_for(self, call: Callable[[], T], *allowed: type[Exception]) -> T | Exception:
        """What a call gives that may wait for other programs and stages, which go on; or an error of a kind.

        Raises:
            AssertionError: it waits without an end.
        """
        box: list[T | BaseException] = []

        def run() -> None:
            try:
                box.append(call())
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                box.append(error)

        thread = threading.Thread(target=run, name="call", daemon=True)
        thread.start()
        ends = time.monotonic() + LONGEST_S
        thread.join(0.01)
        while thread.is_alive():
            assert time.monotonic() < ends, f"{call} waits without an end"
            self.step()
            self.round()
            thread.join(0.002)
        found = box[0]
        if isinstance(found, BaseException) and not (isinstance(found, Exception) and isinstance(found, allowed)):
            raise found
        return found

    # ---- programs

    def begin(self) -> Program:
        """Another program."""
        program = Program(f"p{len(self.all)}", aio.Client(self.root), Engine(self.root, self.clock))

        def engine() -> Engine:
            if program.engine.ended:
                program.engine = Engine(self.root, self.clock)
            return program.engine

        program.client._engine = engine  # type: ignore[method-assign]
        self.all.append(program)
        return program

    def die(self, program: Program) -> None:
        """The process of a program is gone, without a word."""
        program.dead = True
        self.notes.lost(self._names(program.takers), dies=True)

    def leave(self, takers: Iterable[Taker], close: Callable[[], object], *allowed: type[Exception]) -> None:
        """Consumers leave; what they hold comes to others."""
        self.left(takers, partial(self.wait_for, close, *allowed))

    def left(self, takers: Iterable[Taker], close: Callable[[], object]) -> None:
        """The same in a thread of a program, while nothing else goes on."""
        some = [each for each in takers if not each.over]
        for each in some:
            each.over = True
        self.notes.lost(self._names(some), dies=False)
        close()
        self.notes.lost(self._names(some), dies=False)

    def forget(self, taker: Taker) -> None:
        """A program lets go of a consumer."""
        self.notes.lost(self._names([taker]), dies=False)
        taker.over = True
        taker.held, taker.tables = [], []
        taker.program.takers.remove(taker)
        del taker.consumer
        gc.collect()

    def stall(self, program: Program, steps: int) -> None:
        """A program stands still for some time."""
        program.stalled = steps
        self.notes.lost(self._names(program.takers), dies=True)

    def _names(self, takers: Iterable[Taker]) -> set[Name]:
        return {(topic, each.subscription) for each in takers for topic in each.topics}

    # ---- lives

    def look(self, start: Callable[[Name], tuple[int, int]]) -> None:
        """Learn which lives there are now, after a round; `start` says where one begins that nobody sought."""
        self.step()
        self.round()
        lines = {each.named: each for each in subscriptions(self.root)}
        numbers = {name: each.number for name, each in lives(self.root).items()}
        for name in self.lives.keys() - lines.keys():
            del self.lives[name]
        for name, line in lines.items():
            if name not in self.lives or self.lives[name].number != numbers[name]:
                self.lives[name] = Life(name, numbers[name], line.type, _sought(line) or start(name))
                self.every.append(self.lives[name])

    def ends(self) -> dict[str, tuple[int, int]]:
        """The end of the log of each topic."""
        found: dict[str, tuple[int, int]] = {}
        for row in Ledger(self.root).messages:
            found[row.topic] = max(found.get(row.topic, (0, 0)), (row.place[0], row.place[1] + 1))
        return found

    # ---- messages

    def got(self, taker: Taker, message: Message) -> None:
        """A program was handed a message."""
        if not taker.program.dead:
            taker.held.append(message)
            self.notes.got(taker, message)

    def got_table(self, taker: Taker, table: pa.Table) -> None:
        """The same of rows."""
        if table.num_rows:
            taker.tables.append(table)
            self.notes.got_table(taker, table)

    def acknowledge(self, taker: Taker, message: Message, *, by_id: bool = False) -> None:
        """A program settles a message."""
        held = message in taker.held
        taker.held = [each for each in taker.held if each is not message]
        if by_id and message.life != taker.life(message.topic_name()):  # type: ignore[attr-defined]
            by_id = False
        self.notes.acknowledged(taker, message)
        assert held or taker.listens
        taker.consumer.acknowledge(message.message_id() if by_id else message)

    def close(self) -> None:
        """All ends; who died is buried, too."""
        for each in self.all:
            each.dead = False
        for each in self.all:
            self.wait_for(each.client.shutdown, AlreadyClosed)


def _sought(line: Subscription) -> tuple[int, int] | None:
    return None if line.sought is None else (line.sought.ledger, line.sought.entry)
