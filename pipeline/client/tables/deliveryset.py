"""Sets of deliveries: messages, each with how often it had come before."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from pyroaring import BitMap

from pipeline.client.tables.rows import Mask, Rows
from pipeline.storage.arrays import IntArray
from state import Positions

Cell = tuple[int, int]
"""Slot, redelivery count."""
NO_SLOT = -1
"""Of deliveries of which nobody asks for the slot."""
_NONE = BitMap()


class DeliverySet:
    """Bitmaps of entries by ledger, slot and redelivery count; none of them is ever changed, so copies share them."""

    def __init__(self) -> None:
        self._cells: dict[int, dict[Cell, BitMap]] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._cells)

    def copy(self) -> DeliverySet:
        """The same as it is now. O(bitmaps)."""
        other = DeliverySet()
        other.put_all(self)
        return other

    # ---- more and fewer

    def add(self, rows: Rows) -> int:
        """Add rows; give how many are new. O(n log n)."""
        if not len(rows):
            return 0
        order = np.lexsort((rows.counts, rows.slots, rows.ledgers))
        keys = np.stack((rows.ledgers[order], rows.slots[order], rows.counts[order]))
        starts = np.flatnonzero(np.append(True, (np.diff(keys) != 0).any(axis=0))).tolist()
        entries = rows.entries[order].astype(np.uint32)
        new = 0
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            ledger, slot, count = keys[:, start].tolist()
            new += self.put(ledger, slot, count, BitMap(entries[start:stop]))
        return new

    def put(self, ledger: int, slot: int, count: int, entries: BitMap) -> int:
        """Add entries of a ledger that have a slot and a redelivery count; give how many are new."""
        cells = self._cells.setdefault(ledger, {})
        before = cells.get((slot, count))
        cells[slot, count] = entries if before is None else before | entries
        return len(cells[slot, count]) - (0 if before is None else len(before))

    def put_all(self, other: DeliverySet) -> int:
        """Add those of another set; give how many are new."""
        cells = ((ledger, cell, each) for ledger, cells in other._cells.items() for cell, each in cells.items())
        return sum(self.put(ledger, *cell, each) for ledger, cell, each in cells)

    def take(self, positions: Positions | None = None, count: int | None = None) -> dict[int, Positions]:
        """Take out those of some positions (None: of all), whatever their slots; give them by redelivery count.

        Args:
            positions: which.
            count: only those with this redelivery count; None: with any.
        """
        everything = ((ledger, BitMap.union(*self._cells[ledger].values())) for ledger in sorted(self._cells))
        taken: dict[int, list[tuple[int, BitMap]]] = {}
        for ledger, entries in everything if positions is None else positions.by_ledger():
            for cell, held in list(self._cells.get(ledger, {}).items()):
                if count in (None, cell[1]) and (hit := held & entries):
                    taken.setdefault(cell[1], []).append((ledger, hit))
                    self._keep(ledger, cell, held - hit)
        return {count: Positions.gathered(parts) for count, parts in taken.items()}

    def drop(self, slots: Collection[int]) -> None:
        """Take out those of some slots."""
        for ledger in list(self._cells):
            for cell in [each for each in self._cells[ledger] if each[0] in slots]:
                self._keep(ledger, cell, _NONE)

    def _keep(self, ledger: int, cell: Cell, entries: BitMap) -> None:
        cells = self._cells[ledger]
        if entries:
            cells[cell] = entries
            return
        del cells[cell]
        if not cells:
            del self._cells[ledger]

    # ---- questions

    @property
    def ledgers(self) -> IntArray:
        """The ledgers of which there is any, ascending."""
        return np.array(sorted(self._cells), np.int64)

    @property
    def slots(self) -> set[int]:
        """The slots of which there is any."""
        return {slot for cells in self._cells.values() for slot, _ in cells}

    def holds(self, rows: Rows) -> Mask:
        """Which rows are in it, by position and redelivery count. O(n log n)."""
        mask = np.zeros(len(rows), np.bool_)
        for ledger in np.unique(rows.ledgers).tolist() if self._cells else ():
            for (_, count), entries in self._cells.get(ledger, {}).items():
                mine = np.flatnonzero((rows.ledgers == ledger) & (rows.counts == count))
                if len(mine):
                    mask[mine] |= _within(rows.entries[mine], entries)
        return mask

    def has(self, ledger: int, entry: int, redelivery_count: int) -> bool:
        """Whether a message is in it, as it was delivered with a redelivery count."""
        cells = self._cells.get(ledger, {})
        return any(entry in entries for (_, count), entries in cells.items() if count == redelivery_count)

    def has_any(self, ledgers: IntArray, entries: IntArray) -> bool:
        """Whether one of some positions is in it."""
        for ledger in np.unique(ledgers).tolist():
            mine = BitMap(entries[ledgers == ledger].astype(np.uint32))
            if any(held.intersect(mine) for held in self._cells.get(ledger, {}).values()):
                return True
        return False

    def has_between(self, ledger: int, first: int, last: int) -> bool:
        """Whether one of the entries of a ledger from a first to a last one is in it."""
        return any(each.range_cardinality(first, last + 1) for each in self._cells.get(ledger, {}).values())


def _within(entries: IntArray, bitmap: BitMap) -> Mask:
    low, high = int(entries.min()), int(entries.max()) + 1
    if bitmap.range_cardinality(low, high) == high - low:
        return np.ones(len(entries), np.bool_)
    near = bitmap & BitMap(range(low, high))
    return np.isin(entries, np.array(near.to_array(), np.int64))
