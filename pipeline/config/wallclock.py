"""The clocks of this machine, in milliseconds."""

import time


def wall_ms() -> int:
    """The wall clock, ms UTC."""
    return time.time_ns() // 1_000_000


def thread_cpu_ms() -> int:
    """Processor time that this thread has taken, ms."""
    return time.thread_time_ns() // 1_000_000


def monotonic_ms() -> int:
    """The monotonic clock, ms since an arbitrary start."""
    return time.monotonic_ns() // 1_000_000
