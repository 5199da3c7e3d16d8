"""Looks on at who leases the slots of a subscription, and how long a slot has no owner."""

from __future__ import annotations

import threading
import time
from typing import Self

from pipeline.delta.deltars import open_table, query
from schemas import CURSOR_LEASES, CURSORS
from state.lease_bytes import unpack_leases

_LOOK_S = 0.2
_LEASES = """
    SELECT bytes FROM cursors WHERE topic = '{}' AND subscription = '{}' AND block = {} AND bytes IS NOT NULL
    ORDER BY batch_id DESC LIMIT 1
"""


class Unowned:
    """Follows what settle says of leases, in a thread, while the block runs.

    Settle says it some tenths of a second late, of each change; so a span is as long as it was, give or take that.

    Attributes:
        longest: the longest time that a slot had no owner, s.
    """

    def __init__(self, root: str, name: tuple[str, str]) -> None:
        """Nobody looks yet."""
        self._root, self._name = root, name
        self.longest = 0.0
        self._free: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Look from here on."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        found = query(_LEASES.format(*self._name, CURSOR_LEASES), cursors=open_table(self._root, CURSORS))
        replay = unpack_leases(found[0]["bytes"])
        free = {number for number, slot in enumerate(replay.slots) if slot.owner is None}
        self._free = {number: self._free.get(number, now) for number in free}
        self.longest = max([self.longest, *(now - since for since in self._free.values())])
