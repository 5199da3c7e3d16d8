"""What settle says: how far it has read, what is open of a subscription, and who leases its slots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from deltalake import DeltaTable
from pyroaring import BitMap

from pipeline.client.following.tail import Actions, Follower
from pipeline.delta.deltars import open_table, path_of, query, quoted
from pipeline.delta.logs.entries import commits
from pipeline.delta.logs.notes import note_of
from pipeline.storage.files import Files
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from schemas import CURSOR_HEAD, CURSOR_LEASES, CURSORS
from state import Condition, LeaseReplay, unpack_leases

_OWN = "(SELECT * FROM cursors WHERE topic IN ({topics}) AND subscription IN ({subscriptions}))"
_LIVES = f"""
    SELECT topic, subscription, MAX(life) AS life FROM cursors WHERE block = {CURSOR_LEASES} AND bytes IS NOT NULL
    GROUP BY topic, subscription
"""  # noqa: S608 - our own words
Open = dict[int, dict[int, BitMap]]
"""Entries by ledger and redelivery count."""


@dataclass(frozen=True)
class CursorSnapshot:
    """What settle last said of a subscription.

    Attributes:
        rows: of its last life.
        events: the version of `consumer_events` up to which they have all that was said.
    """

    rows: CursorRows
    events: int

    @property
    def leases(self) -> LeaseReplay:
        """Who leases its slots, as of `events`."""
        return unpack_leases(self.rows.blocks[CURSOR_LEASES])

    def entries(self, condition: Condition) -> Open:
        """What is in a condition."""
        found: Open = defaultdict(dict)
        for held in self.rows.outstanding().held(condition):
            for ledger, entries in held.positions.by_ledger():
                count = held.cell.delivered_with
                found[ledger][count] = found[ledger].get(count, BitMap()) | entries
        return found


class CursorLog(Follower):
    """Follows `cursors`.

    Attributes:
        events: the version of `consumer_events` up to which settle has read; -1: nothing.
        released: the version of `redelivery` up to which settle has read; -1: nothing.
        lives: the marker of ingest up to which settle knows who lives; -1: none.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Read how far settle is."""
        super().__init__(files, path_of(root, CURSORS))
        self._root = root
        self.events, self.released, self.lives = -1, -1, -1
        self._lives_at, self._lives = -1, dict[Name, int]()
        self._wanted = set[Name]()
        self._snapshots: dict[Name, CursorSnapshot] | None = None
        self._begin_anew()

    def covers(self, events: int, released: int) -> bool:
        """Whether settle has read so far in both tables."""
        return self.events >= events and self.released >= released

    def want(self, name: Name) -> None:
        """Somebody will ask about a subscription."""
        self._wanted.add(name)

    def keep(self, names: AbstractSet[Name]) -> None:
        """Nobody will ask about others than these."""
        self._wanted &= names

    def snapshot(self, topic: str, subscription: str) -> CursorSnapshot | None:
        """What settle last said of the newest life of a subscription; None when it does not know it yet.

        One look serves all of a turn, which ends with `end_turn`.
        """
        if self._snapshots is None or (topic, subscription) not in self._wanted:
            self.want((topic, subscription))
            self._snapshots = self._read_snapshots()
        return self._snapshots.get((topic, subscription))

    def end_turn(self) -> None:
        """Whoever asks from here on wants to know what is so then."""
        self._snapshots = None

    def _read_snapshots(self) -> dict[Name, CursorSnapshot]:
        table = open_table(self._root, CURSORS)
        topics, subscriptions = (", ".join(map(quoted, sorted(set(each)))) for each in zip(*self._wanted, strict=True))
        rows = by_name(
            query(NEWEST.format(rows=_OWN.format(topics=topics, subscriptions=subscriptions)), cursors=table)
        )
        events = self._events_of(table)
        known = {name: each for name, each in rows.items() if {CURSOR_HEAD, CURSOR_LEASES} <= each.blocks.keys()}
        return {name: CursorSnapshot(each, events) for name, each in known.items()}

    def life(self, topic: str, subscription: str) -> int | None:
        """The newest life of a subscription that settle knows; None: it knows none. One look serves all of a turn."""
        if self._lives_at != self.next:
            rows = query(_LIVES, cursors=open_table(self._root, CURSORS))
            self._lives_at, self._lives = self.next, {(r["topic"], r["subscription"]): r["life"] for r in rows}
        return self._lives.get((topic, subscription))

    def _events_of(self, table: DeltaTable) -> int:
        found = (_noted(actions) for actions in commits(self._files, self._folder, table.version()))
        return next((each[0] for each in found if each is not None), -1)

    def _take(self, _version: int, actions: Actions) -> None:
        noted = _noted(actions)
        if noted is not None:
            known = self.events, self.released, self.lives
            self.events, self.released, self.lives = (max(each) for each in zip(known, noted, strict=True))

    def _begin_anew(self) -> None:
        super()._begin_anew()
        for actions in commits(self._files, self._folder, self.last):
            if _noted(actions) is not None:
                self._take(self.last, actions)
                return


def _noted(actions: Actions) -> tuple[int, int, int] | None:
    """What a commit of settle covers: versions of events and of releases, and a marker; None: it is somebody else's."""
    commit = note_of(actions)
    if commit is None or "events" not in commit.note:
        return None
    return int(commit.note["events"]), int(commit.note.get("released", -1)), int(commit.note.get("lives", -1))
