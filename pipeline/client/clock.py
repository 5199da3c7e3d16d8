"""The clocks of a client: those of the machine, or one that a test turns."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from pipeline.config.paths import place_of
from pipeline.config.wallclock import elapsed_ms
from pipeline.storage.files import Files

_EPOCH = datetime.fromtimestamp(0, UTC)
_RENEWAL_MS, _READ_MS = 3_000, 1_000
_TURNED = dict[str, "Clock"]()
"""Clocks that somebody turns, by warehouse."""


class Clock:
    """The clocks of this machine.

    The one of leases begins at a random place within a renewal: the consumers of a process renew in one commit, and
    processes do not renew at one moment.

    Attributes:
        usual_tick_ms: the precision of a subscription of which a consumer says nothing, ms.
    """

    usual_tick_ms = 1_000

    def __init__(self) -> None:
        self._ahead_ms = secrets.randbelow(_RENEWAL_MS)

    def now(self) -> int:
        """The clock of leases, ms: it never steps back and counts the time that the machine sleeps."""
        return elapsed_ms() + self._ahead_ms

    def timer(self) -> int:
        """The clock of timeouts of acknowledgement, ms: it never steps back either."""
        return self.now()

    def wall_us(self) -> int:
        """The time, microseconds UTC: when something was sent, said or commanded."""
        return time.time_ns() // 1_000

    def wall(self) -> int:
        """The time, ms UTC."""
        return self.wall_us() // 1_000

    def wall_time(self) -> datetime:
        """The time, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.wall_us())


class Pace:
    """How long the consumers of a process may read in one turn: leases are renewed in between.

    Each of them goes on by one piece all the same.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Another turn begins."""
        self._until = self._clock.now() + _READ_MS

    @property
    def more(self) -> bool:
        """Whether there is time to read more."""
        return self._clock.now() < self._until


def clock_of(root: str) -> Clock:
    """The clock by which the client works with a warehouse."""
    return _TURNED.get(place_of(root)) or Clock()


def is_virtual(root: str) -> bool:
    """Whether stages run under a virtual clock, as in a replay: it moves from one instant to the next in a step."""
    return bool(Files().names(f"{root.rstrip('/')}/_clock"))


def is_turned(root: str) -> bool:
    """Whether somebody turns the clock of a warehouse."""
    return bool(_TURNED) and place_of(root) in _TURNED


@contextmanager
def turned(root: str, clock: Clock) -> Iterator[None]:
    """Meanwhile a clock that somebody turns is that of a warehouse, for all of this process that begins from now on."""
    _TURNED[place_of(root)] = clock
    try:
        yield
    finally:
        del _TURNED[place_of(root)]
