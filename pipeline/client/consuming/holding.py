"""What the application has: messages that it was handed and that it has neither acknowledged nor given back."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from pyroaring import BitMap

from pipeline.client.tables.events import runs_of
from pipeline.client.tables.rows import Mask, Rows
from pipeline.storage.arrays import IntArray
from state import Positions, UnackedLimit

Cell = tuple[int, int]
"""Slot, redelivery count."""
Failed = dict[int, Positions]
"""Messages by redelivery count."""


class Holding:
    """Bitmaps of entries by ledger, slot and redelivery count.

    Attributes:
        limit: how many messages it may be.
    """

    def __init__(self, limit: UnackedLimit) -> None:
        """Nothing is held."""
        self.limit = limit
        self._cells: dict[int, dict[Cell, BitMap]] = defaultdict(dict)

    def __len__(self) -> int:
        """How many messages."""
        return self.limit.unacked

    def give(self, rows: Rows) -> None:
        """The application was handed these. O(n log n)."""
        if not len(rows):
            return
        order = np.lexsort((rows.counts, rows.slots, rows.ledgers))
        keys = np.stack((rows.ledgers[order], rows.slots[order], rows.counts[order]))
        starts = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0)))
        entries = rows.entries[order].astype(np.uint32)
        given = 0
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            ledger, slot, count = keys[:, start].tolist()
            cells = self._cells[ledger]
            before = cells.get((slot, count), BitMap())
            cells[slot, count] = before | BitMap(entries[start:stop])
            given += len(cells[slot, count]) - len(before)
        self.limit = self.limit.given(given)

    def take_back(self, positions: Positions) -> Failed:
        """Take out messages, whatever their slots and counts; those that were held, by count."""
        found: dict[int, list[tuple[int, BitMap]]] = defaultdict(list)
        for ledger, entries in positions.by_ledger():
            for (slot, count), held in list(self._cells.get(ledger, {}).items()):
                if hit := held & entries:
                    found[count].append((ledger, hit))
                    self._keep(ledger, (slot, count), held - hit)
        failed = {count: Positions.gathered(parts) for count, parts in found.items()}
        self.limit = self.limit.returned(sum(each.messages for each in failed.values()))
        return failed

    def take_all(self) -> Failed:
        """Take out all messages, by count."""
        ledgers = sorted(self._cells)
        runs = [(ledger, cell) for ledger in ledgers for cell in self._cells[ledger].values()]
        return self.take_back(Positions.gathered(runs)) if runs else {}

    def copy(self) -> Holding:
        """The same as it is now. O(bitmaps), which are shared: none is ever changed."""
        other = Holding(self.limit)
        other._cells = defaultdict(dict, {ledger: dict(cells) for ledger, cells in self._cells.items()})
        return other

    def has_any(self, ledgers: IntArray, entries: IntArray) -> bool:
        """Whether one of these messages is held."""
        for ledger in np.unique(ledgers).tolist():
            mine = BitMap(entries[ledgers == ledger].astype(np.uint32))
            if any(held.intersect(mine) for held in self._cells.get(ledger, {}).values()):
                return True
        return False

    def has(self, ledger: int, entry: int, redelivery_count: int) -> bool:
        """Whether a message is held, as it was delivered with a redelivery count."""
        cells = self._cells.get(ledger, {})
        return any(entry in held for (_, count), held in cells.items() if count == redelivery_count)

    def slots(self) -> set[int]:
        """The slots of which something is held."""
        return {slot for cells in self._cells.values() for slot, _ in cells}

    def held(self, rows: Rows) -> Mask:
        """Which rows the application has."""
        mask = np.zeros(len(rows), np.bool_)
        for ledger in np.unique(rows.ledgers).tolist() if self._cells else ():
            for (_, count), entries in self._cells.get(ledger, {}).items():
                mine = (rows.ledgers == ledger) & (rows.counts == count)
                mask |= mine & np.isin(rows.entries, np.array(entries.to_array(), np.int64))
        return mask

    def _keep(self, ledger: int, cell: Cell, entries: BitMap) -> None:
        cells = self._cells[ledger]
        if entries:
            cells[cell] = entries
        else:
            del cells[cell]
        if not cells:
            del self._cells[ledger]


class Handed:
    """What was handed out, in order, as far as something of it is held: cumulative acknowledgement asks for it."""

    def __init__(self, holding: Holding) -> None:
        """Nothing was."""
        self._holding, self._parts = holding, deque[_Part]()
        self._last: tuple[int, int] | None = None

    def add(self, rows: Rows) -> None:
        """These were."""
        self._parts.append(_Part(rows.ledgers, rows.entries, again=bool(rows.counts.any())))
        self._tidy()

    def upto(self, ledger: int, entry: int) -> Positions | None:
        """All that was handed out up to a message, and is forgotten from here on; None: it was not handed out.

        Of a message that came again the last time counts.
        """
        # A message comes twice only when it failed in between. All else is looked for from the first part on, which
        # costs little: the parts before the one that has it are forgotten.
        again = [number for number, part in enumerate(self._parts) if part.again]
        others = (number for number, part in enumerate(self._parts) if not part.again)
        for number in chain(reversed(again), others):
            part = self._parts[number]
            at = np.flatnonzero((part.ledgers == ledger) & (part.entries == entry))
            if len(at):
                self._last = (ledger, entry)
                return self._cut(number, int(at[-1]) + 1)
        return runs_of(*np.zeros((2, 0), np.int64)) if (ledger, entry) == self._last else None

    def _cut(self, number: int, count: int) -> Positions:
        before = [self._parts.popleft() for _ in range(number)]
        part = self._parts[0]
        self._parts[0] = replace(part, ledgers=part.ledgers[count:], entries=part.entries[count:])
        before.append(replace(part, ledgers=part.ledgers[:count], entries=part.entries[:count]))
        return runs_of(*(np.concatenate([getattr(each, n) for each in before]) for n in ("ledgers", "entries")))

    def _tidy(self) -> None:
        while self._parts and not self._holding.has_any(self._parts[0].ledgers, self._parts[0].entries):
            self._parts.popleft()


@dataclass(frozen=True)
class _Part:
    """Some rows that were handed out; `again`: some of them had failed before."""

    ledgers: IntArray
    entries: IntArray
    again: bool
