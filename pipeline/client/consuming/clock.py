"""The clocks of consumers; tests have their own."""

from __future__ import annotations

import secrets
import time

from pipeline.config.wallclock import wall_ms

_RENEWAL_MS, _READ_MS = 3_000, 1_000


class Clock:
    """The clocks of this machine, in ms.

    It begins at a random place within a renewal of leases: the consumers of a process renew in one commit, and
    processes do not renew at one moment.
    """

    def __init__(self) -> None:
        self._ahead_ms = secrets.randbelow(_RENEWAL_MS)
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> int:
        """A clock that never steps back and counts the time that the machine sleeps."""
        return time.clock_gettime_ns(self._source) // 1_000_000 + self._ahead_ms

    def wall(self) -> int:
        """The wall clock, UTC; nothing is decided by it."""
        return wall_ms()


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
