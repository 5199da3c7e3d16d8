"""Roaring bitmaps of the entries of one ledger: made from runs, told as runs, written and read."""

from __future__ import annotations

import array

import numpy as np
from pyroaring import BitMap

from state.buckets import IntArray
from state.errors import CorruptBytes

_LONG = 16
"""Runs of so many entries are added as ranges, one call each; shorter ones are written out, all in one call."""
_FEW = 16
"""So few runs cost less as one call each than as arrays."""


def entries_of(firsts: IntArray, counts: IntArray) -> IntArray:
    """The entries of runs, one after the other, shape (sum of counts,). O(entries)."""
    starts = np.cumsum(counts) - counts
    entries: IntArray = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(firsts - starts, counts)
    return entries


def bitmap_of_entries(entries: IntArray) -> BitMap:
    """A bitmap of entries, in any order. O(entries), when they ascend."""
    return BitMap(array.array("I", entries.astype(np.uint32).tobytes()))


def bitmap_of_runs(firsts: IntArray, lasts: IntArray) -> BitMap:
    """A bitmap of runs, which may overlap, `lasts` included. O(runs), and at most 16 entries of each."""
    if len(firsts) <= _FEW:
        return _with_ranges(BitMap(), firsts, lasts)
    long = lasts - firsts >= _LONG
    short = ~long
    bitmap = bitmap_of_entries(entries_of(firsts[short], (lasts - firsts + 1)[short]))
    return _with_ranges(bitmap, firsts[long], lasts[long])


def _with_ranges(bitmap: BitMap, firsts: IntArray, lasts: IntArray) -> BitMap:
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        bitmap.add_range(first, last + 1)
    return bitmap


def runs_of_bitmap(bitmap: BitMap) -> tuple[IntArray, IntArray]:
    """First and last entries of the runs of a bitmap, ascending, shape (runs,) both. O(runs + containers).

    A run begins where the entry before is not in it, and ends where the entry after is not. Nothing is written out: a
    run of 2^31 entries is two numbers.
    """
    return _array(bitmap.difference(bitmap.shift(1))), _array(bitmap.difference(bitmap.shift(-1)))


def _array(bitmap: BitMap) -> IntArray:
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32).astype(np.int64)


def pack_bitmap(bitmap: BitMap) -> bytes:
    """The bitmap as bytes (`docs/format.md`, roaring), in the smallest containers. O(bytes)."""
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return data


def read_bitmap(data: bytes, part: str) -> BitMap:
    """The bitmap in `data`. O(bytes).

    Raises:
        CorruptBytes: it is none, or not what a writer of its content would have written.
    """
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError) as error:  # IndexError: no bytes at all
        raise CorruptBytes(part, "a roaring bitmap cannot be read") from error
    if bitmap.serialize() != data:
        raise CorruptBytes(part, "a roaring bitmap with other cardinalities, offsets or bytes than its content has")
    return bitmap
