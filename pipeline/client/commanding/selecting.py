"""Which messages a condition names: those of a topic that are pending, looked up by SQL over the log.

The view that a condition sees has the columns `VIEW` (`pipeline.client.commanding.conditions`), a row for each
subscription and message that waits for its first delivery, or failed and waits to come again. What is prepared for
delivery is among them: that is found out by dispatch alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.client.commanding.conditions import check_condition, not_followed
from pipeline.client.commanding.inforce import Chosen, InForce, delivered
from pipeline.client.commanding.retries import waiting
from pipeline.client.exceptions import ANY, SubscriptionNotFound
from pipeline.client.subscribing.lines import of_topic_in_sql, registered_in
from pipeline.client.subscribing.lives import lives
from pipeline.client.tables.relations import longs_table, relation
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import arrow_of, open_table, query, quoted
from pipeline.storage.arrays import longs
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Incarnation, Name, Subscription, alive
from pipeline.subscriptions.settled import SettledMark, read_mark
from pipeline.subscriptions.topicnames import topic_of
from schemas import DELIVERIES, MESSAGES, SUBSCRIPTIONS
from state.positionset import PositionSet
from state.withdrawals import Round

EXAMPLES = 5
_PENDING = """
    SELECT topic, {subscription} AS subscription, message_key, properties, due_time, publish_time,
        COALESCE(octet_length(encode(payload, 'hex')) / 2, 0) AS payload_bytes, ledger_id, entry_id,
        0 AS redelivery_count
    FROM messages WHERE topic = {topic} AND NOT ({due} <= {settled_ms} AND ledger_id < {settled_ledger})
"""
_AGAIN = """
    SELECT m.topic, m.subscription, m.message_key, m.properties,
        arrow_cast(w.due_ms * 1000, 'Timestamp(Microsecond, Some("UTC"))') AS due_time, m.publish_time,
        m.payload_bytes, m.ledger_id, m.entry_id, {count} AS redelivery_count
    FROM ({messages}) m JOIN ({waiting}) w ON m.ledger_id = w.ledger_id AND m.entry_id = w.entry_id
"""
_CHOSEN = "SELECT ledger_id, entry_id, {due} AS due_ms FROM ({pending}) pending WHERE (\n{where}\n)"
_EXAMPLES = "SELECT message_key FROM messages WHERE topic = {topic} AND ledger_id = {ledger} AND entry_id = {entry}"
_TOPICS = "SELECT DISTINCT topic FROM messages ORDER BY 1"
_NOTHING = PositionSet()
Listeners = Mapping[Name, tuple[Incarnation, bool]]
"""The present life of each of some subscriptions, and whether it acknowledges."""
_DUE = "arrow_cast(due_time, 'Int64') / 1000"


@dataclass(frozen=True)
class Example:
    """A message of a selection.

    Attributes:
        subscription: for whom it waits.
        position: ledger and entry.
        due: when it is due, ms UTC.
        key: its key, if it has one.
    """

    subscription: str
    position: tuple[int, int]
    due: int
    key: str | None


@dataclass(frozen=True)
class Selection:
    """Messages that a condition names, or that an undo brings back.

    Attributes:
        count: how many, counted for each subscription.
        subscriptions: how many for each subscription; those that have none are left out.
        first_due: when the first of them is due, ms UTC; None: there is none.
        last_due: when the last of them is due.
        examples: the first five by due time.
    """

    count: int = 0
    subscriptions: Mapping[str, int] = field(default_factory=dict)
    first_due: int | None = None
    last_due: int | None = None
    examples: tuple[Example, ...] = ()


def choose(root: str, topic: str, subscription: str | None, where: str, said: InForce) -> list[Chosen]:
    """The pending messages of a topic that meet a condition, for each subscription that has some.

    Args:
        root: the warehouse.
        topic: the topic, with its partitions.
        subscription: only for this one; None: for all that the topic has.
        where: a condition over the columns `VIEW`, in DataFusion's SQL.
        said: what commands said before.

    Raises:
        NoWarehouse: the folder lacks a table.
        SubscriptionNotFound: there is no such subscription, or none at all.
        BadValue: the condition cannot be followed; or ingest does not know the subscription yet.
    """
    by_topic: dict[str, dict[Name, tuple[Incarnation, bool]]] = {}
    for name, listener in _listeners(root, topic, subscription).items():
        by_topic.setdefault(name[0], {})[name] = listener
    log = PendingLog(root, where)
    return [each for one, known in sorted(by_topic.items()) for each in log.chosen(one, known, said)]


def selection(root: str, chosen: Sequence[Chosen]) -> Selection:
    """What people want to know of it."""
    if not chosen:
        return Selection()
    counts = Counter[str]()
    for each in chosen:
        counts[each.of.subscription] += len(each.ledgers)
    due = [int(end) for each in chosen for end in (each.due.min(), each.due.max())]
    firsts = []
    for each in chosen:
        first = np.argsort(each.due, kind="stable")[:EXAMPLES]
        columns = (column[first].tolist() for column in (each.due, each.ledgers, each.entries))
        firsts += [(*place, each.of) for place in zip(*columns, strict=True)]
    examples = tuple(
        Example(of.subscription, (ledger, entry), when, _key(root, of.topic, ledger, entry))
        for when, ledger, entry, of in sorted(firsts)[:EXAMPLES]
    )
    return Selection(counts.total(), dict(counts), min(due), max(due), examples)


def _listeners(root: str, topic: str, subscription: str | None) -> Listeners:
    """The subscriptions that are asked for."""
    registry = registered_in(open_table(root, SUBSCRIPTIONS), of_topic_in_sql(topic)).lines.values()
    known = alive(lives(root))
    # By a line that ingest refuses nobody joins; who has a life goes on.
    lines = [each for each in registry if each.named in known or each.subscription.fits]
    lines = [each for each in lines if topic in (each.topic, topic_of(each.topic))]
    lines = [each for each in lines if subscription in (None, each.name)]
    if not lines:
        raise SubscriptionNotFound(topic, subscription or ANY)
    unknown = sorted({each.name for each in lines if not _has_begun(each.subscription, known.get(each.named))})
    if unknown:
        # It would get what is withdrawn from the others, or from its life before.
        raise BadValue("subscription", ", ".join(unknown), "one that ingest has noticed; start the job")
    return {each.named: (known[each.named], each.policies.ack) for each in lines}


def _has_begun(line: Subscription, life: Incarnation | None) -> bool:
    """Whether ingest has begun the life that a line asks for."""
    return life is not None and (line.sought is None or line.sought.life <= life.number)


class PendingLog:
    """The messages that wait and meet a condition, at one version of the tables."""

    def __init__(self, root: str, where: str) -> None:
        """Open the tables.

        Args:
            root: the warehouse.
            where: a condition over the columns `VIEW`, in DataFusion's SQL.

        Raises:
            NoWarehouse: the folder lacks a table.
            BadValue: the condition cannot be followed, or holds a query.
        """
        self._root = root
        self._deliveries, self._messages = open_table(root, DELIVERIES), open_table(root, MESSAGES)
        self._where, self._mark = where, read_mark(Files(), root)
        check_condition(where, self._messages)

    @property
    def topics(self) -> list[str]:
        """The topics that have messages."""
        return [row["topic"] for row in query(_TOPICS, messages=self._messages)]

    def chosen(self, topic: str, known: Listeners, said: InForce) -> list[Chosen]:
        """What of a topic meets the condition, for each of some of its subscriptions that has something.

        Raises:
            NoWarehouse: the folder lacks a table.
            BadValue: the condition cannot be followed.
        """
        # What does not ask for the subscription is the same for all of them.
        named = re.search(r"\bsubscription\b", self._where, re.IGNORECASE) is not None
        same = None if named else self._first((topic, ""))
        found = list[Chosen]()
        for name, (life, ack) in sorted(known.items()):
            of = Round(*name, life.number, 0)
            chosen, put_off = _since(self._first(name) if same is None else same, of, life), said.moved.get(of)
            firsts = [chosen] if put_off is None else [chosen.less(put_off.positions), self._again(name, put_off)]
            waits = [each.latest(said.moved.get(each.of)) for each in waiting(self._root, name, life)] if ack else []
            found += [each.less(delivered(self._deliveries, each)) for each in firsts if len(each.ledgers)]
            found += [self._again(name, each) for each in waits]
        found = [each.less(said.withdrawn.get(each.of, _NOTHING)) for each in found]
        return [each for each in found if len(each.ledgers)]

    def _first(self, name: Name) -> pa.Table:
        """Those that are not settled, ordered by position."""
        return self._met(self._pending(name, self._mark))

    def _again(self, name: Name, waits: Chosen) -> Chosen:
        """Of those that wait for a time that is not that of their message."""
        # What is open is kept below the mark, too.
        messages, count = self._pending(name, SettledMark()), waits.of.redelivery_count
        places = longs_table(("ledger_id", "entry_id", "due_ms"), [(waits.ledgers, waits.entries, waits.due)])
        with relation("waiting", places) as (rows, more):
            met = self._met(_AGAIN.format(messages=messages, waiting=rows, count=count), **more)
        return waits.only(PositionSet.at(longs(met, "ledger_id"), longs(met, "entry_id")))

    def _pending(self, name: Name, mark: SettledMark) -> str:
        texts = {"topic": quoted(name[0]), "subscription": quoted(name[1]), "due": _DUE}
        return _PENDING.format(settled_ms=mark.due_ms, settled_ledger=mark.ledger, **texts)

    def _met(self, pending: str, **tables: DeltaTable) -> pa.Table:
        text = _CHOSEN.format(due=_DUE, pending=pending, where=self._where)
        try:
            found = arrow_of(text, messages=self._messages, **tables)
        except (DeltaError, pa.ArrowException) as error:
            # Of rows that it reads it may only fail while they are read.
            raise not_followed(error, text, self._where) from error
        return found.combine_chunks().sort_by([("ledger_id", "ascending"), ("entry_id", "ascending")])


def _since(rows: pa.Table, of: Round, life: Incarnation) -> Chosen:
    chosen, since = Chosen.of_rows(of, rows), life.since or 0
    return chosen.where((chosen.ledgers > since) | ((chosen.ledgers == since) & (chosen.entries >= life.entry)))


def _key(root: str, topic: str, ledger: int, entry: int) -> str | None:
    text = _EXAMPLES.format(topic=quoted(topic), ledger=ledger, entry=entry)
    found: list[dict[str, Any]] = query(text, messages=open_table(root, MESSAGES))
    return found[0]["message_key"] if found else None
