"""What the tables say of messages: which are meant, wherever a table still has them, and what happened to each.

Rows are read in the order in which they are decided: commands before releases, and releases before what became of them.
So what is commanded and not released will not be delivered, and what is released was decided before, or is being
decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.client.commanding.inforce import Chosen, has
from pipeline.client.commanding.inforce import moved as moved_by
from pipeline.client.commanding.inforce import rows as commands
from pipeline.client.insight.published import published
from pipeline.client.tables.datarows import data_file
from pipeline.client.tables.events import ACK, NACK
from pipeline.client.tables.untaken import untaken
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import open_table, path_of, query, quoted
from pipeline.storage.arrays import python_rows
from pipeline.storage.files import Files
from pipeline.storage.parquet import typed
from pipeline.storage.texts import with_texts
from pipeline.subscriptions.commands import READ, withdrawals, wrong
from schemas import (
    CLOSED,
    CONSUMER_EVENTS,
    DELIVERIES,
    IDENTITY,
    INBOX,
    MESSAGES,
    OLDER,
    PUBLICATIONS,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REPLACED,
)
from state.withdrawals import Parts, Round

_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
Fact = str | int | None


@dataclass(frozen=True)
class Step:
    """Something that happened to a message.

    Attributes:
        what: `sent`; `refused` (by ingest); `accepted`; `replaced` (by a newer message with its key); `cancel`,
            `reschedule`, `shift`, `release` or `undo` (a command that names it); `released` (it became due, and
            dispatch takes it); `left_out` (dispatch did not deliver it); `published` (it became visible in
            `deliveries`); `ack` or `nack` (a consumer says so); `closed` (settled while it waited to come again);
            `dead_letter`.
        at: when, ms UTC; None: the tables do not say. Commands and consumers say it by clocks of their own.
        subscription: whose; None: it is the same for all.
        life: of the subscription.
        redelivery_count: of the release or delivery; None: it has none.
        details: what else the tables say of it.
    """

    what: str
    at: int | None
    subscription: str | None = None
    life: int | None = None
    redelivery_count: int | None = None
    details: Mapping[str, Fact] = field(default_factory=dict)


def ms_of(time: datetime | None) -> int | None:
    """A timestamp in ms UTC."""
    return None if time is None else (time - _EPOCH) // _MS


Position = tuple[int, int]
"""Ledger, entry."""
# A key is looked for in two narrow columns; what is there besides is read of the rows that were found.
_KEYED = """
    SELECT DISTINCT ledger_id, entry_id FROM t WHERE topic = {topic} AND {meant}
    ORDER BY ledger_id DESC, entry_id DESC LIMIT {limit}
"""
_ROWS = """
    SELECT ledger_id, entry_id, message_key, properties, publish_time, deliver_at, MIN(due_time) AS due_time, {more}
        COALESCE(octet_length(encode(payload, 'hex')) / 2, 0) AS payload_bytes
    FROM t WHERE topic = {topic} AND ({places}) GROUP BY ALL
"""
_REFUSED = """
    SELECT reason, rejected_at, message_key, properties, publish_time, deliver_at, {more}
        COALESCE(octet_length(encode(payload, 'hex')) / 2, 0) AS payload_bytes
    FROM t WHERE topic = {topic} AND {meant} ORDER BY rejected_at DESC LIMIT {limit}
"""
_PAYLOADS = "SELECT ledger_id, entry_id, payload FROM t WHERE topic = {topic} AND ({places})"
PUT_OFF_FROM = "put_off_from"
"""The column of `messages` that says when a message would be due without the window of its topic."""
_INBOX = ["topic", "message_key", "properties", "publish_time", "deliver_at", *IDENTITY, "payload"]


@dataclass(frozen=True)
class Sent:
    """A message as it was sent.

    Attributes:
        position: (ledger, entry); None: ingest has not taken it, or refused it.
        key: its key, if it has one.
        properties: what was sent beside the payload.
        published: when it was sent, ms UTC; None: nobody said, and ingest has not taken it.
        deliver_at: the time that was asked for, ms UTC; None: none was.
        due: when it is due, ms UTC; None: ingest has not taken it, or refused it.
        payload_bytes: how large it is.
        refused: what ingest said, if it refused it.
        put_off_from: when it would be due without the window of its topic, ms UTC; None: that changed nothing, or
            nobody knows any more.
    """

    position: Position | None
    key: str | None
    properties: Mapping[str, str | None]
    published: int | None
    deliver_at: int | None
    due: int | None
    payload_bytes: int
    refused: Step | None = None
    put_off_from: int | None = None


Meant = Mapping[str, str | int]
"""Columns of messages that are meant, and their values."""


def with_values(root: str, topic: str, meant: Meant, limit: int) -> list[Sent]:
    """The newest messages of a topic with some values, the oldest first; those that have no position come last.

    One that ingest takes at this moment may be told twice, with a position and without one.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The inbox first: what ingest takes meanwhile is in both, and is not missed.
    waiting = list(_in_inbox(root, {"topic": topic, **meant}))
    values = {name: quoted(each) if isinstance(each, str) else each for name, each in meant.items()}
    condition = " AND ".join(f"{name} = {value}" for name, value in values.items())
    texts = {"topic": quoted(topic), "meant": condition, "limit": limit}
    tables = [open_table(root, table) for table in (MESSAGES, DELIVERIES)]
    found = {(row["ledger_id"], row["entry_id"]) for table in tables for row in query(_KEYED.format(**texts), t=table)}
    placed = at(root, topic, sorted(found)[-limit:])
    opened = open_table(root, REJECTED_INGEST)
    more = "".join(f"{name}, " for name in OLDER if has(opened, name))
    refused = [_refused(row) for row in query(_REFUSED.format(more=more, **texts), t=opened)][::-1]
    return [*placed, *refused, *waiting][-limit:]


def at(root: str, topic: str, places: Sequence[Position]) -> list[Sent]:
    """The messages at some positions, by position; those that no table has any more are left out.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    found: dict[Position, Sent] = {}
    for table in (MESSAGES, DELIVERIES):
        left = [each for each in places if each not in found]
        if left:
            opened = open_table(root, table)
            more = f"{PUT_OFF_FROM}," if has(opened, PUT_OFF_FROM) else ""
            rows = query(_ROWS.format(topic=quoted(topic), places=named(left), more=more), t=opened)
            found |= {(row["ledger_id"], row["entry_id"]): _sent(row) for row in rows}
    return [found[each] for each in sorted(found)]


def payloads(root: str, topic: str, places: Sequence[Position]) -> dict[Position, bytes | None]:
    """The payloads of the messages at some positions that a table still has; None: a message without one.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    text = _PAYLOADS.format(topic=quoted(topic), places=named(places))
    tables = (open_table(root, table) for table in (DELIVERIES, MESSAGES))
    rows = [row for table in tables for row in query(text, t=table)]
    return {(row["ledger_id"], row["entry_id"]): row["payload"] for row in rows}


def named(places: Sequence[Position], first: str = "entry_id", last: str = "entry_id") -> str:
    """SQL: whether a row is of one of some positions, by itself or by its run of entries."""
    each = (f"(ledger_id = {ledger} AND {first} <= {entry} AND {last} >= {entry})" for ledger, entry in places)
    return " OR ".join(each)


def _sent(row: Mapping[str, Any]) -> Sent:
    return Sent(
        position=(row["ledger_id"], row["entry_id"]) if "ledger_id" in row else None,
        key=row["message_key"],
        properties=dict(row["properties"] or ()),
        published=ms_of(row["publish_time"]),
        deliver_at=ms_of(row["deliver_at"]),
        due=ms_of(row.get("due_time")),
        payload_bytes=row["payload_bytes"],
        refused=row.get("refused"),
        put_off_from=ms_of(row.get(PUT_OFF_FROM)),
    )


def _refused(row: Mapping[str, Any]) -> Sent:
    details: dict[str, Fact] = {"reason": row["reason"]}
    ledger, entry = (row.get(name) for name in OLDER)
    if ledger is not None:
        details["waits"] = f"{ledger}:{entry}"
    return _sent({**row, "refused": Step("refused", ms_of(row["rejected_at"]), details=details)})


def _in_inbox(root: str, wanted: Meant) -> Iterator[Sent]:
    """Those that ingest has not taken yet."""
    files, folder = Files(), path_of(root, INBOX)
    for added in untaken(root):
        if not data_file(added).may_hold(wanted):
            continue
        # It was taken, and is old enough to be gone.
        with suppress(FileNotFoundError), files.open(f"{folder}/{added['path']}") as file:
            # Whoever appends rows on Spark may leave columns out, and then they are not in the file.
            rows = with_texts(typed(INBOX, pq.ParquetFile(file).read(_INBOX), _INBOX))
            for column, value in wanted.items():
                rows = rows.filter(pc.equal(rows.column(column), value))
            for row in rows.to_pylist():
                yield _sent({**row, "payload_bytes": len(row["payload"] or b"")})


Row = Mapping[str, Any]
_SAID = ("asked", "issued_by", "reason", "at")
_RUN = ("first_entry", "last_entry")
_OF = ("ledger_id", "subscription", "life", "redelivery_count")
_STEPS = (
    (REDELIVERY, _RUN, "'released' AS what, due_time AS at, cause"),
    (REJECTED_DISPATCH, ("entry_id", "entry_id"), "'left_out' AS what, rejected_at AS at, reason"),
    (CLOSED, _RUN, "'closed' AS what, closed_at AS at, cause"),
    (CONSUMER_EVENTS, _RUN, "kind AS what, at, consumer, cause, after_ms"),
)
"""Tables that tell of steps, in the order in which they are read: the columns of the entries, and those of the step."""
_COMMON = {*_OF, *_RUN, "what", "at"}
_ROWS_OF_STEPS = f"""
    SELECT * FROM (
        SELECT {{of}}, {{first}} AS first_entry, {{last}} AS last_entry, {{columns}}
        FROM t WHERE {{mine}} AND ({{places}})
    ) WHERE what IN ('released', 'left_out', 'closed', '{ACK}', '{NACK}')
"""  # noqa: S608 - our own words
_DELIVERED = f"{', '.join(_OF)}, entry_id, due_time, released_at, cause, batch_id, topic"


@dataclass(frozen=True)
class Facts:
    """What the tables say of some positions of a topic, of all subscriptions or of one.

    Attributes:
        commanded: rows of `commands` that name one of them.
        decided: of the tables `_STEPS`.
        delivered: of `deliveries`, with `committed_at`.
        releases: the version of `redelivery`.
        replaced: rows of `replaced` in which one of them is the older or the newer one.
    """

    commanded: pa.Table
    decided: list[dict[str, Any]]
    delivered: list[dict[str, Any]]
    releases: int
    replaced: list[dict[str, Any]]

    @property
    def in_force(self) -> Parts:
        """What commands withdraw."""
        return withdrawals(self.commanded.select(READ)).in_force() if self.commanded.num_rows else {}

    @property
    def moved(self) -> dict[Round, Chosen]:
        """What got another due time by commands."""
        return moved_by(self.commanded.select(READ)) if self.commanded.num_rows else {}

    def is_replaced(self, place: Position) -> bool:
        """Whether a newer message replaced one."""
        return any(_of(self.replaced, place))

    def replaces(self, place: Position) -> str | None:
        """The positions that a message replaced, for people; None: it replaced nothing."""
        rows = (row for row in self.replaced if (row["by_ledger_id"], row["by_entry_id"]) == place)
        return ", ".join(f"{row['ledger_id']}:{row['entry_id']}" for row in rows) or None

    def steps(self, place: Position) -> Iterator[Step]:
        """What happened to one of the positions, to each subscription; in no order."""
        yield from (_replaced(row) for row in _of(self.replaced, place))
        yield from (_commanded(row) for row in _of(python_rows(self.commanded), place))
        yield from (_step(row) for row in _of(self.decided, place))
        yield from (_published(row) for row in _of(self.delivered, place))


def facts(root: str, topic: str, subscription: str | None, places: Sequence[Position]) -> Facts:
    """Read them.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # Positions are those of all topics, and the rows of partitions name their topic.
    replaced = _replacing(root, places)
    mine = f"topic = {quoted(topic)}"
    mine += "" if subscription is None else f" AND subscription = {quoted(subscription)}"
    commanded = commands(root, (*READ, *_SAID), f"{mine} AND ({named(places, *_RUN)})")
    commanded = commanded.filter(pc.is_null(wrong(commanded.select(READ)))) if commanded.num_rows else commanded
    decided, releases = list[dict[str, Any]](), -1
    for table, (first, last), columns in _STEPS:
        opened = open_table(root, table)
        releases = opened.version() if table is REDELIVERY else releases
        texts = {"of": ", ".join(_OF), "first": first, "last": last, "columns": columns, "mine": mine}
        decided += query(_ROWS_OF_STEPS.format(places=named(places, first, last), **texts), t=opened)
    rows = f"SELECT {_DELIVERED} FROM deliveries WHERE {mine} AND ({named(places)})"  # noqa: S608 - quoted
    publications = open_table(root, PUBLICATIONS)
    deliveries = open_table(root, DELIVERIES)
    delivered = query(published(rows, publications), deliveries=deliveries, publications=publications)
    return Facts(commanded, decided, delivered, releases, replaced)


def _replacing(root: str, places: Sequence[Position]) -> list[dict[str, Any]]:
    """Rows of `replaced` that name positions; a warehouse of an earlier version has no such table."""
    try:
        opened = open_table(root, REPLACED)
    except NoWarehouse:
        return []
    newer = " OR ".join(f"(by_ledger_id = {ledger} AND by_entry_id = {entry})" for ledger, entry in places)
    return query(f"SELECT * FROM t WHERE {named(places)} OR {newer} ORDER BY ledger_id, entry_id", t=opened)  # noqa: S608


def _of(rows: Sequence[Row], place: Position) -> Iterator[Row]:
    """Those of a position, which they name by itself or by a run of entries."""
    for row in rows:
        first, last = (row.get(name, row.get("entry_id")) for name in _RUN)
        if row["ledger_id"] == place[0] and first <= place[1] <= last:
            yield row


def _step(row: Row) -> Step:
    """A step; what is NULL is left out."""
    details = {name: value for name, value in row.items() if name not in _COMMON and value is not None}
    return Step(row["what"], ms_of(row["at"]), row["subscription"], row["life"], row["redelivery_count"], details)


def _replaced(row: Row) -> Step:
    by = f"{row['by_ledger_id']}:{row['by_entry_id']}"
    return Step("replaced", ms_of(row["replaced_at"]), details={"by": by})


def _commanded(row: Row) -> Step:
    texts = {"command_id": row["command_id"], "undoes": row["undoes"], "by": row["issued_by"]}
    texts |= {"reason": row["reason"], "asked": row["asked"]}
    said: dict[str, Fact] = {name: text for name, text in texts.items() if text is not None}
    said |= {"due": ms_of(row["deliver_at"])} if row["round"] is not None else {}
    return Step(row["kind"], ms_of(row["at"]), row["subscription"], row["life"], row["redelivery_count"], said)


def _published(row: Row) -> Step:
    """Lateness counts from the bucket, as in the view `lateness`. A job that was started after it is why."""
    at, due, started = ms_of(row["committed_at"]), ms_of(row["due_time"]), ms_of(row["job_started_at"])
    late = None if at is None or due is None else at - due
    details: dict[str, Fact] = {"due": due, "late_ms": late, "cause": row["cause"]}
    if started is not None and due is not None and started > due:
        details["job_started_at"] = started
    return Step("published", at, row["subscription"], row["life"], row["redelivery_count"], details)
