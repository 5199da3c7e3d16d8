"""The receiver queue of a consumer: rows that were read and that the application has not got yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

import numpy as np

from pipeline.client.consuming.received import first_window
from pipeline.client.message import Window
from pipeline.client.tables.rows import Rows


class ReceiverQueue:
    """Rows in order. From the front they are taken one by one, through a window, or many at once.

    Attributes:
        size: rows that are left.
    """

    def __init__(self) -> None:
        self.size = 0
        self._rows: deque[Rows] = deque()
        self._window: Window | None = None
        self._at, self._noted = 0, 0
        self._taken: list[Rows] = []

    def put(self, rows: Rows) -> None:
        """Rows come behind the others."""
        if len(rows):
            self._rows.append(rows)
            self.size += len(rows)

    def peek(self) -> tuple[Window, int] | None:
        """The next row, by its window and its number in there; None: nothing waits."""
        window = self._window
        if window is not None and self._at < len(window.ledgers):
            return window, self._at
        self._close()
        if not self._rows:
            return None
        first = self._rows[0]
        self._window = first_window(first)
        return self._window, 0

    def step(self) -> None:
        """The row that `peek` showed goes to the application."""
        self._at += 1
        self.size -= 1

    def take(self, most: int, new: int | None, may: Callable[[list[int]], bool]) -> Rows | None:
        """The next rows at once, of one part; None: nothing waits, or nothing may be given.

        Args:
            most: how many at most.
            new: how many with redelivery count 0 at most; None: any number.
            may: whether messages of these slots may be given.
        """
        self._close()
        if not self._rows:
            return None
        first = self._rows[0]
        count = min(most, len(first))
        if new is not None:
            fresh = np.cumsum(first.counts[:count] == 0)
            count = int(np.searchsorted(fresh, new, side="right"))
        if count == 0 or not may(np.unique(first.slots[:count]).tolist()):
            return None
        taken = first.part(0, count)
        self._cut(count)
        self.size -= count
        self._taken.append(taken)
        return taken

    def bring_forward_redeliveries(self) -> bool:
        """Put what was delivered before in front of the rest; whether there is any."""
        self._close()
        again = [rows.where(rows.counts > 0) for rows in self._rows if (rows.counts > 0).any()]
        if again:
            rest = [rows.where(rows.counts == 0) for rows in self._rows if (rows.counts == 0).any()]
            self._rows = deque([*again, *rest])
        return bool(again)

    def drop(self, slots: Collection[int]) -> None:
        """Forget the rows of slots."""
        self.keep(lambda rows: rows.where(~np.isin(rows.slots, list(slots))))

    def keep(self, chosen: Callable[[Rows], Rows]) -> None:
        """Keep of the rows what a function chooses."""
        self._close()
        self._rows = deque(rows for rows in map(chosen, self._rows) if len(rows))
        self.size = sum(map(len, self._rows))

    def taken(self) -> list[Rows]:
        """What the application got since the last call, in order."""
        self._note()
        taken, self._taken = self._taken, []
        return taken

    def _note(self) -> None:
        if self._window is not None and self._at > self._noted:
            self._taken.append(self._rows[0].part(self._noted, self._at))
            self._noted = self._at

    def _close(self) -> None:
        """Go on without the window, behind what was taken of it."""
        self._note()
        if self._window is not None:
            self._cut(self._at)
        self._window, self._at, self._noted = None, 0, 0

    def _cut(self, count: int) -> None:
        first = self._rows.popleft()
        if count < len(first):
            self._rows.appendleft(first.part(count, len(first)))
