"""The clock of the stages: its instants, live or virtual, as a stream; and how a replay gives and holds a virtual one.

What a batch calls "now" comes from the offset that Spark logged for it, so a replay calls the same instant now; ingest
notes it with its first commit. Spark's own `rate` source dies when the wall clock steps back (decision 0055).
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from pipeline.config.errors import ClockJumped
from pipeline.config.jvm import java_class
from pipeline.config.settings import Clock, LiveClock, VirtualClock
from pipeline.config.wallclock import elapsed_ms, monotonic_ms, wall_ms
from pipeline.delta.streams.source import INSTANT, SQL, StreamSource
from pipeline.storage.files import Files
from pipeline.storage.inprocesswatch import InProcessWatch
from pipeline.storage.waiting import Folders
from state.units import Ms

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

_LOOK_S = 0.05  # between two looks at a small file whose folder says nothing
_LONGEST_WAIT_MS, _LONGEST_WAIT_REMOTE_MS = 2_000, 500
"""So long a change that nobody noticed may wait for its batch. In a store nobody notices what others put there."""


@dataclass(frozen=True)
class Wakes:
    """What wakes a query that waits for its clock.

    Attributes:
        at_once: folders; when something comes into one of them the query looks at its sources.
        gathered: such folders whose news may wait a little, so that one batch takes what several would.
        gather_ms: they wait until so long after the query looked last, in ms.
        here: whether the folders are on this machine, and not in a store.
    """

    at_once: Sequence[str] = ()
    gathered: Sequence[str] = ()
    gather_ms: int = 0
    here: bool = True


NOTHING = Wakes()


class Instants(ABC):
    """Source of the clock's instants, ms UTC.

    Attributes:
        start: a new checkpoint skips those up to this one.
    """

    def __init__(self, start: int = 0, folders: Folders | InProcessWatch | None = None) -> None:
        """Nobody has asked yet. Whoever waits does so for a change in some folders, if there are any."""
        self.start, self._folders, self._ended = start, folders, False

    def first(self) -> int:
        """The one that a new checkpoint begins behind: before all instants, or where a rebuilt stage goes on."""
        return self.start

    @abstractmethod
    def after(self, last: int) -> int:
        """The next instant; the last one again when there is none. May wait for it."""

    def end(self) -> None:
        """Wait no more, and give no more instants: whoever asks is to stop."""
        self._ended = True
        if self._folders is not None:
            self._folders.wake()

    def close(self) -> None:
        """Give free what the clock holds of the system. Nobody asks any more."""
        self.end()
        if self._folders is not None:
            self._folders.close()


def beside(path: str) -> Folders | InProcessWatch:
    """What tells of changes in the folder of a small file. A store does not tell what other processes put there."""
    folder = path.rpartition("/")[0]
    here = Files().local(folder)
    return InProcessWatch([folder]) if here is None else Folders([str(here)])


class VirtualInstants(Instants):
    """Those of a file, one by one, so that one instant is one release in every stage."""

    def __init__(self, path: str, start: int = 0) -> None:
        """Read instants from a file that `advance` appends to, those after `start` (ms)."""
        self._path, self._beside = path, beside(path)
        super().__init__(start, self._beside)

    def after(self, last: int) -> int:
        """The first one after the last one; the same when none is given yet. Waits while the clock is held."""
        self._wait_while_held()
        return next((instant for instant in given(self._path) if instant > last and not self._ended), last)

    def _wait_while_held(self) -> None:
        """Say that somebody waits, and for which hold."""
        files, said = Files(), ""
        while not self._ended:
            # The folder first: what changes after this look ends the wait.
            self._beside.state()
            name = files.text_if_there(f"{self._path}.hold")
            if name is None:
                return
            if name != said:
                files.write(f"{self._path}.waiting", name, lasting=False)
                said = name
            self._beside.wait(_LOOK_S)


class NoInstants(Instants):
    """No instant ever; who asks for one waits until there may be something else to do."""

    def __init__(self, wakes: Wakes = NOTHING) -> None:
        """Watch folders. Who asks waits while nothing in them changes, and a commit wakes the one that follows it."""
        folders, watch = [*wakes.at_once, *wakes.gathered], Folders if wakes.here else InProcessWatch
        super().__init__(folders=watch(folders) if folders else None)
        self._here, self._longest_ms = wakes.here, _LONGEST_WAIT_MS
        if not wakes.here:
            self._longest_ms = max(_LONGEST_WAIT_REMOTE_MS, wakes.gather_ms)
        self._at_once, self._gather_ms = len(wakes.at_once), wakes.gather_ms
        self._seen: list[int] = []
        self._answered = monotonic_ms() - wakes.gather_ms

    def after(self, last: int) -> int:
        """The next instant, or the last one again when there may be something else to do."""
        end = self._longest_ms + (monotonic_ms() if self._here else self._answered)
        while not self._ended:
            # The folders first: what changes after this look ends the next wait.
            seen = [] if self._folders is None else self._folders.state()
            instant = self._next(last)
            left = min(end, self._turn(seen)) - monotonic_ms()
            if self._folders is None or instant > last or left <= 0:
                self._seen, self._answered = seen, monotonic_ms()
                return instant
            self._folders.wait(min(left, self._until_next()) / 1_000)
        return last

    def _turn(self, seen: list[int]) -> float:
        """When what has changed since the last answer has its turn, ms of the monotonic clock; never: infinite."""
        if seen[: self._at_once] != self._seen[: self._at_once]:
            return 0
        return self._answered + self._gather_ms if seen != self._seen else inf

    def _next(self, last: int) -> int:
        return last

    def _until_next(self) -> int:
        return _LONGEST_WAIT_MS


class WorkInstants(NoInstants):
    """The wall clock, whenever there is work that no source tells of; no instant while there is none."""

    def __init__(self, has_work: Callable[[Ms], bool], wakes: Wakes = NOTHING) -> None:
        """Ask whether there is work, at a time in ms UTC, each time that the clock looks."""
        super().__init__(wakes)
        self._has_work = has_work

    def _next(self, last: int) -> int:
        now = wall_ms()
        return max(last + 1, now) if self._has_work(now) else last


class VirtualWorkInstants(VirtualInstants):
    """The last instant that was given, or one a millisecond later than the last, as often as there is such work."""

    def __init__(self, path: str, has_work: Callable[[Ms], bool]) -> None:
        """Read instants from a file, as `VirtualInstants` does."""
        super().__init__(path)
        self._has_work = has_work

    def after(self, last: int) -> int:
        """An instant when there is work; the last one again when there is none. Waits while the clock is held."""
        self._wait_while_held()
        instants = given(self._path)
        if self._ended or not instants:
            return last
        now = max(last + 1, instants[-1])
        return now if self._has_work(Ms(now)) else last


class SteadyClock:
    """The wall clock, as long as it goes on like the one that counts since the machine was started."""

    def __init__(self, max_jump_ms: int) -> None:
        """Note how far the two are apart.

        Args:
            max_jump_ms: by so much that may change from one look to the next.
        """
        self._max_jump_ms, self._apart = max_jump_ms, wall_ms() - elapsed_ms()

    def ms(self) -> int:
        """The time, ms UTC.

        A clock that is corrected by a second now and then goes on, however much that is after a month. A machine that
        slept was away, as after an outage: both clocks went on meanwhile.

        Raises:
            ClockJumped: the wall clock moved by more than `max_jump_ms` against the other one since the last look.
        """
        wall = wall_ms()
        apart = wall - elapsed_ms()
        jump = apart - self._apart
        if abs(jump) > self._max_jump_ms:
            raise ClockJumped(jump, self._max_jump_ms)
        self._apart = apart
        return wall


def never() -> bool:
    """Whether a clock is held that nobody holds."""
    return False


class LiveInstants(NoInstants):
    """`min(wall + lookahead, last + max_step)`, never backwards."""

    def __init__(
        self, clock: LiveClock, start: int = 0, wakes: Wakes = NOTHING, is_held: Callable[[], bool] = never
    ) -> None:
        """Follow the wall clock, never before `start` (ms); notice when it is set.

        Args:
            clock: its settings.
            start: the clock goes on from here, ms.
            wakes: what ends a wait before the next instant.
            is_held: whether the clock stands still for now.
        """
        super().__init__(wakes)
        self._is_held, self._is_warm = is_held, False
        self._clock, self.start, self._far = clock, start, False
        self._wall = SteadyClock(clock.max_jump_ms)

    def first(self) -> int:
        """The wall clock, one step back, so that the first batch has an instant; not before a rebuilt stage goes on."""
        return max(self.start, self._grid(wall_ms()) - self._clock.resolution_ms)

    def _next(self, last: int) -> int:
        """The next instant, or the last one again.

        Raises:
            ClockJumped: the wall clock was set, by more than `max_jump_ms`.
        """
        wall = self._wall.ms()
        instant = next_instant(last, wall, self._clock)
        if self._is_held():
            # One batch meanwhile: it starts the workers, loads the state, and lets go what the next one would anyway.
            instant, self._is_warm = last + (not self._is_warm), True
        if self._far and instant == last:
            # An instant is the watermark from the next batch on: what waited while the clock stood waits no longer.
            instant += 1
        if instant > last:
            self._far = instant - last > self._clock.resolution_ms
        return instant

    def _until_next(self) -> int:
        resolution = self._clock.resolution_ms
        return resolution - (wall_ms() + self._clock.lookahead_ms) % resolution

    def _grid(self, ms: int) -> int:
        return ms - ms % self._clock.resolution_ms


def next_instant(last: int, wall: int, clock: LiveClock) -> int:
    """The instant after `last` at a wall time, all in ms; `last` itself when the time has not come."""
    target = wall + clock.lookahead_ms
    target -= target % clock.resolution_ms
    return max(last, min(target, last + clock.max_step_ms))


def given(path: str) -> list[Ms]:
    """The instants of a virtual clock so far, in ms. A last line without its end was cut by a crash and is left out."""
    return [
        Ms(int(line)) for line in (Files().text_if_there(path) or "").splitlines(keepends=True) if line.endswith("\n")
    ]


class TickSource(StreamSource):
    """A source of one column, `instant` in ms, for one query; a batch has no more than one row.

    Its offset is the instant that a batch ends with, as JSON.
    """

    def __init__(self, spark: SparkSession, instants: Instants) -> None:
        super().__init__(spark, java_class(spark, f"{SQL}.types.StructType").fromDDL(INSTANT))
        self._instants = instants

    def end(self) -> None:
        """Let nobody wait any more: the query is to stop."""
        self._instants.end()

    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject:  # noqa: N802, ARG002
        """The next instant. Whoever asks may wait for it, and asks the other sources of its query afterwards."""
        last = self._instants.first() if start is None else _instant(start)
        # Spelled as in the logs of earlier releases.
        return self.deserializeOffset(json.dumps({"instant": self._instants.after(last)}))

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802
        """The row of a batch, if it has one."""
        begin = self._instants.start if start.isEmpty() else _instant(start.get())
        rows = [self._row(instant)] if (instant := _instant(end)) > begin else []
        return self.of_rows(rows)

    def stop(self) -> None:
        """The query has ended."""
        self._instants.close()

    def toString(self) -> str:  # noqa: N802
        """What plans and the progress of queries call it."""
        return "delayline_clock"

    def _row(self, instant: int) -> JavaObject:
        row = java_class(self.spark, f"{SQL}.catalyst.expressions.SpecificInternalRow")(self.columns)
        row.setLong(0, instant)
        return row


def _instant(offset: JavaObject) -> int:
    return int(json.loads(offset.json())["instant"])


def ticks(
    spark: SparkSession,
    clock: Clock,
    path: str,
    start: int = 0,
    wakes: Wakes = NOTHING,
    is_held: Callable[[], bool] = never,
) -> TickSource:
    """The clock as a source of a query.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        start: a new checkpoint hears of no instant up to this one (ms).
        wakes: a query that has nothing to do waits for the next instant, or for one of these.
        is_held: whether a live clock stands still for now.
    """
    if isinstance(clock, VirtualClock):
        return TickSource(spark, VirtualInstants(path, start))
    return TickSource(spark, LiveInstants(clock, start, wakes, is_held))


def work_ticks(
    spark: SparkSession, clock: Clock, path: str, has_work: Callable[[Ms], bool], wakes: Wakes = NOTHING
) -> TickSource:
    """A clock without instants, for a query that waits until there is news in some folders.

    It gives some while there is work of which no source tells.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        has_work: whether there is such work at a time, ms UTC.
        wakes: what ends a wait.
    """
    if isinstance(clock, VirtualClock):
        return TickSource(spark, VirtualWorkInstants(path, has_work))
    return TickSource(spark, WorkInstants(has_work, wakes))


def advance(path: str, instant: int) -> None:
    """Give the virtual clock its next instant, in ms. One that is not later than the last changes nothing."""
    earlier = given(path)
    if earlier and instant <= earlier[-1]:
        return
    Files().write(path, "".join(f"{each}\n" for each in [*earlier, instant]), lasting=False)


def hold(path: str) -> str:
    """Let readers of a virtual clock wait from their next question on, until `release`; give the hold's name."""
    name = str(time.monotonic_ns())
    Files().write(f"{path}.hold", name, lasting=False)
    return name


def is_held(path: str, name: str) -> bool:
    """Whether a reader waits because of this hold: its query is between two batches and asks no source meanwhile."""
    return Files().text_if_there(f"{path}.waiting") == name


def release(path: str) -> None:
    """Let readers go on; nothing happens when they were not held."""
    Files().delete(f"{path}.hold")
