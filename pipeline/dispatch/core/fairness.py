"""What is held and comes in turn: runs, and the positions that a queue knows of them (`state.turns`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pipeline.dispatch.core.holding import comes, cut
from pipeline.dispatch.core.runs import without
from pipeline.storage.arrays import IntArray, longs, rounds
from state.turns import Keys

_ENTRY_BITS = 32


def portions(runs: pa.Table, most: int) -> Iterator[pa.Table]:
    """Runs in portions of so many positions at most; long ones are cut."""
    firsts, lasts = longs(runs, "first_entry"), longs(runs, "last_entry")
    pieces = -(-(lasts - firsts + 1) // most)
    number = np.repeat(np.arange(runs.num_rows), pieces)
    first = firsts[number] + most * (np.arange(len(number)) - np.repeat(np.cumsum(pieces) - pieces, pieces))
    last = np.minimum(first + most - 1, lasts[number])
    whole, begin = cut(runs, number, first, last), 0
    ends = np.cumsum(last - first + 1)
    while begin < len(ends):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
        yield whole.slice(begin, end - begin).combine_chunks()
        begin = end


def keys_of(runs: pa.Table, run: IntArray, entry: IntArray, value: IntArray) -> Keys:
    """What a queue knows of positions, each named by the number of its run and its entry."""
    return Keys(value, comes(runs)[run], longs(runs, "ledger_id")[run], entry, rounds(runs)[run])


def row_of(runs: pa.Table, keys: Keys, *, by_due: bool = True) -> IntArray:
    """The number of the run that each position is in; -1: it is in none.

    Args:
        runs: of one incarnation.
        keys: positions of it.
        by_due: whether they are to come at the same time, too.
    """
    if not runs.num_rows:
        return np.full(len(keys.value), -1)
    firsts, lasts = longs(runs, "first_entry"), longs(runs, "last_entry")
    known = [longs(runs, "ledger_id"), rounds(runs), comes(runs)]
    asked = [keys.ledger, keys.round, keys.due]
    names = [np.concatenate(each) for each in zip(known[: 2 + by_due], asked[: 2 + by_due], strict=True)]
    group = _coded(names) << _ENTRY_BITS
    begins, wanted = group[: len(firsts)] | firsts, group[len(firsts) :] | keys.entry
    order = np.argsort(begins, kind="stable")
    place = order[np.maximum(np.searchsorted(begins[order], wanted, "right") - 1, 0)]
    there = (begins[place] <= wanted) & (wanted - begins[place] <= lasts[place] - firsts[place])
    return np.where(there, place, -1)


def split_chosen(runs: pa.Table, keys: Keys, *, by_due: bool = True) -> tuple[pa.Table, pa.Table]:
    """The runs of an incarnation that are chosen, and those that stay; runs are cut where that is needed."""
    row = row_of(runs, keys, by_due=by_due)
    pairs = np.unique(np.stack([row, keys.entry])[:, row >= 0], axis=1)
    stays, chosen = without(runs, pairs[0], pairs[1])
    return chosen, stays


def _coded(columns: Sequence[IntArray]) -> IntArray:
    """A number for each row: the same where all columns are."""
    order = np.lexsort(columns)
    differ = np.any([np.diff(each[order], prepend=each[order[:1]] - 1) != 0 for each in columns], axis=0)
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(differ)
    return found
