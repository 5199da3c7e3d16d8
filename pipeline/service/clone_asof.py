"""A copy of a warehouse set back to an instant: what had been sent by then, and not been delivered, waits in it.

It is set back by what rows say of times, as `pipeline.client.insight.asof` counts, and not by old versions, which are
gone within minutes. What was delivered, left out or commanded later is taken out of the copy, and so are the releases
of that. Then a rebuild finds that these messages wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from pipeline.client.commanding.inforce import rows as commands
from pipeline.client.insight.asof import at_instant
from pipeline.client.insight.recurring import plan_of
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.client.tables.untaken import untaken
from pipeline.config.errors import BadValue
from pipeline.config.spelling import iso_text
from pipeline.config.stages import DISPATCH
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset
from pipeline.delta.deltars import append, arrow_of, instant, open_table, query
from pipeline.delta.logs.entries import between, log_files, newest
from pipeline.delta.logs.filestats import first_ms
from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.plan import DispatchProgress
from pipeline.dispatch.prepared import PreparedStore, Visible
from pipeline.ingest.plan import last_commits_of_ingest, taken
from pipeline.service.pending_local import RunSet
from pipeline.storage.arrays import arrow_schema, grouped, longs
from pipeline.storage.files import Files
from pipeline.subscriptions.scheduleplans import NAME, NEVER, Plan, PlanFile
from pipeline.subscriptions.settled import read_mark
from schemas import (
    COMMANDS,
    DELIVERIES,
    HELD,
    INBOX,
    MESSAGES,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REPLACED,
    Table,
)
from state.units import Ms

_OWNER = "clone"
"""Who notes in the tables of dispatch that the copy begins there."""
_BEFORE = -(1 << 62)
_OF = ("topic", "subscription", "life")
_LATER = (
    (REJECTED_DISPATCH, "rejected_at"),
    (PUBLICATIONS, "committed_at"),
    (COMMANDS, "at"),
    (REPLACED, "replaced_at"),
    (MESSAGES, "publish_time"),
)
"""Tables whose rows go when this time of theirs is later than the instant."""
_REDELIVERY = arrow_schema(REDELIVERY.columns)
_RUNS = pa.schema([_REDELIVERY.field(name) for name in (*_OF, "ledger_id", "first_entry", "last_entry", "due_time")])
_SINGLE = "topic, subscription, life, ledger_id, entry_id AS first_entry, entry_id AS last_entry, due_time"
_LATE = f"SELECT {_SINGLE} FROM ({{rows}})"  # noqa: S608 - our own words
_LEFT_OUT = f"SELECT {_SINGLE} FROM t WHERE due_time <= {{then}} AND rejected_at > {{then}}"  # noqa: S608 - the same
_HELD = f"SELECT {', '.join(_RUNS.names)} FROM t WHERE due_time <= {{then}}"  # noqa: S608 - the same
_FIRST = "SELECT MIN(first_due) AS due FROM t WHERE committed_at > {then}"


def check(root: str, as_of: int) -> None:
    """Refuse an instant to which a warehouse cannot be set back.

    Args:
        root: the warehouse.
        as_of: the instant, ms UTC.

    Raises:
        BadValue: the instant is too early, or the tables do not tell what was so then.
    """
    asked, then = iso_text(as_of), instant(as_of)
    for each in subscriptions(root):
        if each.policies.ack:
            # What was open then nobody knows any more: what consumers said is kept for an hour.
            raise BadValue("as_of", asked, f"nothing, while {each.topic}/{each.name} acknowledges")
    if commands(root, ("at",), f"round IS NOT NULL AND at > {then}").num_rows:
        raise BadValue("as_of", asked, "a time since which no message got another due time")
    mark = read_mark(Files(), root)
    first = query(_FIRST.format(then=then), t=open_table(root, PUBLICATIONS))[0]["due"]
    if mark.due_ms >= min(as_of, as_of if first is None else int(first.timestamp() * 1_000)):
        raise BadValue("as_of", asked, f"a time behind {iso_text(mark.due_ms)}: messages of before may be deleted")
    begun = _taken(Warehouse(root))[1] >= 0
    if begun or any(first_ms(each.get("stats"), "publish_time", _BEFORE) <= as_of for each in untaken(root)):
        raise BadValue("as_of", asked, "a time up to which ingest has taken all that was sent")
    if _unfinished(Warehouse(root), as_of):
        raise BadValue("as_of", asked, "a time up to which dispatch has delivered or held what was due")


def _unfinished(warehouse: Warehouse, as_of: int) -> bool:
    """Whether dispatch has yet to make something visible that was due by then."""
    files, path = warehouse.files, warehouse.path(REDELIVERY)
    done = max(DispatchProgress.of(warehouse).done, (0, EVERYTHING_BEFORE))
    added = between(files, path, done, (newest(files, path) + 1, EVERYTHING_BEFORE)) or []
    visible = Sink(warehouse, DELIVERIES, DISPATCH).last
    shown = Visible() if visible is None else Visible.of(visible.note)
    hidden = shown.hidden(PreparedStore(files, warehouse.path(DELIVERIES)).all())
    firsts = [first_ms(each.get("stats"), "due_time", _BEFORE) for each in added]
    return min([*firsts, *(part.first_due for _, part in hidden)], default=as_of + 1) <= as_of


def set_back(root: str, as_of: int) -> None:
    """Take out of a copy what came after an instant.

    Args:
        root: the copy; nobody works on it.
        as_of: the instant, ms UTC; the source passed `check`.
    """
    undecided = _Undecided.of(root, as_of)
    for table in (DELIVERIES, REDELIVERY):
        open_table(root, table).delete(f"due_time > {instant(as_of)}")
        undecided.take_out(root, table)
    for table, column in _LATER:
        open_table(root, table).delete(f"{column} > {instant(as_of)}")
    plan = plan_of(root)
    _end_inbox(Warehouse(root))
    if plan is not None:
        _plan_from(root, plan, as_of)
    _begin_dispatch(Warehouse(root), as_of)


def _end_inbox(warehouse: Warehouse) -> None:
    """Let the inbox end where ingest stands: what came later was sent later."""
    files, path = warehouse.files, warehouse.path(INBOX)
    version, index = _taken(warehouse)
    for file in log_files(files.names(f"{path}/_delta_log")):
        if file.version >= max(1, version + (index >= 0)):
            files.delete(f"{path}/_delta_log/{file.name}")


def _plan_from(root: str, plan: Plan, as_of: int) -> None:
    """Let what recurs be planned from the instant on: a message of a schedule is sent when it occurs."""
    number, until = open_table(root, INBOX).transaction_version(NAME), min(plan.until, as_of)
    # The next one of each is planned behind that, if it occurred by then.
    back = replace(plan, number=NEVER if number is None else number, until=until)
    back = replace(back, ahead_ms=min(plan.ahead_ms, as_of - until), bound=min(plan.bound, as_of + 1))
    let_go = {name: min(end, as_of + 1) for name, end in plan.let_go.items()}
    PlanFile(Files(), root).write([replace(back, let_go=let_go)], None)


def _taken(warehouse: Warehouse) -> Offset:
    """The place in the inbox up to which ingest has taken it."""
    last = next(iter(last_commits_of_ingest(warehouse).values()), None)
    return (0, EVERYTHING_BEFORE) if last is None else taken(last)[:2]


@dataclass(frozen=True)
class _Undecided:
    """What was due by an instant, and was delivered or left out later, or is held.

    Attributes:
        runs: the positions of each life of a subscription.
        first: when the first of them was due, microseconds UTC.
        last: the instant, microseconds UTC.
    """

    runs: Mapping[tuple[Any, ...], RunSet]
    first: int
    last: int

    @classmethod
    def of(cls, root: str, as_of: int) -> Self:
        """What it is by the tables of a copy that is not set back yet."""
        then, rule = instant(as_of), at_instant(root, as_of)
        found = [arrow_of(_LEFT_OUT.format(then=then), t=open_table(root, REJECTED_DISPATCH))]
        found.append(arrow_of(_HELD.format(then=then), t=open_table(root, HELD)))
        if rule.late is not None:
            tables = {"deliveries": open_table(root, DELIVERIES), **rule.tables}
            found.append(arrow_of(_LATE.format(rows=rule.late), **tables))
        rows = pa.concat_tables([each.cast(_RUNS) for each in found]).combine_chunks()
        columns = [longs(rows, name) for name in ("ledger_id", "first_entry", "last_entry")]
        runs = {tuple(name.values()): RunSet(*(each[mine] for each in columns)) for name, mine in grouped(rows, _OF)}
        return cls(runs, int(longs(rows, "due_time").min(initial=as_of * 1_000)), as_of * 1_000)

    def take_out(self, root: str, table: Table) -> None:
        """Take these positions out of a table."""
        if not self.runs:
            return
        within = f"arrow_cast(due_time, 'Int64') BETWEEN {self.first} AND {self.last}"
        names = ", ".join(table.columns.names)
        rows = arrow_of(f"SELECT {names} FROM t WHERE {within}", t=open_table(root, table))  # noqa: S608 - numbers
        rows = rows.cast(arrow_schema(table.columns))
        kept = pa.concat_tables([rows.slice(0, 0), *self._kept(rows)])
        open_table(root, table).delete(f"due_time >= {_micros(self.first)} AND due_time <= {_micros(self.last)}")
        append(root, table, kept)

    def _kept(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows that name none of them, and the other positions of those that do, each by itself."""
        first, last = ("first_entry", "last_entry") if "first_entry" in rows.column_names else ("entry_id",) * 2
        for name, mine in grouped(rows, _OF):
            own = rows.take(pa.array(mine))
            if (runs := self.runs.get(tuple(name.values()))) is None:
                yield own
                continue
            lengths = longs(own, last) - longs(own, first) + 1
            run = np.repeat(np.arange(len(lengths)), lengths)
            entries = np.arange(len(run)) - np.repeat(np.cumsum(lengths) - lengths - longs(own, first), lengths)
            gone = runs.holds(longs(own, "ledger_id")[run], entries)
            whole = np.bincount(run, gone, len(lengths)) == 0
            yield own.filter(pa.array(whole))
            single = ~gone & ~whole[run]
            rest = own.take(pa.array(run[single]))
            for column in (first, last):
                rest = rest.set_column(rest.schema.get_field_index(column), column, pa.array(entries[single]))
            yield rest


def _micros(us: int) -> str:
    """An instant in microseconds as a literal of SQL."""
    return f"arrow_cast({us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _begin_dispatch(warehouse: Warehouse, as_of: int) -> None:
    """Note that nothing is prepared or held, and that all releases that are left were taken."""
    files, held = warehouse.files, Sink(warehouse, HELD, DISPATCH)
    taken = newest(files, warehouse.path(REDELIVERY)) + 1, EVERYTHING_BEFORE
    _, live = live_files(files, warehouse.path(HELD)) or (0, [])
    gone = {unquote(each["path"]): int(each["size"]) for each in live}
    held.commit([], _OWNER, 0, {"begin": None, "source": taken, "since": held.version}, gone)
    deliveries = Sink(warehouse, DELIVERIES, DISPATCH)
    top = 0 if deliveries.last is None else Visible.of(deliveries.last.note).top
    shown = Visible(top, frozenset(), taken, Ms(as_of)).as_dict()
    deliveries.commit([], _OWNER, 0, {**shown, "shown": [], "shown_ms": as_of})
