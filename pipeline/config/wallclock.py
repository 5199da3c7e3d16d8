"""The clocks of this machine, in milliseconds."""

import time

from state.units import Ms

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux' monotonic clock stands while the machine sleeps; this one goes on."""


def wall_ms() -> Ms:
    """The wall clock, ms UTC."""
    return Ms(time.time_ns() // 1_000_000)


def thread_cpu_ms() -> int:
    """Processor time that this thread has taken, ms."""
    return time.thread_time_ns() // 1_000_000


def monotonic_ms() -> int:
    """The monotonic clock, ms since an arbitrary start."""
    return time.monotonic_ns() // 1_000_000


def elapsed_ms() -> int:
    """As `monotonic_ms`, with the time that the machine slept where the system counts it."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000
