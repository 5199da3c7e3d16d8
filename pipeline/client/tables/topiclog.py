"""The log of a topic without Spark: which positions came, when each is due, and the rows of some of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.client.exceptions import InvalidMessage, OperationNotSupported, Timeout
from pipeline.client.message import Identity, MessageId, identity_of
from pipeline.client.tables.job import JobHint
from pipeline.client.tables.rows import Rows
from pipeline.client.tables.untaken import is_under_way, sent
from pipeline.delta.deltars import arrow_of, instant, open_table, path_of, query, quoted
from pipeline.delta.logs.entries import newest
from pipeline.storage.arrays import IntArray, longs
from pipeline.storage.files import Files
from pipeline.storage.parquet import typed
from schemas import IDENTITY, MESSAGES, REJECTED_INGEST

Place = tuple[int, int]
"""Ledger, entry."""
START: Place = (-1, -1)
"""Before the first message."""
_PLACES = """
    SELECT ledger_id, entry_id, arrow_cast(due_time, 'Int64') / 1000 AS due_ms
    FROM messages WHERE {mine} AND {after} AND arrow_cast(publish_time, 'Int64') >= {since}
"""
_LAST = """
    SELECT ledger_id, entry_id, {identity}, arrow_cast(publish_time, 'Int64') AS published
    FROM messages WHERE {mine} ORDER BY ledger_id DESC, entry_id DESC LIMIT 1
"""
_FIRST = """
    SELECT ledger_id, entry_id FROM messages WHERE {mine} AND arrow_cast(publish_time, 'Int64') >= {since}
    ORDER BY ledger_id, entry_id LIMIT 1
"""
_FROM = """
    SELECT COUNT(*) AS n FROM messages
    WHERE {mine} AND (ledger_id > {ledger} OR (ledger_id = {ledger} AND entry_id >= {entry}))
"""
_SENT = """
    SELECT {columns} FROM t WHERE {mine} AND producer_name = {name} AND sequence_id = {number} AND {sent}
"""
_ROWS = """
    SELECT {columns} FROM messages WHERE {mine} AND ({spans})
"""
_COLUMNS = ("ledger_id", "entry_id", "message_key", "properties", "publish_time", "deliver_at", *IDENTITY,
            "payload")  # fmt: skip
_SPANS = 64
"""So many ledgers are named in a query; of more the rows in between are read, too."""


_LOOK_S, _LONGEST_LOOK_S, TAKEN_S = 0.02, 0.5, 30
"""Between two looks for a message that ingest has not taken yet, first and at most; so long it is looked for."""


class TopicLog:
    """The rows of `messages` of one topic. Positions grow with each commit, so what is new lies behind the last one."""

    def __init__(self, root: str, topic: str) -> None:
        """Look at nothing yet.

        Raises:
            NoWarehouse: the folder has no messages.
        """
        self.root, self._files, self._folder = root, Files(), path_of(root, MESSAGES)
        self._table, self._read = open_table(root, MESSAGES), -1
        self.topic, self._mine = topic, f"topic = {quoted(topic)}"

    def last(self) -> Place:
        """The position of the newest message."""
        last = self.last_id()
        return START if last == MessageId.earliest else last.position

    def last_id(self) -> MessageId:
        """The id of the newest message; without any it is `MessageId.earliest`."""
        self._renew()
        text = _LAST.format(mine=self._mine, identity=", ".join(self._columns(IDENTITY)))
        rows = arrow_of(text, messages=self._table).to_pylist()
        if not rows:
            return MessageId.earliest
        ledger, entry, *identity = rows[0].values()
        return MessageId.of(self.topic, ledger, entry, identity_of(*identity))

    def end(self) -> Place:
        """Behind the newest message."""
        ledger, entry = self.last()
        return max((0, 0), (ledger, entry + 1))

    def first_since(self, since_ms: int) -> Place:
        """The first position whose message was sent at an instant or later; without any it is the end."""
        end = self.end()
        rows = arrow_of(_FIRST.format(mine=self._mine, since=since_ms * 1_000), messages=self._table).to_pylist()
        return (rows[0]["ledger_id"], rows[0]["entry_id"]) if rows else end

    def count_from(self, place: Place) -> int:
        """How many messages lie at a position or behind it."""
        self._renew()
        text = _FROM.format(mine=self._mine, ledger=place[0], entry=place[1])
        return int(arrow_of(text, messages=self._table).column("n")[0].as_py())

    def places(self, after: Place, since_ms: int) -> tuple[IntArray, IntArray, IntArray] | None:
        """Ledgers, entries and due times (ms) of what lies behind a position and was sent since an instant.

        None when nothing came since the last call.
        """
        self._renew()
        if self._read == self._table.version():
            return None
        behind = f"(ledger_id > {after[0]} OR (ledger_id = {after[0]} AND entry_id > {after[1]}))"
        text = _PLACES.format(mine=self._mine, after=behind, since=since_ms * 1_000)
        found = arrow_of(text, messages=self._table)
        self._read = self._table.version()
        return longs(found, "ledger_id"), longs(found, "entry_id"), longs(found, "due_ms")

    def forget(self) -> None:
        """Let the next look at places find all of them again."""
        self._read = -1

    def position_of(self, message_id: MessageId, timeout_s: float = TAKEN_S) -> Place:
        """The position of a message; see `located`."""
        return located([self], message_id, timeout_s)[1]

    def place_of(self, identity: Identity) -> Place | None:
        """The position of a message that its producer names, of several the last; None: the log does not have it."""
        self._renew()
        rows = self._sent(self._table, "ledger_id, entry_id", identity)
        return max(((each["ledger_id"], each["entry_id"]) for each in rows), default=None)

    def refusal(self, identity: Identity) -> str | None:
        """Why ingest has refused a message; None: it has not."""
        found = self._sent(open_table(self.root, REJECTED_INGEST), "reason", identity)
        return found[0]["reason"] if found else None

    def _sent(self, table: DeltaTable, columns: str, identity: Identity) -> list[dict[str, Any]]:
        check_senders(table)
        name, number, published = identity
        # Statistics have times in ms.
        around = (instant(published // 1_000 + each) for each in (-1, 1))
        sent = "true" if published < 0 else f"publish_time BETWEEN {' AND '.join(around)}"
        texts = {"columns": columns, "mine": self._mine, "name": quoted(name), "number": int(number)}
        return query(_SENT.format(sent=sent, **texts), t=table)

    def rows(self, ledgers: IntArray, entries: IntArray) -> Rows:
        """The rows of some positions, in their order. What retention has deleted meanwhile is left out."""
        named = np.unique(ledgers)
        spans = [(ledger, ledger) for ledger in named.tolist()]
        if len(spans) > _SPANS:
            spans = [(int(each[0]), int(each[-1])) for each in np.array_split(named, _SPANS)]
        condition = " OR ".join(_span(*each, ledgers, entries) for each in spans)
        text = _ROWS.format(columns=", ".join(self._columns(_COLUMNS)), mine=self._mine, spans=condition)
        found = typed(MESSAGES, arrow_of(text, messages=self._table), _COLUMNS)
        places = zip(*(longs(found, name).tolist() for name in _COLUMNS[:2]), strict=True)
        held = {place: number for number, place in enumerate(places)}
        wanted = [held[each] for each in zip(ledgers.tolist(), entries.tolist(), strict=True) if each in held]
        rows, none = found.take(pa.array(wanted, pa.int64())), np.zeros(len(wanted), np.int64)
        return Rows(rows, longs(rows, "ledger_id"), longs(rows, "entry_id"), none, none, none)

    def _columns(self, names: Sequence[str]) -> list[str]:
        """Columns in SQL; of a warehouse of an earlier version some are not there yet, and NULL."""
        lacking = _lacking(self._table)
        return [f"NULL AS {name}" if name in lacking else name for name in names]

    def _renew(self) -> None:
        """Let the table be as new as it can be."""
        if newest(self._files, self._folder, self._table.version()) == self._table.version():
            return
        try:
            self._table.update_incremental()
        except DeltaError:
            # Maintenance cut the log up to a version behind the one that was known.
            self._table = open_table(self.root, MESSAGES)


def _span(first: int, last: int, ledgers: IntArray, entries: IntArray) -> str:
    inside = entries[(ledgers >= first) & (ledgers <= last)]
    return f"(ledger_id BETWEEN {first} AND {last} AND entry_id BETWEEN {inside.min()} AND {inside.max()})"


def check_senders(table: DeltaTable) -> None:
    """Whether a table knows who sent its messages.

    Raises:
        OperationNotSupported: it is of a warehouse of an earlier version.
    """
    if _lacking(table):
        why = "the warehouse is of an earlier version, and does not know who sent a message; start its job once"
        raise OperationNotSupported("message_id", why)


def _lacking(table: DeltaTable) -> set[str]:
    """The columns by which producers name messages that a table does not have yet."""
    return set(IDENTITY) - {each.name for each in table.schema().fields}


def located(logs: Sequence[TopicLog], message_id: MessageId, timeout_s: float = TAKEN_S) -> tuple[TopicLog, Place]:
    """In which of some logs a message is, and its position there. One that ingest has yet to take is waited for.

    Args:
        logs: at least one; several are those of the partitions of a topic.
        message_id: of the message.
        timeout_s: so long at most.

    Raises:
        InvalidMessage: ingest has refused it, no log has it, or several have one of this id.
        OperationNotSupported: the warehouse is of an earlier version.
        Timeout: ingest has not taken it in time.
    """
    identity, until, pause_s = message_id.identity, time.monotonic() + timeout_s, _LOOK_S
    if identity is None or not message_id.is_sent:
        return logs[0], message_id.position
    root, topics, newest_sent = logs[0].root, [each.topic for each in logs], sent(logs[0].root)
    while True:
        # Before the look: what is not under way by then is found, or is in no log.
        waits = is_under_way(root, topics, newest_sent)
        found = [(log, place) for log in logs if (place := log.place_of(identity)) is not None]
        if len(found) > 1:
            allowed = f"an id with its partition, since there is a message in each of {', '.join(topics)}"
            raise InvalidMessage("message_id", str(message_id), allowed)
        if found:
            return found[0]
        if not waits:
            reason = next(filter(None, (log.refusal(identity) for log in logs)), None)
            allowed = (
                "one that the log of its topic has"
                if reason is None
                else f"one that ingest takes, which said: {reason}"
            )
            raise InvalidMessage("message_id", str(message_id), allowed)
        if time.monotonic() >= until:
            what = f"message {message_id}: the job does not run, or has not taken it: it"
            raise Timeout(what, timeout_s * 1_000, JobHint(root))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
