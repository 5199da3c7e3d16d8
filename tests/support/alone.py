"""One process of the test run at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other process of this machine is in a block of this name."""
    with Path(gettempdir(), f"delayline-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
