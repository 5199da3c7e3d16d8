"""Positions as runs of entries, without a time: what events of consumers name and what settling them says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from state.bitmaps import bitmap_of_runs, runs_of_bitmap
from state.buckets import IntArray
from state.errors import InvalidArgument
from state.runs import MAX_ENTRY, MAX_LEDGER, Runs, checked_integers

Run = tuple[int, int, int]
"""Ledger id, first entry, last entry, the last one included."""


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Runs of consecutive entries of one ledger each; in events in any order, in effects ordered and apart.

    Attributes:
        ledger_ids: 0..2^62, int64, shape (n,).
        first_entries: 0..2^31-1, int64, shape (n,).
        last_entries: inclusive, int64, shape (n,).
    """

    ledger_ids: IntArray
    first_entries: IntArray
    last_entries: IntArray

    @classmethod
    def of(cls, ledger_ids: npt.ArrayLike, first_entries: npt.ArrayLike, last_entries: npt.ArrayLike) -> Self:
        """The positions of three columns of integers, checked. O(n).

        Raises:
            InvalidArgument: columns that are not integers or not of one length, or a run that ends before it begins.
            OutOfRange: a number outside its range.
        """
        ledgers = checked_integers("ledger_ids", ledger_ids, MAX_LEDGER)
        firsts = checked_integers("first_entries", first_entries, MAX_ENTRY)
        lasts = checked_integers("last_entries", last_entries, MAX_ENTRY)
        if not len(ledgers) == len(firsts) == len(lasts):
            lengths = f"{len(ledgers)}, {len(firsts)} and {len(lasts)} values"
            raise InvalidArgument("positions", lengths, "columns of one length")
        if (lasts < firsts).any():
            raise InvalidArgument(
                "last_entries", int(lasts[lasts < firsts][0]), "an entry that is not before the first"
            )
        return cls(ledgers, firsts, lasts)

    @classmethod
    def of_runs(cls, runs: Iterable[Run]) -> Self:
        """The positions of a few runs, checked as `of` does."""
        columns = list(zip(*runs, strict=True)) or [(), (), ()]
        return cls.of(*columns)

    @classmethod
    def gathered(cls, parts: Sequence[tuple[int, BitMap]]) -> Self:
        """The positions of bitmaps of entries by ledger, in the order given. O(runs)."""
        runs = [runs_of_bitmap(entries) for _, entries in parts]
        ledgers = np.repeat([ledger for ledger, _ in parts], [len(firsts) for firsts, _ in runs]).astype(np.int64)
        return cls(
            ledgers, np.concatenate([firsts for firsts, _ in runs]), np.concatenate([lasts for _, lasts in runs])
        )

    def sound(self) -> Positions:
        """Those runs that do not end before they begin. O(n)."""
        kept = self.last_entries >= self.first_entries
        return Positions(self.ledger_ids[kept], self.first_entries[kept], self.last_entries[kept])

    def __len__(self) -> int:
        """Number of runs (not of messages)."""
        return len(self.ledger_ids)

    @property
    def messages(self) -> int:
        """Messages in all; one that stands in two runs counts twice. O(n)."""
        return int((self.last_entries - self.first_entries + 1).sum())

    def runs(self) -> list[Run]:
        """One tuple a run. O(n)."""
        columns = (self.ledger_ids, self.first_entries, self.last_entries)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def due_at(self, due: int) -> Runs:
        """The same runs, due at an instant (ms): what an index takes. O(n)."""
        return Runs(np.full(len(self), due, dtype=np.int64), self.ledger_ids, self.first_entries, self.last_entries)

    def by_ledger(self) -> Iterator[tuple[int, BitMap]]:
        """Each ledger, ascending, with a bitmap of its entries. O(n log n), O(n) when ordered by ledger."""
        ledgers, firsts, lasts = self.ledger_ids, self.first_entries, self.last_entries
        if (ledgers[1:] < ledgers[:-1]).any():
            order = np.argsort(ledgers, kind="stable")
            ledgers, firsts, lasts = ledgers[order], firsts[order], lasts[order]
        heads = np.flatnonzero(np.diff(ledgers, prepend=-1)).tolist()
        for head, end in pairwise([*heads, len(ledgers)]):
            yield int(ledgers[head]), bitmap_of_runs(firsts[head:end], lasts[head:end])
