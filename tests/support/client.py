"""Rows of the tables as the stages would write them, written without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import mkdtemp
from typing import Any

from deltalake import CommitProperties, write_deltalake

from pipeline.client.create import create_all
from pipeline.client.insight.pending import Backlog, pending
from pipeline.delta.deltars import append, open_table, rows_of
from schemas import CANCELLED, SEGMENTS, Table
from state import encode_chunk

MINUTE = 60_000


@cache
def empty_warehouse() -> str:
    """The folder of a warehouse just made, to be copied: making the tables takes ten times as long."""
    folder = mkdtemp()
    create_all(folder)
    return folder


def new_warehouse(root: str | Path) -> str:
    """Make a warehouse in a folder, as `create_all` does for the usual rate, by a copy; its root."""
    return str(copytree(empty_warehouse(), root, copy_function=copyfile, dirs_exist_ok=True))


def at(ms: int) -> datetime:
    """An instant in ms as a timestamp."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def message_row(ledger: int, entry: int, due: int, topic: str = "t", published: int = 0) -> dict[str, Any]:
    """A row of `messages`; times in ms."""
    times = {"publish_time": at(published), "deliver_at": at(due), "due_time": at(max(due, published))}
    return {"topic": topic, "ledger_id": ledger, "entry_id": entry, "parked": False, "batch_id": 0, **times}


def delivery_row(row: dict[str, Any], sequence: int = 1, subscription: str = "s", count: int = 0) -> dict[str, Any]:
    """The row of `deliveries` for a row of `messages`: its bucket is later than its due time."""
    kept = {name: row[name] for name in ("topic", "ledger_id", "entry_id", "publish_time", "deliver_at")}
    bucket = at(int(row["due_time"].timestamp() * 1000) + 24)
    released = {"due_time": bucket, "released_at": bucket, "redelivery_count": count, "cause": "due", "life": 1}
    name = f"{row['ledger_id']}.{row['entry_id']}".encode()
    return {**kept, **released, "subscription": subscription, "batch_id": 0, "sequence": sequence, "payload": name}


def run_row(ledger: int, first: int, last: int, due: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - columns
    """A row of `redelivery`; `due` in ms."""
    of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": ledger, "first_entry": first, "last_entry": last}
    times = dict.fromkeys(("due_time", "message_due", "released_at"), at(due))
    return {**of, **times, "tick_ms": 1, "redelivery_count": 0, "cause": "due", "batch_id": 0, **more}


def left_out_row(ledger: int, entry: int, due: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - columns
    """A row of `rejected_dispatch` for what a command withdrew; `due` in ms."""
    of = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": ledger, "entry_id": entry, "cause": "due"}
    times = dict.fromkeys(("due_time", "rejected_at"), at(due))
    return {**of, **times, "reason": CANCELLED, "redelivery_count": 0, "batch_id": 0, **more}


def retry_row(places: Sequence[tuple[int, int]], due: int, subscription: str = "s", count: int = 1) -> dict[str, Any]:
    """A row of `segments` for positions that come again at the same time, `due` in ms."""
    chunk = encode_chunk([ledger for ledger, _ in places], [entry for _, entry in places], [due] * len(places), 1)
    listener = {"subscriptions": [{"name": subscription, "life": 1, "tick_ms": 1}], "kind": "retry"}
    times = dict.fromkeys(("segment_start", "first_due", "last_due"), at(due))
    columns = {"count": len(places), "redelivery_count": count, "cause": "nack", "chunk": chunk, "batch_id": 1}
    return {"topic": "t", **listener, **times, **columns}


def put(root: str, table: Table, *rows: dict[str, Any]) -> None:
    """Append rows in one commit."""
    append(root, table, rows_of(table, list(rows)))


def noticed(root: str, name: str, first_ledger: int, marker: int = 1, topic: str = "t", life: int = 0) -> None:
    """The marker row by which ingest notices a subscription, in its next life or in the one that a seek asks for."""
    listener = {
        "subscriptions": [{"name": name, "life": life, "tick_ms": 0}],
        "first_ledger": first_ledger,
        "marker": marker,
    }
    put(root, SEGMENTS, {"topic": topic, "count": 0, "kind": "marker", "batch_id": 0, **listener})


def taken(root: str, table: Table, version: int, index: int) -> None:
    """A commit of ingest that notes how far it has taken the inbox."""
    note = json.dumps({"stage": "ingest", "owner": "o", "batch": 0, "note": {"source": [version, index]}})
    properties = CommitProperties(custom_metadata={"userMetadata": note})
    write_deltalake(open_table(root, table), rows_of(table, []), mode="append", commit_properties=properties)


def backlog(root: str, name: str = "s") -> Backlog:
    """What is pending for a subscription."""
    return next(each for each in pending(root).backlogs if each.subscription == name)
