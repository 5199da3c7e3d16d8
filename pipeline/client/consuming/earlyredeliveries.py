"""Redeliveries out of turn: who may get nothing new gets these all the same, past what is queued and not read yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from pipeline.client.tables.rows import Mask, Rows

Delivery = tuple[int, int, int]
"""Ledger, entry, redelivery count."""


class EarlyRedeliveries:
    """What was taken out of turn, by slot, until its turn has come and it is passed over.

    Attributes:
        upto: the version of `deliveries` up to which redeliveries were looked for.
    """

    def __init__(self) -> None:
        """Nothing was."""
        self.upto = -1
        self._given: dict[int, set[Delivery]] = defaultdict(set)

    def give(self, rows: Rows) -> None:
        """These rows are taken out of turn."""
        for slot, delivery in zip(rows.slots.tolist(), _deliveries(rows), strict=True):
            self._given[slot].add(delivery)

    def without(self, rows: Rows) -> Rows:
        """Rows whose turn has come, less those that were taken before."""
        again = np.flatnonzero(rows.counts)
        if not self._given or not len(again):
            return rows
        keep: Mask = np.ones(len(rows), np.bool_)
        some = rows.where(rows.counts > 0)
        deliveries = zip(again.tolist(), some.slots.tolist(), _deliveries(some), strict=True)
        for number, slot, delivery in deliveries:
            keep[number] = delivery not in self._given.get(slot, ())
        return rows.where(keep)

    def drop(self, slots: Collection[int]) -> None:
        """Slots are read anew, or not at all."""
        for slot in slots:
            self._given.pop(slot, None)

    def passed(self, version: int) -> None:
        """The turn of all rows up to a version has come."""
        if version >= self.upto:
            self._given.clear()


def _deliveries(rows: Rows) -> list[Delivery]:
    return list(zip(rows.ledgers.tolist(), rows.entries.tolist(), rows.counts.tolist(), strict=True))
