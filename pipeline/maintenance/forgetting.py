"""Who left long ago is forgotten: marker rows of `segments` and lines of the registry that tell of it (decision 0110).

A subscription that leaves may come back, and its new life must have a number that no earlier one had. So of all who
are forgotten the row stays that has the highest number, and whoever is new begins above it (`lives_of`).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from pipeline.config.stages import INGEST, SETTLE
from pipeline.delta.deltars import LOG_STAYS, open_table, query, quoted
from pipeline.delta.logs.entries import exists
from pipeline.delta.warehouse import Warehouse, ask, read_here
from pipeline.delta.writing.oncewriter import last_commit
from pipeline.maintenance.readers import settled_upto, torn_batch
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.settled import SettledMark
from schemas import CURSORS, LEFT, SEGMENTS, SUBSCRIPTIONS

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
    limits, torn = [sys.maxsize], torn_batch(warehouse)
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
