"""A warehouse for a program's own tests, without Java: its clock stands until a test turns it."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree
from tempfile import mkdtemp
from typing import Any, Self, TypedDict, Unpack

from pipeline.client.client import Client
from pipeline.client.clock import Clock, turned
from pipeline.client.consuming.opening import end_engine, running_engine
from pipeline.client.create import create_all
from pipeline.config.errors import BadValue
from pipeline.config.settings import DAY_MS, LONGEST_HORIZON_MS, Settings
from pipeline.storage.files import passing
from pipeline.storage.waiting import Folders
from pipeline.testing.stages import Stages
from schemas import CALENDARS, COMMANDS, CONSUMER_EVENTS, INBOX, SCHEDULES, SUBSCRIPTIONS
from state.buckets import MAX_TIME
from state.units import Ms

_LOG = logging.getLogger(__name__)
_SETTINGS = Settings(horizon_ms=LONGEST_HORIZON_MS, driver_rows=10_000_000)
"""All that is due within a year is in the index, so that it says when something is due next. No batch is for Spark."""
_HOP_MS = LONGEST_HORIZON_MS // 2
"""The clock is moved by so much at most, so that what is due later than in a year comes into the index in time."""
_SEGMENT_MS = DAY_MS
_EPOCH, _LAST = datetime.fromtimestamp(0, UTC), datetime(2900, 1, 1, tzinfo=UTC)
"""The times that a warehouse may have."""
_WRITTEN = (INBOX, CONSUMER_EVENTS, COMMANDS, SUBSCRIPTIONS, SCHEDULES, CALENDARS)
"""What programs write."""
_LOOK_S, _PAUSE_S, _PATIENCE_S = 0.05, 0.001, 30
"""Between two looks at the tables, at most; between two at a listener that works; so long a listener may work."""


class Span(TypedDict, total=False):
    """A span of time, the sum of these."""

    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float


class TurnedClock(Clock):
    """The time stands until it is moved. Leases are between processes, and count by the clock of the machine.

    Attributes:
        ms: the time, ms UTC.
    """

    usual_tick_ms = 1

    def __init__(self, ms: int) -> None:
        super().__init__()
        self.ms = ms

    def timer(self) -> int:
        """The time, ms UTC: an acknowledgement is waited for by it."""
        return self.ms

    def wall_us(self) -> int:
        """The time, microseconds UTC."""
        return self.ms * 1_000


class VirtualWarehouse:
    """A warehouse whose stages work in a thread of this process, by a clock that stands until a test turns it.

    Whoever has its `root` works with it as with any other one: clients, commands, queries. All clients of this process
    have its time. What a program writes is taken at once, and what is due is delivered at once. Limits of calls that
    wait, as of `receive`, are of the wall clock.
    """

    def __init__(self, root: str, start: datetime | None = None) -> None:
        """Make a warehouse in a folder that is not there yet, or is empty; `warehouse` makes the folder, too.

        Args:
            root: the folder.
            start: the time, with a zone. None: the present.

        Raises:
            BadValue: the folder is not empty, or the time has no zone.
        """
        folder = Path(root)
        if folder.exists() and any(folder.iterdir()):
            raise BadValue("root", root, "a folder that is empty, or is not there: what runs here is no job")
        copytree(_empty_warehouse(), root, dirs_exist_ok=True)
        self._clock = TurnedClock(_ms("start", start or datetime.now(UTC)))
        self._stages = Stages(str(folder.resolve()), _SETTINGS)
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._folders = Folders([f"{self.root}/{table.name}/_delta_log" for table in _WRITTEN])
        self._thread = threading.Thread(target=self._run, name="delayline-testing", daemon=True)
        self._open = ExitStack()

    @property
    def root(self) -> str:
        """The address of the warehouse, for clients and commands."""
        return self._stages.root

    @property
    def now(self) -> datetime:
        """The time."""
        return _EPOCH + timedelta(milliseconds=self._clock.ms)

    def client(self, **options: Any) -> Client:  # noqa: ANN401 - as the client takes them
        """A client of the warehouse, which is closed at the end; with the options of `Client`."""
        return self._open.enter_context(Client(self.root, **options))

    def advance(self, **span: Unpack[Span]) -> None:
        """Let so much time pass, as `advance_to` does.

        Args:
            **span: days, hours, minutes, seconds, milliseconds, as `timedelta` takes them.

        Raises:
            BadValue: it is less than nothing, or ends in another age.
            TimeoutError, PipelineError: as for `advance_to`.
        """
        try:
            until = self._clock.ms + timedelta(**span) // timedelta(milliseconds=1)
        except OverflowError:
            until = MAX_TIME + 1
        self._advance("the time that passes", span, until)

    def advance_to(self, time: datetime) -> None:
        """Let time pass until an instant. What is due meanwhile comes when it is due, one instant after the other.

        At each of them the stages, the consumers of this process and their listeners do what there is to do. What a
        program does in threads of its own is not waited for.

        Args:
            time: the instant, with a zone, not before `now`.

        Raises:
            BadValue: it has no zone, or has passed, or no clock shows it.
            TimeoutError: a listener works for more than 30 seconds.
            PipelineError: a stage was refused something, as in a job.
        """
        self._advance("time", time, _ms("time", time))

    def run_until_idle(self) -> None:
        """Let stages, consumers and listeners do all that is to be done now. No time passes.

        Raises:
            TimeoutError, PipelineError: as for `advance_to`.
        """
        with self._lock:
            self._come_to_rest()

    def close(self) -> None:
        """Close the clients that `client` made, and end. A second call does nothing."""
        self._open.close()
        if not self._ended.is_set():
            self._ended.set()
            self._folders.wake()
            if self._thread.is_alive():
                self._thread.join()
            self._folders.close()
            # Also of consumers that nobody closed, or that nobody has any more.
            end_engine(self.root)

    def __enter__(self) -> Self:
        """Let the stages work."""
        self._open.enter_context(passing(self.root))
        self._open.enter_context(turned(self.root, self._clock))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _advance(self, field: str, value: object, until: int) -> None:
        if not self._clock.ms <= until <= _ms("time", _LAST):
            raise BadValue(field, str(value), f"from {self.now.isoformat()} to {_LAST:%Y-%m-%d}: time does not go back")
        with self._lock:
            self._come_to_rest()
            while self._clock.ms < until:
                self._clock.ms = min(until, self._next_instant(), self._clock.ms + _HOP_MS)
                self._come_to_rest()

    def _next_instant(self) -> int:
        """When something happens by itself, ms UTC."""
        engine = running_engine(self.root)
        instants = (self._stages.next_instant, None if engine is None else engine.next_timeout)
        return min((max(each, self._clock.ms + 1) for each in instants if each is not None), default=MAX_TIME)

    def _come_to_rest(self) -> None:
        ends = time.monotonic() + _PATIENCE_S
        while (worked := self._work()) or self._listens():
            if worked:
                ends = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > ends:
                message = f"a listener has worked for more than {_PATIENCE_S} s, and no time passes meanwhile"
                raise TimeoutError(message)
            else:
                time.sleep(_PAUSE_S)

    def _work(self) -> bool:
        """Let stages and consumers do what there is to do at the instant; whether there was anything."""
        self._stages.instant = self._clock.ms
        worked, engine = self._stages.work(), running_engine(self.root)
        return (engine is not None and engine.catch_up()) or worked

    def _listens(self) -> bool:
        """Whether a listener of this process works."""
        engine = running_engine(self.root)
        return engine is not None and not engine.is_at_rest

    def _run(self) -> None:
        """Do what programs ask for, as soon as they do."""
        while not self._ended.is_set():
            self._folders.state()
            with self._lock:
                self._try_work()
            self._folders.wait(_LOOK_S)

    def _try_work(self) -> None:
        """Work. What goes wrong comes again: it is raised to whoever turns the clock, and here it is logged."""
        try:
            self._work()
        except Exception:  # noqa: BLE001 - whatever it is, the thread goes on
            _LOG.exception("the stages of the warehouse under test failed")
            self._ended.wait(_PAUSE_S * 1_000)


@contextmanager
def warehouse(start: datetime | None = None, folder: str | None = None) -> Iterator[VirtualWarehouse]:
    """A warehouse whose clock stands until a test turns it.

    Args:
        start: the time at the beginning, with a zone. None: the present, so that a program that asks the machine for
            the time means the same as the warehouse.
        folder: where it lies; it is empty, or not there yet, and stays. None: in a temporary folder, which is deleted.

    Raises:
        BadValue: as for `VirtualWarehouse`.
    """
    root = folder or mkdtemp(prefix="delayline-testing-")
    try:
        with VirtualWarehouse(root, start) as made:
            yield made
    finally:
        if folder is None:
            rmtree(root, ignore_errors=True)


def _ms(field: str, time: datetime) -> Ms:
    if time.tzinfo is None:
        raise BadValue(field, time.isoformat(), "a time with a zone, as in datetime(2026, 5, 1, tzinfo=UTC)")
    if not _EPOCH <= time <= _LAST:
        raise BadValue(field, time.isoformat(), f"{_EPOCH:%Y-%m-%d} to {_LAST:%Y-%m-%d}")
    return Ms((time - _EPOCH) // timedelta(milliseconds=1))


@cache
def _empty_warehouse() -> str:
    """The folder of a warehouse just made, to be copied."""
    folder = mkdtemp(prefix="delayline-empty-")
    atexit.register(rmtree, folder, ignore_errors=True)
    create_all(folder, _SEGMENT_MS)
    return folder
