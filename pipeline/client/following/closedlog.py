"""Redeliveries that are on their way though their messages were acknowledged: no consumer is to be handed them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from pipeline.client.consuming.rows import Mask, Rows, chosen
from pipeline.client.following.cursorlog import Open
from pipeline.client.following.tail import Actions, Follower
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.logfiles import appended
from pipeline.storage.arrays import longs
from pipeline.storage.files import Files
from schemas import CLOSED

Key = tuple[str, str, int]
"""Topic, subscription, life."""
_COLUMNS = ["topic", "subscription", "life", "ledger_id", "first_entry", "last_entry", "redelivery_count"]


class ClosedLog(Follower):
    """Follows `closed`, for those subscriptions that have a consumer in this process.

    Attributes:
        changes: grows with what is known to be closed.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Stand behind the newest version."""
        super().__init__(files, path_of(root, CLOSED))
        self._entries: dict[Key, Open] = {}
        self.changes = 0
        self._lock = threading.Lock()
        self._begin_anew()

    def watch(self, key: Key) -> None:
        """Keep what comes of a subscription."""
        self._entries.setdefault(key, defaultdict(dict))

    def keep(self, keys: AbstractSet[Key]) -> None:
        """Forget what came of all subscriptions but these."""
        with self._lock:
            for key in self._entries.keys() - keys:
                del self._entries[key]

    def add(self, key: Key, withdrawn: Open) -> None:
        """Settle says that these are closed."""
        for ledger, cells in withdrawn.items():
            for count, entries in cells.items():
                self._put(key, ledger, count, entries)

    def without(self, key: Key, rows: Rows) -> Rows:
        """Rows, less those that are closed."""
        known = self._entries.get(key)
        again = np.flatnonzero(rows.counts)
        if not known or not len(again):
            return rows
        keep: Mask = np.ones(len(rows), np.bool_)
        columns = (each[again].tolist() for each in (rows.ledgers, rows.entries, rows.counts))
        places = zip(*columns, strict=True)
        with self._lock:
            for number, (ledger, entry, count) in zip(again.tolist(), places, strict=True):
                keep[number] = entry not in known.get(ledger, {}).get(count, ())
        return rows.where(keep)

    def _take(self, version: int, actions: Actions) -> None:
        for add in appended(actions) if self._entries else ():
            table = self._rows(CLOSED, add["path"], version, _COLUMNS)
            for key in list(self._entries):
                self._put_all(key, chosen(table, key))

    def _put_all(self, key: Key, table: pa.Table) -> None:
        columns = (longs(table, name).tolist() for name in _COLUMNS[3:])
        for ledger, first, last, count in zip(*columns, strict=True):
            self._put(key, ledger, count, BitMap(range(first, last + 1)))

    def _put(self, key: Key, ledger: int, count: int, entries: BitMap) -> None:
        with self._lock:
            known = self._entries.setdefault(key, defaultdict(dict))
            before = known[ledger].get(count, BitMap())
            known[ledger][count] = before | entries
            self.changes += len(known[ledger][count]) > len(before)
