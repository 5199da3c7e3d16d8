"""Sets of positions, as bitmaps of entries by ledger: what is in one and not in another, by whole ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from state.buckets import IntArray
from state.positions import Positions
from state.runs import Runs


class PositionSet:
    """A set of positions of one topic, which never changes. Operations cost the containers of the ledgers they join."""

    def __init__(self, ledgers: Mapping[int, BitMap] | None = None) -> None:
        """The entries of ledgers; nobody may change the bitmaps afterwards."""
        self._ledgers = {ledger: entries for ledger, entries in (ledgers or {}).items() if entries}

    @classmethod
    def of(cls, positions: Positions) -> Self:
        """The positions of runs, which may overlap. O(runs log runs)."""
        return cls(dict(positions.by_ledger()))

    @classmethod
    def at(cls, ledgers: IntArray, entries: IntArray) -> Self:
        """Single positions, checked, in any order. O(n log n)."""
        return cls.of(Positions.of(ledgers, entries, entries))

    @classmethod
    def of_runs(cls, runs: Runs) -> Self:
        """The positions of runs with due times."""
        return cls.of(Positions(runs.ledger_ids, runs.first_entries, runs.last_entries))

    @classmethod
    def union(cls, sets: Iterable[PositionSet]) -> Self:
        """What is in any of them."""
        found: dict[int, list[BitMap]] = {}
        for each in sets:
            for ledger, entries in each.by_ledger():
                found.setdefault(ledger, []).append(entries)
        return cls({ledger: BitMap.union(*parts) for ledger, parts in found.items()})

    def __len__(self) -> int:
        """How many positions. O(ledgers)."""
        return sum(len(entries) for entries in self._ledgers.values())

    def __eq__(self, other: object) -> bool:
        """Whether it has the same positions."""
        return isinstance(other, PositionSet) and self._ledgers == other._ledgers

    __hash__ = None  # type: ignore[assignment] # bitmaps have none

    def __or__(self, other: PositionSet) -> PositionSet:
        """What is in one of both."""
        return PositionSet.union((self, other))

    def __sub__(self, other: PositionSet) -> PositionSet:
        """What is in this one alone."""
        return PositionSet({ledger: entries - other.entries(ledger) for ledger, entries in self._ledgers.items()})

    def __and__(self, other: PositionSet) -> PositionSet:
        """What is in both."""
        return PositionSet({ledger: entries & other.entries(ledger) for ledger, entries in self._ledgers.items()})

    def holds(self, ledgers: IntArray, entries: IntArray) -> npt.NDArray[np.bool_]:
        """Which positions are in it; they are ordered by ledger. O(n log n)."""
        found = np.zeros(len(ledgers), np.bool_)
        for ledger, own in self.by_ledger():
            low, high = np.searchsorted(ledgers, (ledger, ledger + 1))
            found[low:high] = np.isin(entries[low:high], np.asarray(own.to_array(), np.int64))
        return found

    def entries(self, ledger: int) -> BitMap:
        """The entries of a ledger. O(1); not to be changed."""
        return self._ledgers.get(ledger, _NONE)

    def by_ledger(self) -> Iterator[tuple[int, BitMap]]:
        """Each ledger, ascending, with its entries, which are not to be changed."""
        return iter(sorted(self._ledgers.items()))

    def positions(self) -> Positions:
        """As runs, ordered and apart. O(runs)."""
        return Positions.gathered(list(self.by_ledger())) if self._ledgers else Positions.of_runs([])


def by_number(numbers: IntArray, ledgers: IntArray, firsts: IntArray, lasts: IntArray) -> dict[int, PositionSet]:
    """The positions of runs that have each number. O(runs), for each number there is."""
    found = {}
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        found[number] = PositionSet.of(Positions.of(ledgers[mine], firsts[mine], lasts[mine]))
    return found


def last_of_each(ledgers: IntArray, entries: IntArray) -> npt.NDArray[np.bool_]:
    """Which of ordered positions are the last ones that are the same."""
    if not len(ledgers):
        return np.empty(0, np.bool_)
    return np.append((np.diff(ledgers) != 0) | (np.diff(entries) != 0), [True])


_NONE = BitMap()
