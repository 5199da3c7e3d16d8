"""Which messages a condition names: those of a topic that are pending, looked up by SQL over the log.

The view that a condition sees has the columns `VIEW`, a row for each subscription and message that waits for its first
delivery. What is prepared for delivery is among them: that is found out by dispatch alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.subscribing.subscriptions import lives, subscriptions
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import arrow_of, open_table, query
from pipeline.storage.arrays import IntArray, longs
from pipeline.storage.files import Files
from pipeline.subscriptions.incarnations import Incarnation, Name, alive
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import DELIVERIES, MESSAGES
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Parts, Round

VIEW = (
    "topic", "subscription", "message_key", "properties", "due_time", "publish_time", "payload_bytes", "ledger_id",
    "entry_id",
)  # fmt: skip
"""The columns of the view."""
EXAMPLES = 5
_PENDING = """
    SELECT topic, {subscription} AS subscription, message_key, properties, due_time, publish_time,
        COALESCE(octet_length(encode(payload, 'hex')) / 2, 0) AS payload_bytes, ledger_id, entry_id
    FROM messages WHERE topic = {topic} AND NOT ({due} <= {settled_ms} AND ledger_id < {settled_ledger})
"""
_CHOSEN = "SELECT ledger_id, entry_id, {due} AS due_ms FROM ({pending}) pending WHERE (\n{where}\n)"
_DELIVERED = """
    SELECT ledger_id, entry_id FROM deliveries
    WHERE topic = {topic} AND subscription = {subscription} AND life = {life} AND redelivery_count = 0
    AND ledger_id BETWEEN {first} AND {last}
"""
_EXAMPLES = "SELECT message_key FROM messages WHERE topic = {topic} AND ledger_id = {ledger} AND entry_id = {entry}"
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


@dataclass(frozen=True)
class Chosen:
    """Positions of one subscription, and when each is due (ms); all columns have one length, ordered by position."""

    of: Round
    ledgers: IntArray
    entries: IntArray
    due: IntArray

    @property
    def positions(self) -> PositionSet:
        """As a set."""
        return PositionSet.of(Positions.of(self.ledgers, self.entries, self.entries))

    def less(self, other: PositionSet) -> Chosen:
        """Those that are not in a set."""
        return self._where(~self._in(other))

    def only(self, other: PositionSet) -> Chosen:
        """Those that are in a set."""
        return self._where(self._in(other))

    def _in(self, other: PositionSet) -> npt.NDArray[np.bool_]:
        """Which are in a set; a ledger at a time."""
        found = np.zeros(len(self.ledgers), np.bool_)
        for ledger, entries in other.by_ledger():
            low, high = np.searchsorted(self.ledgers, (ledger, ledger + 1))
            found[low:high] = np.isin(self.entries[low:high], np.asarray(entries.to_array(), np.int64))
        return found

    def _where(self, flags: npt.NDArray[np.bool_]) -> Chosen:
        return Chosen(self.of, self.ledgers[flags], self.entries[flags], self.due[flags])


def choose(root: str, topic: str, subscription: str | None, where: str, withdrawn: Parts) -> list[Chosen]:
    """The pending messages of a topic that meet a condition, for each subscription that has some.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: only for this one; None: for all that the topic has.
        where: a condition over the columns `VIEW`, in DataFusion's SQL.
        withdrawn: what is withdrawn already.

    Raises:
        NoWarehouse: the folder lacks a table.
        SubscriptionNotFound: there is no such subscription, or none at all.
        BadValue: the condition cannot be followed; or ingest does not know the subscription yet.
    """
    deliveries, messages = open_table(root, DELIVERIES), open_table(root, MESSAGES)
    known, mark = _listeners(root, topic, subscription), read_mark(Files(), root)
    named = re.search(r"\bsubscription\b", where, re.IGNORECASE) is not None
    same = None if named else _met(messages, (topic, ""), where, mark)
    found = []
    for name, life in sorted(known.items()):
        rows = _met(messages, name, where, mark) if same is None else same
        chosen = _since(rows, Round(*name, life.number, 0), life)
        if len(chosen.ledgers):
            gone = _delivered(deliveries, chosen) | withdrawn.get(chosen.of, PositionSet())
            chosen = chosen.less(gone)
        if len(chosen.ledgers):
            found.append(chosen)
    return found


def selection(root: str, chosen: Sequence[Chosen]) -> Selection:
    """What people want to know of it."""
    if not chosen:
        return Selection()
    counts = {each.of.subscription: len(each.ledgers) for each in chosen}
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
    return Selection(sum(counts.values()), counts, min(due), max(due), examples)


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _listeners(root: str, topic: str, subscription: str | None) -> dict[Name, Incarnation]:
    """The present life of each subscription that is asked for."""
    names = [(each.topic, each.name) for each in subscriptions(root) if each.topic == topic]
    names = [name for name in names if subscription in (None, name[1])]
    if not names:
        raise SubscriptionNotFound(topic, subscription or "(any)")
    known = alive(lives(root))
    found = {name: known[name] for name in names if name in known}
    if subscription is not None and not found:
        raise BadValue("subscription", subscription, "one that ingest has noticed; start the job")
    return found


def _met(messages: DeltaTable, name: Name, where: str, mark: SettledMark) -> pa.Table:
    """Messages that meet a condition, ordered by position."""
    told = {"topic": quoted(name[0]), "subscription": quoted(name[1]), "due": _DUE}
    pending = _PENDING.format(settled_ms=mark.due_ms, settled_ledger=mark.ledger, **told)
    try:
        found = arrow_of(_CHOSEN.format(due=_DUE, pending=pending, where=where), messages=messages)
    except DeltaError as error:
        said = str(error).partition("\n")[0]
        raise BadValue("where", where, f"a condition (SQL) over {', '.join(VIEW)} ({said})") from error
    return found.combine_chunks().sort_by([("ledger_id", "ascending"), ("entry_id", "ascending")])


def _since(rows: pa.Table, of: Round, life: Incarnation) -> Chosen:
    ledgers, entries, due = (longs(rows, name) for name in ("ledger_id", "entry_id", "due_ms"))
    since = life.since or 0
    mine = (ledgers > since) | ((ledgers == since) & (entries >= life.entry))
    return Chosen(of, ledgers[mine], entries[mine], due[mine])


def _delivered(deliveries: DeltaTable, chosen: Chosen) -> PositionSet:
    of = chosen.of
    told = {"topic": quoted(of.topic), "subscription": quoted(of.subscription), "life": of.life}
    text = _DELIVERED.format(**told, first=int(chosen.ledgers.min()), last=int(chosen.ledgers.max()))
    found = arrow_of(text, deliveries=deliveries)
    entries = longs(found, "entry_id")
    return PositionSet.of(Positions.of(longs(found, "ledger_id"), entries, entries))


def _key(root: str, topic: str, ledger: int, entry: int) -> str | None:
    text = _EXAMPLES.format(topic=quoted(topic), ledger=ledger, entry=entry)
    found: list[dict[str, Any]] = query(text, messages=open_table(root, MESSAGES))
    return found[0]["message_key"] if found else None
