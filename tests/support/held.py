"""How much memory Arrow holds for what a test keeps."""

from __future__ import annotations

import time
from threading import Event

import pyarrow as pa

_PATIENCE_S = 10


def held(before: int, most: int) -> int:
    """Bytes that Arrow holds beyond what it held before; more than `most` only when they stay for ten seconds.

    A thread of Arrow's gives back what it read, which may be a page of a whole row group, a moment after the reader was
    closed.
    """
    pool, end = pa.default_memory_pool(), time.monotonic() + _PATIENCE_S
    while (found := pool.bytes_allocated() - before) > most and time.monotonic() < end:
        Event().wait(0.001)
    return int(found)
