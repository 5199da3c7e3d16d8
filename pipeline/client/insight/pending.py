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

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from pipeline.client.commanding.inforce import Chosen, delivered
from pipeline.client.insight.asof import CountingRule, at_instant, at_present, uncertain
from pipeline.client.insight.waiting import held_back, in_inbox
from pipeline.client.subscribing.lives import lives_of
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.client.tables.relations import longs_table, relation, table_of
from pipeline.delta.deltars import open_table, query
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import GuardStates
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import DELIVERIES, MESSAGES
from state.positionset import PositionSet
from state.withdrawals import Parts, Round

MINUTE_MS = 60_000
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
        FROM messages
    ) m
    JOIN ({listeners}) s ON m.topic = s.topic AND m.ledger_id >= s.first_ledger {less}
    WHERE {sent} AND (m.ledger_id > s.first_ledger OR m.entry_id >= s.first_entry)
    AND NOT (m.due_ms <= {settled_ms} AND m.ledger_id < {settled_ledger})
"""
_DELIVERED = """
    UNION ALL
    SELECT s.listener, d.message_key, d.due_ms, {change} AS change
    FROM (
        SELECT topic, subscription, life, ledger_id, entry_id, message_key, publish_time, {due} AS due_ms,
            arrow_cast(due_time, 'Int64') AS bucket
        FROM {rows} WHERE redelivery_count = 0
    ) d
    JOIN ({listeners}) s
    ON d.topic = s.topic AND d.subscription = s.subscription AND d.life = s.life AND d.ledger_id >= s.first_ledger
    {less} WHERE {counts}
"""
_MOVED = """
    UNION ALL
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
    FROM ({changes}) GROUP BY 1, 2 HAVING SUM(change) > 0 ORDER BY 1, 2
"""
_KEYS = """
    SELECT listener, message_key, SUM(change) AS messages
    FROM ({changes}) GROUP BY 1, 2 HAVING SUM(change) > 0 ORDER BY 3 DESC, 1, 2 LIMIT {limit}
"""
_NEXT = """
    SELECT listener, MIN(due_ms) AS due_ms FROM (
        SELECT c.listener, c.due_ms
        FROM ({changes}) c JOIN ({firsts}) f ON c.listener = f.listener AND c.due_ms / 60000 = f.minute
        WHERE c.due_ms >= {begin} AND c.due_ms < {end}
        GROUP BY 1, 2 HAVING SUM(c.change) > 0
    ) GROUP BY 1
"""


@dataclass(frozen=True)
class Backlog:
    """What is pending for one subscription.

    Attributes:
        topic: its topic.
        subscription: its name.
        count: messages accepted for it and not yet delivered.
        next_due: when the first of them is due, ms UTC; None: nothing is pending.
        minutes: how many are due in each minute, by the minute's start in ms UTC, ascending; empty ones left out.
        held: how many of them are due and held by dispatch now.
        paused: whether the subscription is now.
        max_rate: messages a second that come at most; None: any number.
        guard_error: why its guard cannot be evaluated; None: it can, or there is none.
    """

    topic: str
    subscription: str
    count: int
    next_due: int | None
    minutes: Mapping[int, int]
    held: int = 0
    paused: bool = False
    max_rate: int | None = None
    guard_error: str | None = None

    @property
    def held_ms(self) -> int | None:
        """By its rate, how long it takes until what is held now has come, ms; None: it is paused or has no rate."""
        return None if self.paused or not self.max_rate else self.held * 1_000 // self.max_rate


@dataclass(frozen=True)
class Pending:
    """What is pending in a warehouse.

    Attributes:
        backlogs: one for each active subscription, by topic and name.
        in_inbox: rows of the inbox that ingest has neither accepted nor rejected yet; 0 as of an instant.
        versions: the versions of the tables that were counted.
        uncertain: as of an instant, messages that were cancelled since and whose rows retention may have deleted:
            they are not counted, and nobody knows any more whether they had been sent by then.
    """

    backlogs: tuple[Backlog, ...]
    in_inbox: int
    versions: Mapping[str, int]
    uncertain: int = 0


@dataclass(frozen=True)
class KeyBacklog:
    """What is pending for one subscription with one key.

    Attributes:
        topic: the topic.
        subscription: its name.
        key: the key; None: the messages that have none.
        count: messages.
    """

    topic: str
    subscription: str
    key: str | None
    count: int


def pending(
    root: str, topic: str | None = None, subscription: str | None = None, *, as_of: int | None = None
) -> Pending:
    """Count what is pending, of one topic or subscription when named.

    Args:
        root: the warehouse.
        topic: only of this topic, with its partitions.
        subscription: only for subscriptions of this name.
        as_of: an instant, ms UTC: count what was pending then, for the subscriptions that there are now, in their
            present lives (`pipeline.client.insight.asof`). None: now.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: deliveries of that time are deleted.
    """
    looked = _look(root, (topic, subscription), as_of)
    versions = {DELIVERIES.name: looked.deliveries.version(), MESSAGES.name: looked.messages.version()}
    if as_of is None:
        counts, waiting = list(_backlogs(looked)), in_inbox(root)
        # Last, since it changes several times a second, and says how long it takes from now on.
        return Pending(tuple(shaped(root, counts, looked.counted)), waiting, versions)
    lives = {name: life.number for name, life in looked.counted.items()}
    unknown = uncertain(root, lives, looked.rule, as_of, looked.settled)
    return Pending(tuple(_backlogs(looked)), 0, versions, unknown)


def first_due(backlogs: Iterable[Backlog]) -> int | None:
    """When the first of what is pending is due, ms UTC; None: nothing is pending."""
    return min((each.next_due for each in backlogs if each.next_due is not None), default=None)


def shaped(root: str, backlogs: Iterable[Backlog], lives: Mapping[Name, Incarnation]) -> Iterator[Backlog]:
    """Backlogs with what is held of each, and why."""
    held, lines = held_back(root), {each.named: each.policies for each in subscriptions(root)}
    failing = GuardStates(Files(), root).errors({name: each.guard for name, each in lines.items()})
    for each in backlogs:
        name = (each.topic, each.subscription)
        count = held.get((*name, lives[name].number), 0) if name in lives else 0
        own = lines.get(name, Policies())
        yield replace(each, held=count, paused=own.paused, max_rate=own.max_rate, guard_error=failing.get(name))


def pending_by_key(
    root: str,
    topic: str | None = None,
    subscription: str | None = None,
    *,
    limit: int = 20,
    as_of: int | None = None,
) -> list[KeyBacklog]:
    """The keys with which most is pending, those first; a line for each key and subscription.

    Args:
        root: the warehouse.
        topic: only of this topic.
        subscription: only for subscriptions of this name.
        limit: so many at most.
        as_of: as for `pending`.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: deliveries of that time are deleted.
    """
    looked = _look(root, (topic, subscription), as_of)
    with looked.changes() as (changes, tables):
        rows = query(_KEYS.format(changes=changes, limit=limit), **tables) if changes else []
    names = list(looked.counted)
    found = ((*names[row["listener"]], row["message_key"], row["messages"]) for row in rows)
    return [KeyBacklog(topic, name, key, count) for topic, name, key, count in found]


@dataclass(frozen=True)
class _Looked:
    """Tables at fixed versions, and what counts of them.

    Attributes:
        deliveries: opened first.
        messages: opened after that.
        since: the life of each listener; None: it gets nothing yet.
        rule: what counts.
        settled: the mark, read last.
    """

    deliveries: DeltaTable
    messages: DeltaTable
    since: Mapping[Name, Incarnation | None]
    rule: CountingRule
    settled: SettledMark

    @property
    def counted(self) -> dict[Name, Incarnation]:
        """Listeners that get something, in the order in which queries number them."""
        return {name: life for name, life in sorted(self.since.items()) if life is not None}

    @contextmanager
    def changes(self) -> Iterator[tuple[str, dict[str, DeltaTable]]]:
        """What adds to what is pending and what takes off, as a subquery; empty when nobody gets anything."""
        rows = [
            (number, *name, life.since or 0, life.entry, life.number)
            for number, (name, life) in enumerate(self.counted.items())
        ]
        if not rows:
            yield "", {}
            return
        gone, moved = self._commanded()
        number = {name: place for place, name in enumerate(self.counted)}
        without = [*gone.items(), *((of, each.positions) for of, each in moved.items())]
        places = (
            (number[of[:2]], ledger, np.asarray(entries.to_array(), np.int64))
            for of, each in without
            for ledger, entries in each.by_ledger()
        )
        left_out = longs_table(("listener", "ledger_id", "entry_id"), places)
        waits = (each.less(delivered(self.deliveries, each, self.rule.until)) for each in moved.values())
        later = longs_table(
            ("listener", "ledger_id", "entry_id", "due_ms"),
            ((number[each.of[:2]], each.ledgers, each.entries, each.due) for each in waits),
        )
        with (
            relation("listeners", table_of(rows, _LISTENER)) as (listeners, more),
            relation("withdrawn", left_out) as (less, others),
            relation("moved", later) as (moves, rest),
        ):
            tables = {"deliveries": self.deliveries, "messages": self.messages, **more, **others, **rest}
            text = self._text(listeners, less if left_out.num_rows else None)
            text += _MOVED.format(moved=moves, listeners=listeners) if later.num_rows else ""
            yield text, tables | self.rule.tables

    def _commanded(self) -> tuple[Parts, dict[Round, Chosen]]:
        """What commands withdraw of the first deliveries to present lives, and what else of them has another time."""
        lives = {name: life.number for name, life in self.counted.items()}

        def present(of: Round) -> bool:
            return of.redelivery_count == 0 and lives.get((of.topic, of.subscription)) == of.life

        gone = {of: each for of, each in self.rule.in_force.items() if present(of)}
        moved = {of: each.less(gone.get(of, PositionSet())) for of, each in self.rule.moved.items() if present(of)}
        return gone, {of: each for of, each in moved.items() if len(each.ledgers)}

    def _text(self, listeners: str, withdrawn: str | None) -> str:
        micros = {column: f"arrow_cast({column}, 'Int64')" for column in ("deliver_at", "publish_time")}
        mark = {"settled_ms": self.settled.due_ms, "settled_ledger": self.settled.ledger}
        less = {rows: "" if withdrawn is None else _LESS.format(withdrawn=withdrawn, rows=rows) for rows in "md"}
        same = {"listeners": listeners, "less": less["d"], "due": _DUE.format(**micros)}
        change, counts = (text.format(**mark) for text in (self.rule.change, self.rule.counts))
        text = _ACCEPTED.format(listeners=listeners, less=less["m"], sent=self.rule.sent, **mark)
        text += _DELIVERED.format(rows="deliveries", change=change, counts=counts, **same)
        if self.rule.late is not None:
            text += _DELIVERED.format(rows=f"({self.rule.late})", change="1", counts="true", **same)
        return text


def _look(root: str, wanted: tuple[str | None, str | None], as_of: int | None) -> _Looked:
    """Open everything in order, for listeners of a topic or a name."""
    deliveries, messages = open_table(root, DELIVERIES), open_table(root, MESSAGES)
    since = lives_of(root, subscriptions(root, *wanted))
    rule = at_present(root) if as_of is None else at_instant(root, as_of)
    return _Looked(deliveries, messages, since, rule, read_mark(Files(), root))


def _backlogs(looked: _Looked) -> Iterator[Backlog]:
    minutes: dict[int, dict[int, int]] = {}
    due: dict[int, int] = {}
    with looked.changes() as (changes, tables):
        if changes:
            minutes = _minutes(tables, changes)
            due = _next(tables, changes, minutes)
    numbers = {name: number for number, name in enumerate(looked.counted)}
    for name in sorted(looked.since):
        number = numbers.get(name, -1)
        mine = minutes.get(number, {})
        yield Backlog(*name, sum(mine.values()), due.get(number), mine)


def _minutes(tables: Mapping[str, DeltaTable], changes: str) -> dict[int, dict[int, int]]:
    """What is pending, by listener and minute."""
    found: dict[int, dict[int, int]] = {}
    for row in query(_MINUTES.format(changes=changes), **tables):
        found.setdefault(row["listener"], {})[row["minute"] * MINUTE_MS] = row["messages"]
    return found


def _next(tables: Mapping[str, DeltaTable], changes: str, minutes: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """The first due time to the millisecond: the same subtraction, within the first minute of each listener."""
    if not minutes:
        return {}
    firsts = {number: min(each) for number, each in minutes.items()}
    rows = [(number, first // MINUTE_MS) for number, first in firsts.items()]
    span = {"begin": min(firsts.values()), "end": max(firsts.values()) + MINUTE_MS}
    with relation("firsts", table_of(rows, _FIRST)) as (found, more):
        text = _NEXT.format(changes=changes, firsts=found, **span)
        return {row["listener"]: row["due_ms"] for row in query(text, **tables, **more)}
