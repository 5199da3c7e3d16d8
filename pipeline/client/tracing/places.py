"""Which messages are meant: those of a topic with a key, or the one at a position, wherever a table still has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.client.reading.deliveries import may_hold
from pipeline.client.tracing.step import Step, ms_of
from pipeline.client.untaken import untaken
from pipeline.delta.deltars import open_table, path_of, query, quoted
from pipeline.storage.files import Files
from pipeline.storage.parquet import typed
from pipeline.storage.texts import with_texts
from schemas import DELIVERIES, INBOX, MESSAGES, REJECTED_INGEST

Position = tuple[int, int]
"""Ledger, entry."""
# A key is looked for in two narrow columns; what is there besides is read of the rows that were found.
_KEYED = """
    SELECT DISTINCT ledger_id, entry_id FROM t WHERE topic = {topic} AND message_key = {key}
    ORDER BY ledger_id DESC, entry_id DESC LIMIT {limit}
"""
_ROWS = """
    SELECT ledger_id, entry_id, message_key, properties, publish_time, deliver_at, MIN(due_time) AS due_time,
        COALESCE(octet_length(encode(payload, 'hex')) / 2, 0) AS payload_bytes
    FROM t WHERE topic = {topic} AND ({places}) GROUP BY ALL
"""
_REFUSED = """
    SELECT reason, rejected_at, message_key, properties, publish_time, deliver_at,
        COALESCE(octet_length(encode(payload, 'hex')) / 2, 0) AS payload_bytes
    FROM t WHERE topic = {topic} AND message_key = {key} ORDER BY rejected_at DESC LIMIT {limit}
"""
_INBOX = ["topic", "message_key", "properties", "publish_time", "deliver_at", "payload"]


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
    """

    position: Position | None
    key: str | None
    properties: Mapping[str, str | None]
    published: int | None
    deliver_at: int | None
    due: int | None
    payload_bytes: int
    refused: Step | None = None


def with_key(root: str, topic: str, key: str, limit: int) -> list[Sent]:
    """The newest messages of a topic with a key, the oldest of them first; those that have no position come last.

    One that ingest takes at this moment may be told twice, with a position and without one.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The inbox first: what ingest takes meanwhile is in both, and is not missed.
    waiting = list(_in_inbox(root, topic, key))
    texts = {"topic": quoted(topic), "key": quoted(key), "limit": limit}
    tables = [open_table(root, table) for table in (MESSAGES, DELIVERIES)]
    found = {(row["ledger_id"], row["entry_id"]) for table in tables for row in query(_KEYED.format(**texts), t=table)}
    placed = at(root, topic, sorted(found)[-limit:])
    refused = [_refused(row) for row in query(_REFUSED.format(**texts), t=open_table(root, REJECTED_INGEST))][::-1]
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
            text = _ROWS.format(topic=quoted(topic), places=named(left))
            rows = query(text, t=open_table(root, table))
            found |= {(row["ledger_id"], row["entry_id"]): _sent(row) for row in rows}
    return [found[each] for each in sorted(found)]


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
    )


def _refused(row: Mapping[str, Any]) -> Sent:
    return _sent({**row, "refused": Step("refused", ms_of(row["rejected_at"]), details={"reason": row["reason"]})})


def _in_inbox(root: str, topic: str, key: str) -> Iterator[Sent]:
    """Those that ingest has not taken yet."""
    files, folder, wanted = Files(), path_of(root, INBOX), {"topic": topic, "message_key": key}
    for added in untaken(root):
        if not may_hold(added, wanted):
            continue
        # It was taken, and is old enough to be gone.
        with suppress(FileNotFoundError), files.open(f"{folder}/{added['path']}") as file:
            # Whoever appends rows on Spark may leave columns out, and then they are not in the file.
            rows = with_texts(typed(INBOX, pq.ParquetFile(file).read(_INBOX), _INBOX))
            for column, value in wanted.items():
                rows = rows.filter(pc.equal(rows.column(column), value))
            for row in rows.to_pylist():
                yield _sent({**row, "payload_bytes": len(row["payload"] or b"")})
