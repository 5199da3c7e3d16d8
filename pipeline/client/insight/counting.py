"""What is pending, counted from the tables alone, while the job runs.

Pending for a subscription is what ingest accepted for it less what dispatch delivered to it:

- accepted: the rows of `messages` of its topic, from the first ledger that ingest noted for it in the marker rows of
  `segments`. A subscription that ingest has not noticed yet has all of them (`earliest`) or none (`latest`).
- delivered: its rows in `deliveries` from that ledger on and of its present life, with `redelivery_count` 0.
- What commands withdraw, or give another due time, is left out on both sides, whether it was too late for that or not.
  So is what dispatch left out for good: what expired, or did not meet a guard.
  What got another due time, and is neither delivered nor withdrawn, is counted by that time.

Both sides are counted by minute of due time and subtracted, so no join of positions is needed: memory grows with the
minutes that have something pending, time with the rows of both tables, of which three narrow columns are read. What is
left out on both sides is joined by its position, and by a number that stands for topic and subscription: with their
names in the join it takes twice as long.
`deliveries` is opened before `messages`, so nothing is delivered in the one and unknown in the other. What retention
may delete from `messages` is below a mark that is read last (`pipeline.subscriptions.settled`): it is delivered, and
left out on both sides.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from pipeline.client.commanding.inforce import delivered
from pipeline.client.insight.asof import CountingRule, at_instant, at_present
from pipeline.client.insight.minutecounts import NO_MINUTES, ListenerMinutes
from pipeline.client.subscribing.lives import lives_of
from pipeline.client.subscribing.registryview import RegistryView, registry_view
from pipeline.client.tables.relations import longs_table, relation, table_of
from pipeline.config.errors import BadValue
from pipeline.config.settings import MINUTE_MS
from pipeline.delta.deltars import arrow_of, instant, open_table
from pipeline.storage.arrays import longs
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import DELIVERIES, MESSAGES
from state.buckets import MAX_TIME
from state.positionset import PositionSet
from state.withdrawals import Round

_POSITION = ("listener", "ledger_id", "entry_id")
_FIRST = pa.schema([("listener", pa.int64()), ("minute", pa.int64())])
_LISTENER = pa.schema(
    [("listener", pa.int64()), ("topic", pa.string()), ("subscription", pa.string())]
    + [(name, pa.int64()) for name in ("first_ledger", "first_entry", "life")]
)

# Due times as ingest computes them: the later of delivery and publication, rounded up to ms, not before 1970.
_DUE = "GREATEST(0, (COALESCE({deliver_at}, {publish_time}) + 999) / 1000, ({publish_time} + 999) / 1000)"
_ACCEPTED = """
    SELECT s.listener, m.message_key, m.due_ms, 1 AS change
    FROM (
        SELECT topic, ledger_id, entry_id, message_key, publish_time, arrow_cast(due_time, 'Int64') / 1000 AS due_ms
        FROM messages WHERE {near}
    ) m
    JOIN ({listeners}) s ON m.topic = s.topic AND m.ledger_id >= s.first_ledger {less}
    WHERE {where}
"""
_BEGUN = "(m.ledger_id > s.first_ledger OR m.entry_id >= s.first_entry)"
_UNSETTLED = "NOT (m.due_ms <= {settled_ms} AND m.ledger_id < {settled_ledger})"
_DELIVERED = """
    UNION ALL
    SELECT s.listener, d.message_key, d.due_ms, {change} AS change
    FROM (
        SELECT topic, subscription, life, ledger_id, entry_id, message_key, publish_time, {due} AS due_ms,
            arrow_cast(due_time, 'Int64') AS bucket
        FROM {rows} WHERE redelivery_count = 0 {near}
    ) d
    JOIN ({listeners}) s
    ON d.topic = s.topic AND d.subscription = s.subscription AND d.life = s.life AND d.ledger_id >= s.first_ledger
    {less} WHERE {counts}
"""
_MOVED = """
    SELECT w.listener, m.message_key, w.due_ms, 1 AS change
    FROM ({moved}) w JOIN ({listeners}) s ON w.listener = s.listener
    JOIN messages m ON s.topic = m.topic AND w.ledger_id = m.ledger_id AND w.entry_id = m.entry_id
"""
_LESS = """
    LEFT ANTI JOIN ({withdrawn}) w
    ON w.listener = s.listener AND w.ledger_id = {rows}.ledger_id AND w.entry_id = {rows}.entry_id
"""
_MINUTES = """
    SELECT listener, due_ms / 60000 AS minute, SUM(change) AS messages
    FROM ({changes}) GROUP BY 1, 2 HAVING SUM(change) <> 0 ORDER BY 1, 2
"""
_DUES = """
    SELECT c.listener, c.due_ms, SUM(c.change) AS change
    FROM ({changes}) c JOIN ({minutes}) f ON c.listener = f.listener AND c.due_ms / 60000 = f.minute
    WHERE c.due_ms >= {begin} AND c.due_ms < {end}
    GROUP BY 1, 2 HAVING SUM(c.change) <> 0
"""
_NO_DUES = pa.schema([("listener", pa.int64()), ("due_ms", pa.int64()), ("change", pa.int64())])


Due = tuple[int | None, int | None]
"""From when on, and before when, something is due, ms UTC; None: without an end."""


@dataclass(frozen=True)
class Since:
    """What an earlier count lacks.

    Attributes:
        ledger: messages from this ledger on.
        deliveries: these rows of `deliveries`, with times as numbers.
    """

    ledger: int
    deliveries: pa.Table


@dataclass(frozen=True)
class Changes:
    """What adds to what is pending and what takes off, as subqueries; empty where there is nothing.

    Attributes:
        logs: what ingest accepted, and what dispatch delivered of it.
        moved: what waits for another due time, by command.
        tables: what they read.
    """

    logs: str = ""
    moved: str = ""
    tables: Mapping[str, DeltaTable] = field(default_factory=dict)

    @property
    def all(self) -> str:
        """Both."""
        return " UNION ALL ".join(each for each in (self.logs, self.moved) if each)


@dataclass(frozen=True)
class Counted:
    """Tables at fixed versions, and what counts of them.

    Attributes:
        deliveries: opened first.
        messages: opened after that.
        registry: who listens.
        since: the life of each listener; None: it gets nothing yet.
        rule: what counts.
        settled: the mark, read last.
    """

    deliveries: DeltaTable
    messages: DeltaTable
    registry: RegistryView
    since: Mapping[Name, Incarnation | None]
    rule: CountingRule
    settled: SettledMark

    @cached_property
    def listeners(self) -> dict[Name, Incarnation]:
        """Listeners that get something, in the order in which queries number them."""
        return {name: life for name, life in sorted(self.since.items()) if life is not None}

    @contextmanager
    def changes(self, since: Since | None = None, due: Due = (None, None)) -> Iterator[Changes]:
        """What adds to what is pending and what takes off.

        Args:
            since: of the logs only what an earlier count lacks; None: all.
            due: messages that were due before the one time, or from the other one on, when they were accepted are
                passed over, ms UTC, and deliveries of what was due before the one time. Other changes are there all the
                same. None: none are.
        """
        if not self.listeners:
            yield Changes()
            return
        rows = [
            (number, *name, life.since or 0, life.entry, life.number)
            for number, (name, life) in enumerate(self.listeners.items())
        ]
        left_out, later = self._commanded()
        with (
            relation("listeners", table_of(rows, _LISTENER)) as (listeners, more),
            relation("withdrawn", left_out) as (less, others),
            relation("moved", later) as (moves, rest),
            _delivered(since) as (delivered_rows, fresh),
        ):
            tables = {"deliveries": self.deliveries, "messages": self.messages, **more, **others, **rest, **fresh}
            withdrawn = less if left_out.num_rows else None
            logs = self._accepted(listeners, withdrawn, 0 if since is None else since.ledger, due)
            if delivered_rows is not None:
                logs += self._less_delivered(listeners, withdrawn, delivered_rows, due[0])
            moved = _MOVED.format(moved=moves, listeners=listeners) if later.num_rows else ""
            yield Changes(logs, moved, tables | self.rule.tables)

    def _commanded(self) -> tuple[pa.Table, pa.Table]:
        """The positions that commands take out of the logs, and those of them that have another due time, with it."""
        lives = {name: life.number for name, life in self.listeners.items()}

        def present(of: Round) -> bool:
            return of.redelivery_count == 0 and lives.get((of.topic, of.subscription)) == of.life

        gone = {of: each for of, each in self.rule.in_force.items() if present(of)}
        put_off = ((of, each.less(gone.get(of, PositionSet()))) for of, each in self.rule.moved.items() if present(of))
        moved = {of: each for of, each in put_off if len(each.ledgers)}
        number = {name: place for place, name in enumerate(self.listeners)}
        places = (
            (number[of[:2]], ledger, np.asarray(entries.to_array(), np.int64))
            for of, each in (*gone.items(), *((of, each.positions) for of, each in moved.items()))
            for ledger, entries in each.by_ledger()
        )
        waits = (each.less(delivered(self.deliveries, each, self.rule.until)) for each in moved.values())
        later = ((number[each.of[:2]], each.ledgers, each.entries, each.due) for each in waits)
        return longs_table(_POSITION, places), longs_table((*_POSITION, "due_ms"), later)

    def _accepted(self, listeners: str, withdrawn: str | None, ledger: int, due: Due) -> str:
        near = [f"due_time {sign} {instant(ms)}" for sign, ms in zip((">=", "<"), due, strict=True) if ms is not None]
        where = [self.rule.sent, f"m.ledger_id >= {ledger}"] if ledger else [self.rule.sent]
        # Each condition that holds for all messages would take a fifth of the time that they are counted in.
        where += [_BEGUN] if any(life.entry for life in self.listeners.values()) else []
        where += [_UNSETTLED.format(**self._mark)] if self.settled != SettledMark() else []
        values = {"less": _less(withdrawn, "m"), "near": " AND ".join(near) or "TRUE", "where": " AND ".join(where)}
        return _ACCEPTED.format(listeners=listeners, **values)

    def _less_delivered(self, listeners: str, withdrawn: str | None, rows: str, due: int | None) -> str:
        # A release comes at the end of its bucket: never before it is due.
        near = "" if due is None else f"AND due_time >= {instant(due)}"
        micros = {column: f"arrow_cast({column}, 'Int64')" for column in ("deliver_at", "publish_time")}
        same = {"listeners": listeners, "less": _less(withdrawn, "d"), "due": _DUE.format(**micros), "near": near}
        change, counts = (text.format(**self._mark) for text in (self.rule.change, self.rule.counts))
        text = _DELIVERED.format(rows=rows, change=change, counts=counts, **same)
        if self.rule.late is not None:
            text += _DELIVERED.format(rows=f"({self.rule.late})", change="1", counts="true", **same)
        return text

    @property
    def _mark(self) -> dict[str, int]:
        return {"settled_ms": self.settled.due_ms, "settled_ledger": self.settled.ledger}


@contextmanager
def _delivered(since: Since | None) -> Iterator[tuple[str | None, Mapping[str, DeltaTable]]]:
    """The rows of `deliveries` that are counted; None: there are none."""
    if since is None:
        yield "deliveries", {}
    elif not since.deliveries.num_rows:
        yield None, {}
    else:
        with relation("fresh", since.deliveries) as (rows, tables):
            yield f"({rows})", tables


def _less(withdrawn: str | None, rows: str) -> str:
    """Takes positions out of rows of that name."""
    return "" if withdrawn is None else _LESS.format(withdrawn=withdrawn, rows=rows)


def opened(
    root: str, wanted: tuple[str | None, str | None], as_of: int | None, known: RegistryView | None = None
) -> Counted:
    """Open everything in order.

    Args:
        root: the warehouse.
        wanted: a topic and a name, whose listeners are counted; None: all.
        as_of: an instant, ms UTC; None: now.
        known: the registry as it was read before.

    Raises:
        BadValue: the instant is none.
    """
    is_instant = isinstance(as_of, int) and not isinstance(as_of, bool) and 0 <= as_of <= MAX_TIME
    if as_of is not None and not is_instant:
        raise BadValue("as_of", as_of, f"an instant, a whole number of ms UTC in 0..{MAX_TIME}")
    deliveries, messages = open_table(root, DELIVERIES), open_table(root, MESSAGES)
    registry = registry_view(root, known)
    since = lives_of(root, registry.of(*wanted))
    rule = at_present(root) if as_of is None else at_instant(root, as_of)
    return Counted(deliveries, messages, registry, since, rule, read_mark(Files(), root))


def by_minute(tables: Mapping[str, DeltaTable], changes: str) -> ListenerMinutes:
    """What changes add to what is pending, less what they take off; nothing when they are empty."""
    return ListenerMinutes.of_rows(arrow_of(_MINUTES.format(changes=changes), **tables)) if changes else NO_MINUTES


def next_due(looked: Counted, minutes: ListenerMinutes) -> dict[int, int]:
    """The first due time to the millisecond, by listener."""
    return first_due(dues_within(looked, minutes.firsts()))


def dues_within(looked: Counted, minutes: Mapping[int, int]) -> pa.Table:
    """What all changes come to by due time: columns `listener`, `due_ms`, `change`.

    Args:
        looked: what counts.
        minutes: the minute of each listener that is looked at, by its start, ms UTC.
    """
    if not minutes:
        return pa.Table.from_batches([], _NO_DUES)
    with looked.changes(due=(min(minutes.values()), max(minutes.values()) + MINUTE_MS)) as changes:
        return by_due(changes.tables, changes.all, minutes)


def by_due(tables: Mapping[str, DeltaTable], changes: str, minutes: Mapping[int, int]) -> pa.Table:
    """The same of some changes."""
    if not changes or not minutes:
        return pa.Table.from_batches([], _NO_DUES)
    bounds = {"begin": min(minutes.values()), "end": max(minutes.values()) + MINUTE_MS}
    rows = [(number, at // MINUTE_MS) for number, at in minutes.items()]
    with relation("minutes", table_of(rows, _FIRST)) as (found, more):
        return arrow_of(_DUES.format(changes=changes, minutes=found, **bounds), **tables, **more).cast(_NO_DUES)


def first_due(dues: pa.Table) -> dict[int, int]:
    """When the first message that is pending is due, ms UTC, by listener."""
    if not dues.num_rows:
        return {}
    listeners, due, change = (longs(dues, name) for name in _NO_DUES.names)
    here = change > 0
    order = np.lexsort((due[here], listeners[here]))
    found, first = np.unique(listeners[here][order], return_index=True)
    return dict(zip(found.tolist(), due[here][order][first].tolist(), strict=True))
