"""What the index is measured against: a heap of triples and the published nested dict of bitmaps; and the index itself.

All take the same arrays and give the same positions in the same order (`tests/unit/benchmarks/test_contenders.py`). The
published trackers take messages one by one and give positions one by one. A variant of the nested dict gives whole
arrays, the kindest way to drain it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from state import TimeBucketIndex, encode_chunk, tick_bits, trim_up
from state.buckets import IntArray


class Contender(Protocol):
    """Takes batches of messages, gives due positions as (ledger ids, entry ids)."""

    name: str

    def add(self, ledger_ids: IntArray, entry_ids: IntArray, deliver_ats: IntArray) -> None:
        """Take a batch."""

    def drain(self, now: int) -> tuple[Sequence[int] | IntArray, Sequence[int] | IntArray]:
        """Give ledger ids and entry ids of what is due at `now`, ordered by bucket, ledger, entry."""


class HeapOfTriples:
    """Python's heap of (bucket, ledger, entry): the published first form."""

    name = "heap of triples"

    def __init__(self, tick_ms: int) -> None:
        """An empty heap."""
        self.bits = tick_bits(tick_ms)
        self.heap: list[tuple[int, int, int]] = []

    def add(self, ledger_ids: IntArray, entry_ids: IntArray, deliver_ats: IntArray) -> None:
        """Push one by one."""
        keys = trim_up(deliver_ats, self.bits)
        for triple in zip(keys.tolist(), ledger_ids.tolist(), entry_ids.tolist(), strict=True):
            heapq.heappush(self.heap, triple)

    def drain(self, now: int) -> tuple[list[int], list[int]]:
        """Pop one by one."""
        ledgers, entries = [], []
        while self.heap and self.heap[0][0] <= now:
            _, ledger, entry = heapq.heappop(self.heap)
            ledgers.append(ledger)
            entries.append(entry)
        return ledgers, entries


class NestedBitmaps:
    """timestamp -> ledger -> roaring bitmap: the published second form (whose sorted map is a dict and a heap here)."""

    name = "nested dict of BitMaps"

    def __init__(self, tick_ms: int) -> None:
        """An empty map."""
        self.bits = tick_bits(tick_ms)
        self.buckets: dict[int, dict[int, BitMap]] = {}
        self.keys: list[int] = []

    def add(self, ledger_ids: IntArray, entry_ids: IntArray, deliver_ats: IntArray) -> None:
        """Set one bit a message."""
        keys = trim_up(deliver_ats, self.bits)
        for key, ledger, entry in zip(keys.tolist(), ledger_ids.tolist(), entry_ids.tolist(), strict=True):
            bucket = self.buckets.get(key)
            if bucket is None:
                bucket = self.buckets[key] = {}
                heapq.heappush(self.keys, key)
            bitmap = bucket.get(ledger)
            if bitmap is None:
                bitmap = bucket[ledger] = BitMap()
            bitmap.add(entry)

    def optimise(self) -> None:
        """Run-optimise every bitmap, as the published figures have it."""
        for bucket in self.buckets.values():
            for bitmap in bucket.values():
                bitmap.run_optimize()

    def cells(self, now: int) -> Iterator[tuple[int, BitMap]]:
        """Take out the due cells, in order."""
        while self.keys and self.keys[0] <= now:
            yield from sorted(self.buckets.pop(heapq.heappop(self.keys)).items())

    def drain(self, now: int) -> tuple[Sequence[int] | IntArray, Sequence[int] | IntArray]:
        """Take positions one by one."""
        ledgers: list[int] = []
        entries: list[int] = []
        for ledger, bitmap in self.cells(now):
            for entry in bitmap:
                ledgers.append(ledger)
                entries.append(entry)
        return ledgers, entries


class NestedBitmapsAsArrays(NestedBitmaps):
    """The same map, drained a bitmap at a time."""

    name = "  drained as arrays"

    def drain(self, now: int) -> tuple[Sequence[int] | IntArray, Sequence[int] | IntArray]:
        """Take whole arrays."""
        cells = [(ledger, np.frombuffer(bitmap.to_array(), dtype=np.uint32)) for ledger, bitmap in self.cells(now)]
        if not cells:
            return [], []
        ledgers = np.repeat([ledger for ledger, _ in cells], [len(entries) for _, entries in cells])
        return ledgers, np.concatenate([entries for _, entries in cells]).astype(np.int64)


class Index:
    """Our index, fed as the pipeline feeds it: encoded chunks appended."""

    name = "TimeBucketIndex"

    def __init__(self, tick_ms: int) -> None:
        """An empty index."""
        self.index = TimeBucketIndex(tick_ms)

    def add(self, ledger_ids: IntArray, entry_ids: IntArray, deliver_ats: IntArray) -> None:
        """Encode and append."""
        self.index.append_chunk(encode_chunk(ledger_ids, entry_ids, deliver_ats, self.index.rule.tick_ms))

    def drain(self, now: int) -> tuple[IntArray, IntArray]:
        """Pop arrays."""
        due = self.index.pop_due(now)
        return due.ledger_ids, due.entry_ids


BASELINES: tuple[type[HeapOfTriples | NestedBitmaps], ...] = (HeapOfTriples, NestedBitmaps, NestedBitmapsAsArrays)
