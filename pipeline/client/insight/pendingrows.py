"""What waits, message by message: a row for each subscription and message, as an Arrow table.

They are the rows that a condition of a command sees (`pipeline.client.commanding.selecting`): what waits for its first
delivery, and what failed and waits to come again. Those of the first kind are what `pending` counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.commanding.conditions import VIEW, condition_of
from pipeline.client.commanding.inforce import Chosen, at_work
from pipeline.client.commanding.selecting import Listeners, PendingLog
from pipeline.client.insight.arguments import HowListed
from pipeline.client.options import refuse, spelled_out
from pipeline.client.subscribing.lives import lives_of
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.client.tables.relations import longs_table, relation
from pipeline.config.errors import BadValue, check_count, check_text
from pipeline.delta.deltars import arrow_of, open_table, quoted
from pipeline.storage.arrays import IntArray, arrow_schema
from schemas import DELIVERIES, MESSAGES

_ROWS = """
    SELECT w.number, m.topic, m.message_key, m.properties,
        arrow_cast(w.due_ms * 1000, 'Timestamp(Microsecond, Some("UTC"))') AS due_time, m.publish_time,
        COALESCE(octet_length(encode(m.payload, 'hex')) / 2, 0) AS payload_bytes, m.ledger_id, m.entry_id,
        w.redelivery_count{payload}
    FROM messages m JOIN ({waits}) w ON m.ledger_id = w.ledger_id AND m.entry_id = w.entry_id
    WHERE m.topic = {topic} AND m.ledger_id BETWEEN {first} AND {last}
"""
_DELIVERED = arrow_schema(DELIVERIES.columns)
_TYPES = {name: _DELIVERED.field(name).type for name in (*VIEW, "payload") if name != "payload_bytes"}
_ORDER = [(name, "ascending") for name in ("due_time", "topic", "ledger_id", "entry_id", "subscription")]
_WAITS = ("number", "ledger_id", "entry_id", "due_ms", "redelivery_count")


@spelled_out(HowListed)
def pending_rows(
    root: str, topic: str | None = None, subscription: str | None = None, **how: Unpack[HowListed]
) -> pa.Table:
    """What waits, a row for each subscription and message, by due time.

    A command with the same topic, subscription, and key or condition names the same messages. The columns are `topic`,
    `subscription`, `message_key`, `properties`, `due_time`, `publish_time`, `payload_bytes`, `ledger_id`, `entry_id`
    and `redelivery_count`, which is 0 for what was not delivered yet: `pending` counts these. What is prepared for
    delivery is among them. Positions of all that waits are held in memory, contents of what is given alone.

    Args:
        root: the warehouse.
        topic: only of this topic, with its partitions.
        subscription: only for subscriptions of this name.
        **how: see `HowListed`.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: both a key and a condition; the condition is too long, cannot be followed or holds a query; a text is
            not Unicode; the limit is not positive.
    """
    refuse({}, how, HowListed.__optional_keys__)
    for name, text in (("topic", topic), ("subscription", subscription), ("key", how.get("key"))):
        check_text(name, text)
    limit, where = how.get("limit"), _condition(how.get("key"), how.get("where"))
    if limit is not None:
        check_count("limit", limit)
    waits = _first(list(_waiting(root, topic, subscription, where)), limit)
    columns = (*VIEW, "payload") if how.get("payload") else VIEW
    schema = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in columns])
    tables = [_rows(root, list(each), schema) for _, each in groupby(waits, lambda each: each.of.topic)]
    return pa.concat_tables([pa.Table.from_batches([], schema), *tables]).sort_by(_ORDER)


def _condition(key: str | None, where: str | None) -> str:
    if key is not None and where is not None:
        raise BadValue("where", where, "nothing beside a key; or a condition that names the key, too")
    return condition_of(key, where or None)


def _waiting(root: str, topic: str | None, subscription: str | None, where: str) -> Iterator[Chosen]:
    """What waits and meets a condition, topic by topic."""
    lines = subscriptions(root, topic, subscription)
    acks = {each.named: each.policies.ack for each in lines}
    topics: dict[str, Listeners] = {}
    for name, life in lives_of(root, lines).items():
        if life is not None:
            topics[name[0]] = {**topics.get(name[0], {}), name: (life, acks[name])}
    said, log = at_work(root), PendingLog(root, where)
    for each in log.topics:
        if each in topics:
            yield from log.chosen(each, topics[each], said)


def _first(waits: Sequence[Chosen], limit: int | None) -> list[Chosen]:
    """So many of what waits, those that are due first: the first rows of the table that has all of them."""
    due = np.concatenate([np.zeros(0, np.int64), *(each.due for each in waits)])
    if limit is None or len(due) <= limit:
        return list(waits)
    near = np.flatnonzero(due <= np.partition(due, limit - 1)[limit - 1])
    ranks = {topic: rank for rank, topic in enumerate(sorted({each.of.topic for each in waits}))}
    columns = (
        [np.full(len(each.due), number) for number, each in enumerate(waits)],
        [each.entries for each in waits],
        [each.ledgers for each in waits],
        [np.full(len(each.due), ranks[each.of.topic]) for each in waits],
        [each.due for each in waits],
    )
    order = np.lexsort([np.concatenate(each)[near] for each in columns])
    flags = np.zeros(len(due), np.bool_)
    flags[near[order[:limit]]] = True
    parts = np.split(flags, np.cumsum([len(each.due) for each in waits])[:-1])
    found = (each.where(some) for each, some in zip(waits, parts, strict=True))
    return [each for each in found if len(each.due)]


def _rows(root: str, chosen: Sequence[Chosen], schema: pa.Schema) -> pa.Table:
    """The rows of what was chosen of one topic."""
    parts: list[tuple[int | IntArray, ...]] = [
        (number, each.ledgers, each.entries, each.due, each.of.redelivery_count) for number, each in enumerate(chosen)
    ]
    ends = [int(end) for each in chosen for end in (each.ledgers[0], each.ledgers[-1])]
    texts = {"topic": quoted(chosen[0].of.topic), "first": min(ends), "last": max(ends)}
    payload = ", m.payload" if "payload" in schema.names else ""
    with relation("waits", longs_table(_WAITS, parts)) as (waits, more):
        text = _ROWS.format(payload=payload, waits=waits, **texts)
        found = arrow_of(text, messages=open_table(root, MESSAGES), **more)
    names = pa.array([each.of.subscription for each in chosen], pa.string())
    found = found.append_column("subscription", pc.take(names, found.column("number")))
    return found.select(schema.names).cast(schema)
