"""What is pending, counted once, and then brought up to date by what the logs of the tables have added.

Whoever looks again and again (a page, `delayline top`) would count ten million messages each time. What a commit of
ingest adds lies in ledgers of its own, and what dispatch delivers in files of its own: both are counted by the rules of
`pending`, and added to what is known. All is counted anew when those rules have changed: somebody has joined, left or
sought, a command was given, something was left out for good, or rows were taken out of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.client.insight.asof import CountingRule
from pipeline.client.insight.counting import (
    Changes,
    Counted,
    Since,
    by_due,
    by_minute,
    dues_within,
    first_due,
    opened,
)
from pipeline.client.insight.minutecounts import ListenerMinutes
from pipeline.client.insight.pending import Pending, backlogs, shaped
from pipeline.client.insight.waiting import in_inbox
from pipeline.client.subscribing.registryview import RegistryView
from pipeline.config.errors import VersionGone
from pipeline.delta.deltars import path_of, query
from pipeline.delta.logs.entries import appended, restores, takes_out, versions
from pipeline.storage.files import Files
from pipeline.storage.parquet import typed
from schemas import DELIVERIES, MESSAGES, Table

_READ = ("topic", "subscription", "life", "ledger_id", "entry_id", "publish_time", "deliver_at", "due_time",
         "redelivery_count")  # fmt: skip
_MOVED_BY = ("ledgers", "entries", "due")
_LAST = "SELECT MAX(ledger_id) AS ledger FROM messages"
_MOST_DUES = 1_000_000
"""So many due times are kept, of 24 bytes each."""
_FEW_BYTES = 256 << 20
"""Larger files that came are counted with all others: at that size it takes as long."""


@dataclass(frozen=True)
class _Known:
    """What was counted.

    Attributes:
        of: the tables and the rules by which it was.
        ledger: the first one that no message of them is in.
        minutes: what is pending, but for what commands gave another due time.
        all: with that.
        due: when the first is due, by listener.
        dues: what that was found in, which is the first minute of each listener by due time; None: it is not kept,
            since commands gave something another due time, or there are too many.
    """

    of: Counted
    ledger: int
    minutes: ListenerMinutes
    all: ListenerMinutes
    due: dict[int, int]
    dues: pa.Table | None


class PendingFollower:
    """What is pending in a warehouse, as `pending` counts it.

    Attributes:
        root: the warehouse.
        recounts: how often all was counted.
        registry: who listened at the last look; None: there was none.
    """

    def __init__(self, root: str) -> None:
        """Count nothing yet."""
        self.root, self.recounts = root, 0
        self._files = Files()
        self._known: _Known | None = None
        self.registry: RegistryView | None = None

    def look(self) -> Pending:
        """What is pending now.

        Raises:
            NoWarehouse: the folder lacks a table.
        """
        # What fails below leaves nothing to go on from: the warehouse may be another one by the next look.
        before, self._known = self._known, None
        now = opened(self.root, (None, None), None, self.registry)
        self.registry = now.registry
        known = None if before is None else self._followed(before, now)
        if known is None:
            known = self._counted(now)
            self.recounts += 1
        self._known = known
        counts, waiting = backlogs(now, known.all, known.due), in_inbox(self.root)
        numbers = {DELIVERIES.name: now.deliveries.version(), MESSAGES.name: now.messages.version()}
        return Pending(tuple(shaped(self.root, counts, now)), waiting, numbers)

    def _counted(self, now: Counted) -> _Known:
        """Count all."""
        with now.changes() as changes:
            return self._completed(now, changes, by_minute(changes.tables, changes.logs))

    def _followed(self, known: _Known, now: Counted) -> _Known | None:
        """Count what came since; None: all has to be counted."""
        if known.of.since != now.since or not _same(known.of.rule, now.rule):
            return None
        pairs = ((known.of.deliveries, now.deliveries), (known.of.messages, now.messages))
        if any(one.metadata().id != other.metadata().id or one.version() > other.version() for one, other in pairs):
            return None
        fresh = self._delivered_since(known.of, now)
        if fresh is None or self._taken_out(MESSAGES, known.of.messages.version(), now.messages.version()):
            return None
        # What fell below the mark since was counted, and is taken off when its delivery is met.
        now = replace(now, settled=known.of.settled)
        with now.changes(Since(known.ledger, fresh)) as changes:
            new = by_minute(changes.tables, changes.logs)
            return self._completed(now, changes, known.minutes + new, known)

    def _completed(
        self, now: Counted, changes: Changes, minutes: ListenerMinutes, before: _Known | None = None
    ) -> _Known:
        """With what commands gave another due time, and with the first due times."""
        moved = by_minute(changes.tables, changes.moved)
        everything = (minutes + moved).positive()
        dues = _dues(now, changes, everything.firsts(), None if moved else before)
        ledgers = query(_LAST, messages=now.messages)[0]["ledger"]
        kept = None if moved or dues.num_rows > _MOST_DUES else dues
        return _Known(now, 0 if ledgers is None else ledgers + 1, minutes, everything, first_due(dues), kept)

    def _taken_out(self, table: Table, after: int, upto: int) -> bool:
        """Whether rows of a table were taken out, or nobody can say."""
        try:
            found = [actions for _, actions in versions(self._files, path_of(self.root, table), after, upto)]
        except VersionGone:
            return True
        return any(takes_out(actions) or restores(actions) for actions in found)

    def _delivered_since(self, known: Counted, now: Counted) -> pa.Table | None:
        """First deliveries that came since; None: nobody can say."""
        first, last = known.deliveries.version(), now.deliveries.version()
        if self._taken_out(DELIVERIES, first, last):
            return None
        folder, pieces = path_of(self.root, DELIVERIES), []
        try:
            added = [add for _, each in versions(self._files, folder, first, last) for add in appended(each)]
            if sum(each["size"] for each in added) > _FEW_BYTES:
                return None
            for each in added:
                with self._files.open(f"{folder}/{each['path']}") as file:
                    # Files are small. A thread for each column takes longer than the columns.
                    rows = pq.ParquetFile(file).read(list(_READ), use_threads=False)
                pieces.append(typed(DELIVERIES, rows, _READ))
        except (VersionGone, FileNotFoundError):
            return None
        if not pieces:
            return pa.table({"redelivery_count": pa.array([], pa.int64())})
        return _first_deliveries(pa.concat_tables(pieces))


def _same(some: CountingRule, others: CountingRule) -> bool:
    """Whether two rules leave out the same positions, and give the same ones other due times."""
    if some.in_force != others.in_force or some.moved.keys() != others.moved.keys():
        return False
    pairs = ((each, others.moved[of]) for of, each in some.moved.items())
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for one, other in pairs for name in _MOVED_BY)


def _dues(now: Counted, changes: Changes, first: Mapping[int, int], before: _Known | None) -> pa.Table:
    """The first minute of each listener by due time.

    Args:
        now: what counts.
        changes: since the look before.
        first: the first minute of each listener.
        before: what is known of that look. Of a listener whose first minute it was, changes are added; None: of nobody.
    """
    if before is None or before.dues is None:
        return dues_within(now, first)
    known = before.all.firsts()
    same = {number: at for number, at in first.items() if known.get(number) == at}
    others = {number: at for number, at in first.items() if number not in same}
    kept = before.dues.filter(pc.is_in(before.dues.column("listener"), pa.array(list(same), pa.int64())))
    new = by_due(changes.tables, changes.logs, same)
    summed = pa.concat_tables([kept, new]).group_by(["listener", "due_ms"]).aggregate([("change", "sum")])
    summed = summed.rename_columns(kept.column_names)
    return pa.concat_tables([summed.filter(pc.not_equal(summed.column("change"), 0)), dues_within(now, others)])


def _first_deliveries(rows: pa.Table) -> pa.Table:
    """Rows of first deliveries, with times as numbers."""
    rows = rows.filter(pc.equal(rows.column("redelivery_count"), 0))
    columns = {name: rows.column(name) for name in _READ}
    for name in ("publish_time", "deliver_at", "due_time"):
        columns[name] = columns[name].cast(pa.int64())
    # What was sent without a time is due when it was sent.
    columns["deliver_at"] = pc.coalesce(columns["deliver_at"], columns["publish_time"])
    return pa.table({**columns, "message_key": pa.nulls(rows.num_rows, pa.string()).fill_null("")})
