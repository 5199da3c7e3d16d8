"""What settle and the registry say, as the consumers of a process follow it: the logs of four tables.

- `closed`: redeliveries that are on their way though their messages were acknowledged: nobody is to be handed them.
- `cursors`: how far settle has read, what is open of a subscription, and who leases its slots.
- `consumer_events`, as far as it says who leases which slots: one replay for each subscription.
- `subscriptions`: whether those that somebody consumes are there, and of which type.
"""

from __future__ import annotations

import threading
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyroaring import BitMap

from pipeline.client.tables.deliveryset import NO_SLOT, DeliverySet
from pipeline.client.tables.events import ACK, NACK
from pipeline.client.tables.rows import Key, Rows, chosen
from pipeline.client.tables.tail import Actions, Follower
from pipeline.config.routes import NotInDriver
from pipeline.delta.deltars import open_table, query, quoted
from pipeline.delta.logs.entries import appended, commits, note_of, versions
from pipeline.delta.logs.filestats import greatest
from pipeline.delta.reading.strangers import FOREIGN, broken, left_out
from pipeline.storage.arrays import longs
from pipeline.storage.files import Files
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from schemas import CLOSED, CONSUMER_EVENTS, CURSOR_HEAD, CURSOR_LEASES, CURSORS, SUBSCRIPTIONS
from state import Condition, LeaseReplay, LeaseRow, SubscriptionType, unpack_leases

_OWN = "(SELECT * FROM cursors WHERE topic IN ({topics}) AND subscription IN ({subscriptions}))"
_LIVES = f"""
    SELECT topic, subscription, MAX(life) AS life FROM cursors WHERE block = {CURSOR_LEASES} AND bytes IS NOT NULL
    GROUP BY topic, subscription
"""  # noqa: S608 - our own words


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

    def deliveries(self, condition: Condition) -> DeliverySet:
        """What is in a condition."""
        deliveries = DeliverySet()
        for held in self.rows.outstanding().held(condition):
            for ledger, entries in held.positions.by_ledger():
                deliveries.put(ledger, NO_SLOT, held.cell.delivered_with, entries)
        return deliveries


class CursorLog(Follower):
    """Follows `cursors`.

    Attributes:
        events: the version of `consumer_events` up to which settle has read; -1: nothing.
        released: the version of `redelivery` up to which settle has read; -1: nothing.
        lives: the marker of ingest up to which settle knows who lives; -1: none.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Read how far settle is."""
        super().__init__(root, files, CURSORS)
        self.events, self.released, self.lives = -1, -1, -1
        self._lives_at, self._lives = -1, dict[Name, int]()
        self._names: AbstractSet[Name] = frozenset()
        self._snapshots: dict[Name, CursorSnapshot] | None = None
        self._begin_anew()

    def covers(self, events: int, released: int) -> bool:
        """Whether settle has read so far in both tables."""
        return self.events >= events and self.released >= released

    def begin_turn(self, names: AbstractSet[Name]) -> None:
        """Whoever asks from here on wants to know what is so then, and asks about these subscriptions."""
        self._names, self._snapshots = names, None

    def snapshot(self, topic: str, subscription: str) -> CursorSnapshot | None:
        """What settle last said of the newest life of a subscription; None when it does not know it yet.

        One look serves all of a turn.
        """
        if self._snapshots is None:
            self._snapshots = self._read_snapshots()
        return self._snapshots.get((topic, subscription))

    def _read_snapshots(self) -> dict[Name, CursorSnapshot]:
        table = open_table(self._root, CURSORS)
        topics, subscriptions = (", ".join(map(quoted, sorted(set(each)))) for each in zip(*self._names, strict=True))
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


_CLOSED_COLUMNS = ["topic", "subscription", "life", "ledger_id", "first_entry", "last_entry", "redelivery_count"]


class ClosedLog(Follower):
    """Follows `closed`, for those subscriptions that have a consumer in this process.

    Attributes:
        changes: grows with what is known to be closed.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Stand behind the newest version."""
        super().__init__(root, files, CLOSED)
        self._known: dict[Key, DeliverySet] = {}
        self.changes = 0
        self._lock = threading.Lock()
        self._begin_anew()

    def watch(self, key: Key) -> None:
        """Keep what comes of a subscription."""
        self._known.setdefault(key, DeliverySet())

    def keep(self, keys: AbstractSet[Key]) -> None:
        """Forget what came of all subscriptions but these."""
        with self._lock:
            for key in self._known.keys() - keys:
                del self._known[key]

    def add(self, key: Key, withdrawn: DeliverySet) -> None:
        """Settle says that these are closed."""
        with self._lock:
            self.changes += self._known.setdefault(key, DeliverySet()).put_all(withdrawn)

    def without(self, key: Key, rows: Rows) -> Rows:
        """Rows, less those that are closed."""
        known = self._known.get(key)
        if not known or not rows.counts.any():
            return rows
        with self._lock:
            return rows.where(~(known.holds(rows) & (rows.counts > 0)))

    def _take(self, version: int, actions: Actions) -> None:
        for add in appended(actions) if self._known else ():
            table = self._rows(add["path"], version, _CLOSED_COLUMNS)
            for key in list(self._known):
                self.add(key, _closed(chosen(table, key)))


def _closed(table: pa.Table) -> DeliverySet:
    closed, columns = DeliverySet(), (longs(table, name).tolist() for name in _CLOSED_COLUMNS[3:])
    for ledger, first, last, count in zip(*columns, strict=True):
        closed.put(ledger, NO_SLOT, count, BitMap(range(first, last + 1)))
    return closed


_LEASE_COLUMNS = [
    *("kind", "topic", "subscription", "life", "consumer", "session", "counter", "slot", "handed"),
    *("priority", "lease_ms"),
]


@dataclass
class _Folded:
    """A replay that has all rows up to a version."""

    replay: LeaseReplay
    upto: int


class LeaseLog(Follower):
    """Follows `consumer_events`."""

    def __init__(self, root: str, files: Files) -> None:
        """Stand behind the newest version."""
        super().__init__(root, files, CONSUMER_EVENTS)
        self._folded: dict[Key, _Folded] = {}
        self._begin_anew()

    def replay(self, key: Key) -> LeaseReplay | None:
        """Who leases the slots of a subscription; None when that has to begin with what settle says."""
        found = self._folded.get(key)
        return None if found is None else found.replay

    def begin(self, key: Key, snapshot: CursorSnapshot) -> LeaseReplay:
        """The same from what settle says, and what was said since.

        Raises:
            VersionGone: what was said since is gone; settle has said something newer.
        """
        folded = _Folded(snapshot.leases, snapshot.events)
        for version, actions in versions(self._files, self._folder, folded.upto, self.last):
            self._fold({key: folded}, version, actions)
        self._folded[key] = folded
        return folded.replay

    def keep(self, keys: AbstractSet[Key]) -> None:
        """Forget all replays but these."""
        for key in self._folded.keys() - keys:
            del self._folded[key]

    def _take(self, version: int, actions: Actions) -> None:
        self._fold(self._folded, version, actions)

    def _begin_anew(self) -> None:
        """As well, all replays have to begin anew."""
        super()._begin_anew()
        self._folded = {}

    def _fold(self, replays: dict[Key, _Folded], version: int, actions: Actions) -> None:
        wanted = {key: each for key, each in replays.items() if each.upto < version}
        added = [add["path"] for add in appended(actions) if _may_have_leases(add)] if wanted else []
        # All of them first: a row that is folded in twice may not be void.
        tables = [self._leases(path, version) for path in added]
        for key, folded in wanted.items():
            for table in tables:
                folded.replay.apply(map(_row, chosen(table, key).to_pylist()))
            folded.upto = version

    def _leases(self, path: str, version: int) -> pa.Table:
        """The rows of a file that say who leases which slots."""
        table = self._readable(path, version)
        acks, nacks = (pc.not_equal(table.column("kind"), kind) for kind in (ACK, NACK))
        return table.filter(pc.and_(acks, nacks))

    def _readable(self, path: str, version: int) -> pa.Table:
        """The rows of a file; none of one that settle does not read either, since a stranger has left it."""
        added = [{"path": path, "version": version}]
        if any(each.reason == FOREIGN for each in left_out(self._files, self._folder, added)):
            return self._no_rows(_LEASE_COLUMNS)
        try:
            return self._small_rows(path, version, _LEASE_COLUMNS)
        except (NotInDriver, OSError, pa.ArrowException):
            if broken(self._files, self._folder, CONSUMER_EVENTS, added):
                return self._no_rows(_LEASE_COLUMNS)
            raise


def _may_have_leases(add: dict[str, Any]) -> bool:
    """Whether a file may have rows of leases: in the order of their names, `ack` comes before all of those."""
    return bool(greatest(add.get("stats"), "kind") != ACK)


def _row(row: dict[str, Any]) -> LeaseRow:
    """A row as the fold takes it; what nobody should write is void there."""
    named = {name: row[name] for name in ("session", "counter", "slot", "handed")}
    more = {name: row[name] or 0 for name in ("priority", "lease_ms")}
    return LeaseRow(row["kind"], row["consumer"] or "", **named, **more)


_LINES = """
    SELECT topic, subscription, type, active FROM registry WHERE subscription IN ({names}) AND type IN ({types})
"""
_TYPES = ", ".join(quoted(str(each)) for each in SubscriptionType)


class RegistryLog(Follower):
    """Follows `subscriptions`. Its lines are read when somebody asks after a change."""

    def __init__(self, root: str, files: Files) -> None:
        super().__init__(root, files, SUBSCRIPTIONS)
        self._wanted = set[str]()
        self._lines: dict[Name, set[str]] | None = None
        self._is_new = True
        self._begin_anew()

    def begin_turn(self, names: AbstractSet[Name]) -> None:
        """As `CursorLog.begin_turn`."""
        wanted = {subscription for _, subscription in names}
        self._lines = self._lines if wanted == self._wanted else None
        self._wanted, self._is_new = wanted, True

    def types(self, topic: str, subscription: str) -> set[str] | None:
        """The types of the lines of a subscription that are active; None: it has no line at all.

        One look serves all of a turn.
        """
        if self._is_new:
            self.read()
            self._is_new = False
        if self._lines is None:
            self._lines = self._looked()
        return self._lines.get((topic, subscription))

    def _looked(self) -> dict[Name, set[str]]:
        text = _LINES.format(names=", ".join(map(quoted, sorted(self._wanted))), types=_TYPES)
        found: dict[Name, set[str]] = {}
        for row in query(text, registry=open_table(self._root, SUBSCRIPTIONS)):
            types = found.setdefault((row["topic"], row["subscription"]), set())
            types |= {row["type"]} if row["active"] else set()
        return found

    def _take(self, _version: int, _actions: Actions) -> None:
        self._lines = None

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._lines = None
