"""The ledger table of a chunk: which entries of which ledgers it holds, laid end to end in one line of positions.

A position is one integer inside a chunk: `bases[i] + entry - firsts[i]` for ledger `ids[i]`. Between two ledgers
the line leaves one number free, so that a run of numbers never crosses from one ledger into the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from state.buckets import IntArray
from state.columns import Reader, pack_column, varint
from state.errors import CorruptBytes, OutOfRange
from state.runs import MAX_ENTRY, MAX_LEDGER

MAX_LEDGERS = 1 << 22
"""Distinct ledgers in one chunk; bounds what a reader allocates."""


@dataclass(frozen=True, slots=True, eq=False)
class LedgerTable:
    """Ledger ids, ascending, each with its first entry and its span (last - first entry); int64, shape (n,)."""

    ids: IntArray
    firsts: IntArray
    spans: IntArray
    bases: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Lay the ledgers out."""
        ends = np.cumsum(self.spans + 2)
        object.__setattr__(self, "bases", np.concatenate(([0], ends)))

    @property
    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The lowest and the highest (ledger id, entry id)."""
        low = int(self.ids[0]), int(self.firsts[0])
        return low, (int(self.ids[-1]), int(self.firsts[-1] + self.spans[-1]))

    @property
    def size(self) -> int:
        """Length of the line of positions."""
        return int(self.bases[-1])

    @classmethod
    def build(
        cls, ledger_ids: IntArray, first_entries: IntArray, last_entries: IntArray
    ) -> tuple[LedgerTable, IntArray]:
        """The table of these runs, and each run's position in it, shape (n,). O(n); O(n log n) with scattered ids.

        Arrivals come ledger by ledger, so ids are compared by stretches of one ledger, not one by one.

        Raises:
            OutOfRange: more than 2^22 distinct ledgers.
        """
        heads = np.concatenate(([0], np.flatnonzero(ledger_ids[1:] != ledger_ids[:-1]) + 1))
        ids, ledger = _distinct(ledger_ids[heads])
        if len(ids) > MAX_LEDGERS:
            raise OutOfRange("number of distinct ledger_ids", len(ids), 1, MAX_LEDGERS)
        firsts = np.full(len(ids), MAX_ENTRY, dtype=np.int64)
        lasts = np.zeros(len(ids), dtype=np.int64)
        np.minimum.at(firsts, ledger, np.minimum.reduceat(first_entries, heads))
        np.maximum.at(lasts, ledger, np.maximum.reduceat(last_entries, heads))
        table = cls(ids, firsts, lasts - firsts)
        shifts = (table.bases[:-1] - firsts)[ledger]
        if len(heads) == 1:
            return table, first_entries + shifts[0]
        return table, first_entries + np.repeat(shifts, np.diff(heads, append=len(ledger_ids)))

    def index_of(self, positions: IntArray) -> IntArray:
        """Row in this table of each position, shape (n,). O(n), or O(n log ledgers) when a few ledgers are tiny.

        Cells of a grid no wider than the shortest ledger meet two ledgers at most, so one comparison settles which:
        4 ns a position where a binary search takes 35.
        """
        if len(self.ids) == 1:
            return np.zeros(len(positions), dtype=np.int64)
        shift = int(self.spans.min() + 2).bit_length() - 1
        if self.size >> shift > len(positions) + 4 * len(self.ids):
            return np.searchsorted(self.bases, positions, side="right") - 1
        grid = np.arange(((self.size - 1) >> shift) + 1, dtype=np.int64) << shift
        ends = np.searchsorted(self.bases, grid, side="right")
        cells = positions >> shift
        rows: IntArray = (ends - 1)[cells]
        rows += positions >= self.bases[ends][cells]
        return rows

    def resolve(self, positions: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray]:
        """Ledger id and first entry id of runs that lie on the line, shape (n,) both.

        Raises:
            CorruptBytes: a run leaves its ledger.
        """
        if len(self.ids) == 1:
            if int((positions + lengths).max()) >= self.size:
                raise CorruptBytes("block", "a row leaves its ledger")
            return np.full(len(positions), self.ids[0]), positions + self.firsts[0]
        rows = self.index_of(positions)
        entries = positions + (self.firsts - self.bases[:-1])[rows]
        if (entries + lengths > (self.firsts + self.spans + 1)[rows]).any():
            raise CorruptBytes("block", "a row leaves its ledger")
        return self.ids[rows], entries

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """True when the entry lies in the range of the ledger. O(log ledgers)."""
        row = int(np.searchsorted(self.ids, ledger_id))
        if row == len(self.ids) or int(self.ids[row]) != ledger_id:
            return False
        return 0 <= entry_id - int(self.firsts[row]) <= int(self.spans[row])

    def overlaps(self, other: LedgerTable) -> bool:
        """True when some ledger's entry ranges overlap in the two tables. O(ledgers)."""
        if self.ids[0] > other.ids[-1] or other.ids[0] > self.ids[-1]:
            return False
        _, mine, theirs = np.intersect1d(self.ids, other.ids, assume_unique=True, return_indices=True)
        return bool(
            (
                (self.firsts[mine] <= other.firsts[theirs] + other.spans[theirs])
                & (other.firsts[theirs] <= self.firsts[mine] + self.spans[mine])
            ).any()
        )

    def pack(self) -> bytes:
        """The table as bytes (`docs/format.md`, Ledger table)."""
        return (
            varint(len(self.ids))
            + pack_column(np.diff(self.ids, prepend=0))
            + pack_column(self.firsts)
            + pack_column(self.spans)
        )

    @classmethod
    def unpack(cls, data: bytes) -> LedgerTable:
        """The table from bytes. O(ledgers).

        Raises:
            CorruptBytes: ids that do not grow, values out of range, bytes missing or left over.
        """
        reader = Reader(data, "ledger table")
        size = reader.varint(MAX_LEDGERS)
        ids, firsts, spans = np.cumsum(reader.column(size)), reader.column(size), reader.column(size)
        if size == 0 or (ids[1:] <= ids[:-1]).any() or int(ids[0]) < 0 or int(ids[-1]) > MAX_LEDGER:
            raise CorruptBytes(reader.part, "ledger ids do not grow from 0 to 2^62")
        if max(int(firsts.max()), int(spans.max())) > MAX_ENTRY or int((firsts + spans).max()) > MAX_ENTRY:
            raise CorruptBytes(reader.part, "entries above 2^31 - 1")
        reader.end()
        return cls(ids, firsts, spans)


def _distinct(ids: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct ids, ascending, and each element's place among them. O(n) when the ids lie close together."""
    low = int(ids.min())
    width = int(ids.max()) - low + 1
    if width > 4 * len(ids) + 1024:
        return np.unique(ids, return_inverse=True)
    present = np.zeros(width, dtype=np.int64)
    present[ids - low] = 1
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[ids - low]
