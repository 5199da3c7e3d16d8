"""Deliveries of one subscription as whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.records import ORDERING_KEY
from schemas import IDENTITY
from state import SubscriptionType, slots_of_keys, slots_of_rounds

COLUMNS = ("topic", "life", "ledger_id", "entry_id", "due_time", "deliver_at", "redelivery_count", "sequence",
           "message_key", "properties", "publish_time", *IDENTITY, "payload")  # fmt: skip
"""What a consumer reads of `deliveries`."""
NAMES = ("topic", "subscription", "life")
"""Whose a row is."""
Key = tuple[str, str, int]
"""The same as values: topic, subscription, life."""
_SEQUENCE_BITS, _MOST_MS = 20, (1 << 42) - 1
Mask = npt.NDArray[np.bool_]
SlotsOf = Callable[[pa.Table, IntArray, IntArray, IntArray], IntArray]
"""The slots of rows, by their columns, ledgers, entries and redelivery counts."""


def slot_rule(kind: SubscriptionType, slots: int) -> SlotsOf:
    """How the messages of a subscription of a type are shared among its slots."""

    def alone(_: pa.Table, ledgers: IntArray, entries: IntArray, counts: IntArray) -> IntArray:  # noqa: ARG001
        return np.zeros(len(ledgers), np.int64)

    def shared(_: pa.Table, ledgers: IntArray, entries: IntArray, counts: IntArray) -> IntArray:
        return slots_of_rounds(ledgers, entries, counts, slots)

    def by_key(table: pa.Table, ledgers: IntArray, entries: IntArray, counts: IntArray) -> IntArray:  # noqa: ARG001
        ordering = pc.map_lookup(table.column("properties").combine_chunks(), ORDERING_KEY, "first")
        keys = pc.coalesce(ordering, table.column("message_key").combine_chunks())
        return slots_of_keys(keys.to_pylist(), ledgers, entries, slots)

    return {SubscriptionType.SHARED: shared, SubscriptionType.KEY_SHARED: by_key}.get(kind, alone)


def places_of(due_us: IntArray, sequences: IntArray) -> IntArray:
    """Numbers that grow in the order of delivery, the same whoever reads a row, from whichever file.

    The instant at which it was due, ms, then its number in the batch of dispatch. Rounding up is safe: at worst a
    message counts as failed once too often. Rounding down would hand it out twice.
    """
    due_ms = np.clip(due_us // 1_000, 0, _MOST_MS)
    last = (1 << _SEQUENCE_BITS) - 1
    return (due_ms << _SEQUENCE_BITS) + np.clip(sequences, 1, last)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Deliveries in their order; all arrays have the shape (n,).

    Attributes:
        table: the columns of `deliveries` that were read.
        ledgers: ledger ids.
        entries: entry ids.
        counts: redelivery counts.
        slots: the slot of each.
        places: see `places_of`.
    """

    table: pa.Table
    ledgers: IntArray
    entries: IntArray
    counts: IntArray
    slots: IntArray
    places: IntArray

    def __len__(self) -> int:
        """How many there are."""
        return len(self.ledgers)

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of several parts, of at least one."""
        if len(parts) == 1:
            return parts[0]
        names = ("ledgers", "entries", "counts", "slots", "places")
        arrays = (np.concatenate([getattr(each, name) for each in parts]) for name in names)
        return cls(pa.concat_tables([each.table for each in parts]).combine_chunks(), *arrays)

    def where(self, mask: Mask) -> Rows:
        """Those that are chosen; the same object when all are."""
        if mask.all():
            return self
        chosen = pa.array(np.flatnonzero(mask))
        arrays = (self.ledgers, self.entries, self.counts, self.slots, self.places)
        return Rows(self.table.take(chosen), *(array[mask] for array in arrays))

    def part(self, start: int, stop: int) -> Rows:
        """Those from a number on, before another one. No copy."""
        arrays = (self.ledgers, self.entries, self.counts, self.slots, self.places)
        return Rows(self.table.slice(start, stop - start), *(array[start:stop] for array in arrays))

    def of_slots(self, slots: Collection[int]) -> Rows:
        """Those of some slots."""
        return self.where(np.isin(self.slots, list(slots)))


def rows_of(table: pa.Table, slots_of: SlotsOf) -> Rows:
    """Rows from columns of `deliveries`."""
    ledgers, entries, counts = (longs(table, name) for name in ("ledger_id", "entry_id", "redelivery_count"))
    places = places_of(longs(table, "due_time"), longs(table, "sequence"))
    return Rows(table, ledgers, entries, counts, slots_of(table, ledgers, entries, counts), places)


def chosen(table: pa.Table, key: tuple[str, str, int]) -> pa.Table:
    """The rows of one subscription of a topic in one of its lives."""
    named = zip(NAMES, key, strict=True)
    first, second, third = (pc.equal(table.column(name), value) for name, value in named)
    mask = pc.fill_null(pc.and_(first, pc.and_(second, third)), fill_value=False)
    return table if pc.all(mask, min_count=0).as_py() else table.filter(mask)
