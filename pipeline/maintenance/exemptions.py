"""What maintenance leaves in the tables though it is old, and who is forgotten though the tables tell of it.

A subscription that acknowledges may leave a message open for weeks: its consumers are slow, or it fails and comes again
after days. The tables that lead to it must keep it; its neighbours go. So a file is asked row by row, by bitmaps of the
open entries of each ledger, of which a few blocks are decoded at a time (`docs/format.md`, Cursor).

Who left long ago is forgotten: marker rows of `segments` and lines of the registry that tell of it (decision 0110). A
subscription that leaves may come back, and its new life must have a number that no earlier one had. So of all who are
forgotten the row stays that has the highest number, and whoever is new begins above it (`lives_of`).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError
from pyroaring import BitMap

from pipeline.config.stages import INGEST, SETTLE
from pipeline.delta.deltars import LOG_STAYS, open_table, query, quoted
from pipeline.delta.logs.entries import exists, newest
from pipeline.delta.warehouse import Warehouse, ask, read_here
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.dispatch.plan import DispatchProgress
from pipeline.maintenance.readers import settled_upto
from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.cursors import NEWEST, CursorRows, by_name
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.registry import Registry
from pipeline.subscriptions.settled import SettledMark
from schemas import COMMANDS, CURSORS, LEFT, MESSAGES, REDELIVERY, RESCHEDULED, SEGMENTS, SUBSCRIPTIONS
from state import Condition
from state.cursor_bytes import LEDGERS, block_counts, read_block

_DECODED = 64
"""So many blocks are held decoded."""
_OPEN = (Condition.OUTSTANDING, Condition.WAITING)
_MOVES = "SELECT MAX(due_time) AS due, MAX(ledger_id) AS ledger FROM {rows} WHERE round IS NOT NULL"
_LATE = f"SELECT ledger_id, MAX(due_time) AS due FROM {{rows}} WHERE cause = '{RESCHEDULED}' GROUP BY ledger_id"  # noqa: S608
"""What was released at another due time: dispatch has taken it for good when that is below the mark."""
Flags = npt.NDArray[np.bool_]


class OpenPositions:
    """Positions that stay: what is outstanding or waiting of any subscription, and some ledgers as a whole.

    Memory is that of the bytes of the cursors, and of a few decoded blocks.
    """

    def __init__(self, cursors: Iterable[CursorRows] = (), ledgers: Collection[int] = ()) -> None:
        """Read the heads of cursors; a block is decoded when it is asked for.

        Args:
            cursors: of all subscriptions.
            ledgers: these stay whole.

        Raises:
            CorruptBytes: bytes that cannot be read, or a block that is missing: nobody knows then what is open.
        """
        self._whole = np.array(sorted(set(ledgers)), np.int64)
        self._blocks: dict[int, list[bytes]] = defaultdict(list)
        self._withdrawn: list[bytes] = []
        for cursor in cursors:
            self._add(cursor)
        self._numbers = np.array(sorted(self._blocks), np.int64)
        self._read = lru_cache(_DECODED)(self._decoded)

    def _add(self, cursor: CursorRows) -> None:
        cursor.outstanding()
        for number, data in cursor.ledgers.items():
            _, counts = block_counts(data)
            if counts.outstanding or counts.waiting:
                self._blocks[number].append(data)
            if counts.withdrawn:
                self._withdrawn.append(data)

    @property
    def oldest(self) -> int | None:
        """The lowest ledger of which something stays; None: nothing does."""
        opened = (min(self._read(number)) for number in self._numbers[:1].tolist())
        return min((*self._whole[:1].tolist(), *opened), default=None)

    def between(self, first: int, last: int) -> bool:
        """Whether something of these ledgers may stay; of what is open blocks tell, which are a few ledgers each."""
        return _any_between(self._whole, first, last) or _any_between(self._numbers, first // LEDGERS, last // LEDGERS)

    def meets(self, ledgers: IntArray, firsts: IntArray, lasts: IntArray) -> Flags:
        """Which runs of entries (the last one included) have one that stays.

        O(runs log runs), and the open entries of their ledgers.
        """
        found: Flags = np.isin(ledgers, self._whole)
        order = np.argsort(ledgers, kind="stable")
        heads = np.flatnonzero(np.diff(ledgers[order], prepend=-1))
        for rows in np.split(order, heads[1:]) if len(order) else ():
            ledger = int(ledgers[rows[0]])
            entries = self._read(ledger // LEDGERS).get(ledger)
            if entries is not None:
                low, high = np.searchsorted(entries, firsts[rows]), np.searchsorted(entries, lasts[rows], side="right")
                found[rows] |= low < high
        return found

    def withdrawn(self) -> set[int]:
        """The ledgers in which a redelivery waits of what was settled meanwhile."""
        found = set[int]()
        for data in self._withdrawn:
            for ledger, cells in read_block(data).items():
                found |= {ledger} if any(cell.condition == Condition.WITHDRAWN for cell in cells) else set()
        return found

    def _decoded(self, number: int) -> dict[int, IntArray]:
        """The open entries of each ledger of a block, ascending."""
        open_of: dict[int, BitMap] = {}
        for data in self._blocks.get(number, ()):
            for ledger, cells in read_block(data).items():
                mine = [entries for cell, entries in cells.items() if cell.condition in _OPEN]
                if mine:
                    open_of[ledger] = BitMap.union(open_of.get(ledger, BitMap()), *mine)
        return {ledger: np.asarray(entries.to_array(), np.int64) for ledger, entries in open_of.items()}


def _any_between(numbers: IntArray, first: int, last: int) -> bool:
    """Whether one of some ascending numbers lies there."""
    low, high = np.searchsorted(numbers, (first, last + 1))
    return bool(low < high)


@dataclass(frozen=True)
class ExemptRows:
    """Rows of some topics stay longer than the others.

    Attributes:
        topics: the topics.
        after_ms: theirs stay when they were due after that, ms UTC.
    """

    topics: tuple[str, ...] = ()
    after_ms: int = 0

    def less(self, condition: str) -> str:
        """An SQL condition less these rows."""
        if not self.topics:
            return condition
        named = ", ".join("'" + topic.replace("\\", "\\\\").replace("'", "\\'") + "'" for topic in self.topics)
        return f"{condition} AND NOT (topic IN ({named}) AND due_time > timestamp_millis({self.after_ms}))"

    def among(self, rows: pa.Table) -> Flags:
        """Which rows they are, by their columns `topic` and `due_time`."""
        mine: Flags = pc.is_in(rows.column("topic"), pa.array(self.topics)).to_numpy()
        return mine & (longs(rows, "due_time") > self.after_ms * 1_000)


def moves(warehouse: Warehouse, mark: SettledMark) -> bool:
    """Whether commands may give something above a mark another due time. Without commands it is a look at a log."""
    if newest(warehouse.files, warehouse.path(COMMANDS)) <= 0:
        return False
    (row,) = ask(warehouse, COMMANDS, _MOVES)
    due, ledger = row["due"], row["ledger"]
    return due is not None and not (due.timestamp() * 1_000 <= mark.due_ms and ledger < mark.ledger)


def left_below(warehouse: Warehouse, mark: SettledMark) -> OpenPositions:
    """The ledgers of which messages are left below a mark."""
    rows = ask(warehouse, MESSAGES, f"SELECT DISTINCT ledger_id FROM {{rows}} WHERE {mark.covers('due_time')}")  # noqa: S608 - numbers
    return OpenPositions(ledgers=[row["ledger_id"] for row in rows])


class SettleBehind(Exception):
    """Settle has not read all that was released, so nobody knows what is open."""


@dataclass(frozen=True)
class RetentionLimits:
    """What stays though it is old.

    Attributes:
        open: messages, their releases and their deliveries.
        closed: ledgers of which `closed` is needed yet: a redelivery that it names waits in the index, or it was
            released within the retention, so that dispatch or a client may not have passed it. None: all of the table.
        letters: the topics of dead letters, whose messages have a retention of their own.
    """

    open: OpenPositions = field(default_factory=OpenPositions)
    closed: OpenPositions | None = None
    letters: tuple[str, ...] = ()


def retention_limits(warehouse: Warehouse, released: int, mark: SettledMark) -> RetentionLimits:
    """What stays at present. What is open is read before the releases: what waits in neither has been settled.

    Args:
        warehouse: whose tables.
        released: settle must have read this version of `redelivery`.
        mark: below it all is settled, but for what got another due time.

    Raises:
        CorruptBytes: `cursors` cannot be read: nobody knows what is open.
        SettleBehind: settle has not read so far.
    """
    read, names, moved = settled_upto(warehouse), Registry(warehouse).newest().acknowledging, moves(warehouse, mark)
    if read is None and not moved:
        return RetentionLimits()
    if read is None:
        raise SettleBehind("settle has not read the commands that give messages another due time")
    if read["released"] < released:
        text = f"settle has read version {read['released']} of redelivery, dispatch {released}: what is open is unknown"
        raise SettleBehind(text)
    cursors = by_name(ask(warehouse, CURSORS, NEWEST))
    again_at = ask(warehouse, REDELIVERY, _LATE) if moved else ()
    late = [row["ledger_id"] for row in again_at if row["due"].timestamp() * 1_000 > mark.due_ms]
    kept = OpenPositions(cursors.values(), late)
    again = ask(warehouse, REDELIVERY, "SELECT DISTINCT ledger_id FROM {rows} WHERE redelivery_count > 0")
    policies = ((name, line.policies) for name, line in names.items())
    letters = {each.dead_letters(*name) for name, each in policies if each.max_redeliveries is not None}
    closed = OpenPositions(ledgers={*kept.withdrawn(), *(row["ledger_id"] for row in again)})
    return RetentionLimits(kept, closed, tuple(sorted(letters)))


_CHANGES = """
    SELECT topic, subscriptions, marker, first_ledger, loaded_until FROM {rows} WHERE first_ledger IS NOT NULL
"""
_ENDED = """
    SELECT topic, subscription FROM registry WHERE subscription <> ''
    GROUP BY topic, subscription HAVING MAX(CASE WHEN active THEN 1 ELSE 0 END) = 0
"""
_NAMED = 100
"""So many names are in the condition of a deletion."""
Place = tuple[int, int]
"""Marker and first ledger, by which rows about a subscription are ordered; `LEFT` is below all ledgers."""
COLUMNS = ("topic", "subscriptions", "marker", "first_ledger")
"""What tells whether a row of `segments` goes."""


@dataclass(frozen=True)
class Change:
    """A marker row about a subscription: it joined, or left.

    Attributes:
        name: topic and subscription.
        place: marker and first ledger.
        life: the number; 0: the row is of an older version, which did not say it.
        loaded_ms: ingest had loaded until then, ms UTC; the row is older than that.
    """

    name: Name
    place: Place
    life: int
    loaded_ms: int

    @property
    def left(self) -> bool:
        """Whether it left."""
        return self.place[1] == LEFT


@dataclass(frozen=True)
class Forgotten:
    """Which marker rows go.

    Attributes:
        before: rows about a subscription go that are before this place.
        names: who is forgotten as a whole.
        highest: the row that stays of those; None: nobody is forgotten.
        unnoticed: who came and left without a marker row: their lines of the registry go, too.
    """

    before: Mapping[Name, Place] = field(default_factory=dict)
    names: frozenset[Name] = frozenset()
    highest: tuple[Name, Place] | None = None
    unnoticed: frozenset[Name] = frozenset()

    @property
    def lines(self) -> frozenset[Name]:
        """Whose lines of the registry go."""
        return self.names | self.unnoticed

    @classmethod
    def of(cls, changes: Iterable[Change], until_ms: int, passed: int) -> Forgotten:
        """What is told by rows that are older than an instant (ms UTC), up to a marker that all stages have passed.

        Of who is there, or left lately, the rows before its last old life go: that one says its number.
        """
        by_name = defaultdict[Name, list[Change]](list)
        for each in sorted(changes, key=lambda each: each.place):
            by_name[each.name].append(each)
        before, gone, earlier = dict[Name, Place](), list[Change](), list[Change]()
        for name, history in by_name.items():
            # Who has come back may have been the one with the highest number of all who were forgotten before.
            earlier += [each for each in history[:1] if each.left and each.life]
            old = [each for each in history if each.loaded_ms <= until_ms and each.place[0] <= passed and each.life]
            if old and old[-1] is history[-1] and old[-1].left:
                gone.append(old[-1])
                before[name] = (old[-1].place[0], LEFT + 1)
            elif joined := [each.place for each in old if not each.left]:
                before[name] = joined[-1]
        top = max((*earlier, *gone), key=lambda each: (each.life, each.place), default=None)
        stays = None if top is None else (top.name, top.place)
        return cls(before, frozenset(each.name for each in gone), stays)

    def among(self, rows: pa.Table) -> pa.BooleanArray:
        """Which rows go, by `COLUMNS`; only marker rows about a subscription do."""
        about = np.flatnonzero(pc.is_valid(rows["first_ledger"]).to_numpy())
        some = rows.select(list(COLUMNS)).take(pa.array(about))
        flags = np.zeros(rows.num_rows, np.bool_)
        flags[about] = [
            bool(of) and self._has((topic, of[0]["name"]), (marker, first))
            for topic, of, marker, first in zip(*(some[name].to_pylist() for name in COLUMNS), strict=True)
        ]
        return pa.array(flags)

    def _has(self, name: Name, place: Place) -> bool:
        return name in self.before and place < self.before[name] and (name, place) != self.highest


def forgotten(warehouse: Warehouse, mark: SettledMark) -> Forgotten:
    """What is forgotten: what was old when all below a mark became due."""
    # First: whoever joins after this look has not ended at it.
    ended = _ended_names(warehouse)
    rows = ask(warehouse, SEGMENTS, _CHANGES)
    changes = [
        Change(
            (row["topic"], each["name"]),
            (row["marker"], row["first_ledger"]),
            each["life"] or 0,
            sys.maxsize if row["loaded_until"] is None else round(row["loaded_until"].timestamp() * 1_000),
        )
        for row in rows
        for each in row["subscriptions"] or ()
        if row["marker"] is not None
    ]
    unnoticed = ended - {each.name for each in changes}
    return replace(Forgotten.of(changes, mark.due_ms, _passed(warehouse)), unnoticed=unnoticed)


def _ended_names(warehouse: Warehouse) -> frozenset[Name]:
    """Who was not active any more when ingest last looked. Without a marker row it came and left in between."""
    last = last_commit(warehouse, SEGMENTS, INGEST)
    version = None if last is None else last.note.get("registry")
    path = warehouse.path(SUBSCRIPTIONS)
    if version is None or version < 0 or not exists(warehouse.files, path, version):
        return frozenset()
    # None when its files are gone: then in the next round.
    rows = read_here(warehouse.files, path, version, lambda opened: query(_ENDED, registry=opened)) or ()
    return frozenset((row["topic"], row["subscription"]) for row in rows)


def _passed(warehouse: Warehouse) -> int:
    """The marker by which no stage that may repeat a batch, or is behind, asks for who lived before."""
    limits, torn = [sys.maxsize], DispatchProgress.of(warehouse).torn
    if torn is not None:
        limits.append(torn.lives)
    if settled_upto(warehouse) is not None:
        last = last_commit(warehouse, CURSORS, SETTLE)
        limits.append(0 if last is None else int(last.note.get("lives", 0)))
    return min(limits)


def forget_lines(warehouse: Warehouse, names: Iterable[Name]) -> int:
    """Delete the lines of the registry, and the history, of subscriptions that are forgotten; give of how many.

    Whoever registers meanwhile is faster: the rest waits for the next round. A name that has come back keeps all.
    """
    if warehouse.files.readable(warehouse.path(SUBSCRIPTIONS)) is None:
        return 0
    rows = query(_ENDED, registry=open_table(warehouse.root, SUBSCRIPTIONS))
    ended, done = sorted({(row["topic"], row["subscription"]) for row in rows} & set(names)), 0
    for begin in range(0, len(ended), _NAMED):
        few = ended[begin : begin + _NAMED]
        named = " OR ".join(f"topic = {quoted(topic)} AND subscription = {quoted(name)}" for topic, name in few)
        try:
            open_table(warehouse.root, SUBSCRIPTIONS).delete(
                f"NOT active AND ({named})",
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=LOG_STAYS,
            )
        except CommitFailedError:
            break
        done += len(few)
    return done
