"""The clocks of consumers; tests have their own."""

from __future__ import annotations

import secrets
import time

from pipeline.config.wallclock import wall_ms

_RENEWAL_MS = 3_000


class Clock:
    """The clocks of this machine, in ms.

    It begins at a random place within a renewal of leases: the consumers of a process renew in one commit, and
    processes do not renew at one moment.
    """

    def __init__(self) -> None:
        """Draw the place."""
        self._ahead_ms = secrets.randbelow(_RENEWAL_MS)
        self._source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> int:
        """A clock that never steps back and counts the time that the machine sleeps."""
        return time.clock_gettime_ns(self._source) // 1_000_000 + self._ahead_ms

    def wall(self) -> int:
        """The wall clock, UTC; nothing is decided by it."""
        return wall_ms()
