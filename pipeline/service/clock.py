"""The clock of the stages: its instants, live or virtual; and how a replay gives and holds a virtual one.

What a batch calls "now" comes from the offset that Spark logged for it, so a replay calls the same instant now; ingest
notes it with its first commit. Spark's own `rate` source dies when the wall clock steps back (decision 0055).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from pipeline.config.errors import ClockJumped
from pipeline.config.settings import MINUTE_MS, LiveClock
from pipeline.config.wallclock import elapsed_ms, monotonic_ms, wall_ms
from pipeline.delta.checkpoints import LET_GO
from pipeline.storage.files import Files
from pipeline.storage.inprocesswatch import InProcessWatch
from pipeline.storage.waiting import Folders
from state.units import Ms

_LOOK_S = 0.05  # between two looks at a small file whose folder says nothing
_LONGEST_WAIT_MS, _LONGEST_WAIT_REMOTE_MS = 2_000, 500
"""So long a change that nobody noticed may wait for its batch. In a store nobody notices what others put there."""
_OFTEN_MS = 100
"""Between two looks at what no folder tells of, where that costs no request."""


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
        note: what the log says beside the last instant.
    """

    def __init__(self, start: int = 0, folders: Folders | InProcessWatch | None = None) -> None:
        """Nobody has asked yet. Whoever waits does so for a change in some folders, if there are any."""
        self.start, self._folders, self._ended = start, folders, False
        self.note = dict[str, int]()

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


def always() -> bool:
    """Whether there may be work of which nothing is known."""
    return True


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
            instant = self._next(last, news=seen != self._seen)
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

    def _next(self, last: int, *, news: bool) -> int:  # noqa: ARG002 - clocks that have instants ask for it
        return last

    def _until_next(self) -> int:
        """Until the next look, ms."""
        return _LONGEST_WAIT_MS


class WorkInstants(NoInstants):
    """The wall clock, whenever there is work that no source tells of; no instant while there is none."""

    def __init__(
        self, has_work: Callable[[Ms], bool], wakes: Wakes = NOTHING, may_have: Callable[[], bool] = always
    ) -> None:
        """Ask whether there is work, at a time in ms UTC, each time that the clock looks.

        Where there `may_have` come some with time alone it looks often.
        """
        super().__init__(wakes)
        self._has_work, self._may_have = has_work, may_have

    def _next(self, last: int, *, news: bool) -> int:  # noqa: ARG002 - as above
        now = wall_ms()
        return max(last + 1, now) if self._has_work(now) else last

    def _until_next(self) -> int:
        return _OFTEN_MS if self._here and self._may_have() else super()._until_next()


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


def unknown() -> int | None:
    """Up to which version of its table a query has let go everything, when nobody knows it."""
    return None


class LiveInstants(NoInstants):
    """`min(wall + lookahead, last + max_step)`, never backwards; few of them while the query has nothing to let go.

    Such a clock rests (decision 0156) when it is at the present, nothing is news, and the log says already which
    versions of the source are let go. What comes ends the rest at once, and a minute does, or a step of the clock.
    """

    def __init__(
        self,
        clock: LiveClock,
        start: int = 0,
        wakes: Wakes = NOTHING,
        is_held: Callable[[], bool] = never,
        let_go: Callable[[], int | None] = unknown,
    ) -> None:
        """Follow the wall clock, never before `start` (ms); notice when it is set.

        Args:
            clock: its settings.
            start: the clock goes on from here, ms.
            wakes: what ends a wait before the next instant.
            is_held: whether the clock stands still for now.
            let_go: says, when the query keeps nothing behind its last batch, before which version of its source it has
                read everything. None: it keeps something, or nobody knows.
        """
        super().__init__(wakes)
        self._is_held, self._is_warm, self._stands = is_held, False, False
        self._clock, self.start, self._far = clock, start, False
        self._wall = SteadyClock(clock.max_jump_ms)
        self._ask_let_go, self._let_go = let_go, let_go
        self._is_present, self._has_rested = False, False
        self._longest_rest_ms = min(clock.max_step_ms, MINUTE_MS) - clock.resolution_ms

    def first(self) -> int:
        """The wall clock, one step back, so that the first batch has an instant; not before a rebuilt stage goes on."""
        return max(self.start, self._grid(wall_ms()) - self._clock.resolution_ms)

    def after(self, last: int) -> int:
        """The next instant, or the last one again. The query does nothing while it waits for the answer."""
        self._let_go = cache(self._ask_let_go)
        return super().after(last)

    def _next(self, last: int, *, news: bool) -> int:
        """The next instant, or the last one again.

        Raises:
            ClockJumped: the wall clock was set, by more than `max_jump_ms`.
        """
        wall = self._wall.ms()
        instant, self._stands = next_instant(last, wall, self._clock), self._is_held()
        if self._stands:
            # One batch meanwhile: it starts the workers, loads the state, and lets go what the next one would anyway.
            instant, self._is_warm = last + (not self._is_warm), True
        if self._far and instant == last:
            # An instant is the watermark from the next batch on: what waited while the clock stood waits no longer.
            self._far = not (self._has_rested and self._let_go() is not None)
            instant += self._far
        if instant > last:
            idles = self._is_present and not (self._far or self._stands or news) and self._is_let_go
            if idles and instant - last <= self._longest_rest_ms:
                return last
            self._far, self._has_rested = instant - last > self._clock.resolution_ms, idles
            self._is_present = instant >= self._grid(wall + self._clock.lookahead_ms)
            self.note = {} if (version := self._let_go()) is None else {LET_GO: version}
        return instant

    @property
    def _is_let_go(self) -> bool:
        """Whether the query keeps nothing, and the log says so."""
        version = self._let_go()
        return version is not None and self.note.get(LET_GO) == version

    def _until_next(self) -> int:
        resolution = self._clock.resolution_ms
        left = resolution - (wall_ms() + self._clock.lookahead_ms) % resolution
        return min(left, _OFTEN_MS) if self._here and self._stands else left

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
