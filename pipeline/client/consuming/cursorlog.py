"""What settle says: how far it has read, what is open of a subscription, and who leases its slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from pyroaring import BitMap

from pipeline.client.consuming.tail import Actions, Tail
from pipeline.config.errors import VersionGone
from pipeline.delta.commits import commits, metadata, newest
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.delta.notes import Commit
from pipeline.storage.files import Files
from schemas import CURSOR_HEAD, CURSOR_LEASES, CURSORS
from state import Condition, Outstanding

_NEWEST = """
    SELECT life, block, batch_id, bytes FROM cursors
    WHERE topic = {topic} AND subscription = {subscription} ORDER BY life, batch_id
"""
_LIFE = """
    SELECT MAX(life) AS life FROM cursors
    WHERE topic = {topic} AND subscription = {subscription} AND block = {block} AND bytes IS NOT NULL
"""
Open = dict[int, dict[int, BitMap]]
"""Entries by ledger and redelivery count."""


@dataclass(frozen=True)
class Picture:
    """What settle last said of a subscription.

    Attributes:
        life: which of its lives.
        leases: bytes of who leases its slots.
        events: the version of `consumer_events` up to which this has all that was said.
        head: bytes of what is open.
        blocks: the same, by number.
    """

    life: int
    leases: bytes
    events: int
    head: bytes
    blocks: dict[int, bytes]

    def entries(self, condition: Condition) -> Open:
        """What is in a condition."""
        found: Open = defaultdict(dict)
        for held in Outstanding.restore(self.head, self.blocks).held(condition):
            for ledger, entries in held.positions.by_ledger():
                found[ledger][held.cell.round] = found[ledger].get(held.cell.round, BitMap()) | entries
        return found


class CursorLog:
    """Follows `cursors`.

    Attributes:
        events: the version of `consumer_events` up to which settle has read; -1: nothing.
        released: the version of `redelivery` up to which settle has read; -1: nothing.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Read how far settle is."""
        self._root, self._files, self._folder = root, files, path_of(root, CURSORS)
        self._tail = Tail(files, self._folder, 0)
        self.events, self.released = -1, -1
        self._begin_anew()

    def read(self) -> bool:
        """Read what is new; whether anything is."""
        before = self._tail.next
        try:
            for _, actions in self._tail.news():
                self._take(actions)
        except VersionGone:
            self._begin_anew()
        return self._tail.next > before

    def covers(self, events: int, released: int) -> bool:
        """Whether settle has read so far in both tables."""
        return self.events >= events and self.released >= released

    def picture(self, topic: str, subscription: str) -> Picture | None:
        """What settle last said of the newest life of a subscription; None when it does not know it yet."""
        table = open_table(self._root, CURSORS)
        names = {"topic": _quoted(topic), "subscription": _quoted(subscription)}
        rows = query(_NEWEST.format(**names), cursors=table)
        blocks = _newest_blocks(rows)
        if CURSOR_HEAD not in blocks or CURSOR_LEASES not in blocks:
            return None
        head, leases = blocks.pop(CURSOR_HEAD), blocks.pop(CURSOR_LEASES)
        return Picture(rows[-1]["life"], leases, self._events_of(table), head, blocks)

    def life(self, topic: str, subscription: str) -> int | None:
        """The newest life of a subscription that settle knows; None: it knows none."""
        names = {"topic": _quoted(topic), "subscription": _quoted(subscription)}
        rows = query(_LIFE.format(**names, block=CURSOR_LEASES), cursors=open_table(self._root, CURSORS))
        life: int | None = rows[0]["life"] if rows else None
        return life

    def _events_of(self, table: DeltaTable) -> int:
        found = (_noted(actions) for actions in commits(self._files, self._folder, table.version()))
        return next((each[0] for each in found if each is not None), -1)

    def _take(self, actions: Actions) -> None:
        noted = _noted(actions)
        if noted is not None:
            self.events, self.released = max(self.events, noted[0]), max(self.released, noted[1])

    def _begin_anew(self) -> None:
        last = newest(self._files, self._folder)
        self._tail.next = last + 1
        for actions in commits(self._files, self._folder, last):
            if _noted(actions) is not None:
                self._take(actions)
                return


def _noted(actions: Actions) -> tuple[int, int] | None:
    """The versions up to which a commit of settle covers events and releases; None: it is somebody else's."""
    commit = Commit.loads(metadata(actions))
    if commit is None or "events" not in commit.note:
        return None
    return int(commit.note["events"]), int(commit.note.get("released", -1))


def _newest_blocks(rows: Iterable[dict[str, Any]]) -> dict[int, bytes]:
    """By block the newest bytes of the last life; rows come in the order of lives and batches."""
    rows = list(rows)
    found = {row["block"]: row["bytes"] for row in rows if row["life"] == rows[-1]["life"]}
    return {block: data for block, data in found.items() if data is not None}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
