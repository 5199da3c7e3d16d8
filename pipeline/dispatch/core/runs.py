"""Runs of positions, as rows of `redelivery`: cut, parted, and marked with the reason for which they are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pipeline.dispatch.core.holding import cut
from pipeline.storage.arrays import IntArray, longs
from state.bitmaps import runs_of_bitmap
from state.units import Ms, us


def with_reason(runs: pa.Table, reason: str) -> pa.Table:
    """Runs with a column more, the reason for which they are left out."""
    return runs.append_column("reason", pa.repeat(reason, runs.num_rows))


def at_time(runs: pa.Table, now: Ms) -> pa.Table:
    """Runs that were left out at a time (ms UTC), and not when they were released."""
    times = pa.repeat(pa.scalar(us(now), runs.schema.field("released_at").type), runs.num_rows)
    return runs.set_column(runs.column_names.index("released_at"), "released_at", times)


class Cut:
    """Runs of rows: which row each is of, its first and its last entry."""

    def __init__(self) -> None:
        self._numbers, self._firsts, self._lasts = ([np.empty(0, np.int64)] for _ in range(3))

    def add(self, number: int, entries: BitMap) -> None:
        """Entries of the row of a number."""
        if entries:
            firsts, lasts = runs_of_bitmap(entries)
            self._numbers.append(np.full(len(firsts), number))
            self._firsts.append(firsts)
            self._lasts.append(lasts)

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows, cut."""
        return cut(rows, *(np.concatenate(each) for each in (self._numbers, self._firsts, self._lasts)))


def without(runs: pa.Table, run: IntArray, entry: IntArray) -> tuple[pa.Table, pa.Table]:
    """Runs less some positions, and those; each position is named by the number of its run and the entry.

    Runs that go as a whole are not looked at one by one: mostly each message is a run.
    """
    if not len(run):
        return runs, runs.slice(0, 0)
    firsts, lasts = (longs(runs, name) for name in ("first_entry", "last_entry"))
    hits = np.bincount(run, minlength=runs.num_rows)
    is_whole = hits == lasts - firsts + 1
    left, gone = Cut(), Cut()
    some = np.flatnonzero(~is_whole[run])
    some = some[np.lexsort((entry[some], run[some]))]
    hit, starts = np.unique(run[some], return_index=True)
    for number, own in zip(hit.tolist(), np.split(entry[some], starts[1:]) if len(hit) else (), strict=True):
        out = BitMap(own.astype(np.uint32))
        gone.add(number, out)
        left.add(number, BitMap(range(firsts[number], lasts[number] + 1)) - out)
    pieces = [[runs.filter(pa.array(kept)), each.of(runs)] for kept, each in ((hits == 0, left), (is_whole, gone))]
    stays, goes = (pa.concat_tables(each).combine_chunks() for each in pieces)
    return stays, goes
