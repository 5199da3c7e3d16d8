"""What settle writes for those behind it, written by hand: positions that come again, and those that do not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Row

from pipeline.config.stages import SETTLE
from pipeline.delta.writing.oncewriter import Sink
from pipeline.storage.arrays import arrow_schema
from schemas import CLOSED, DELIVERIES, MESSAGES, REDELIVERY, SEGMENTS, Table
from state import encode_chunk
from tests.support.stream import Step, World

SEGMENT_MS = 300_000
"""As `tests.support.stream.play` has it."""


@dataclass(frozen=True)
class Again:
    """A message that is put back for a subscription; `due` is when it comes again, ms."""

    payload: str
    due: int
    count: int = 1
    cause: str = "nack"
    subscription: str = "s"
    tick_ms: int = 1
    life: int = 1
    topic: str = "t"


def put_back(*retries: Again) -> Step:
    """Append rows of kind `retry`, in one commit."""

    def step(world: World) -> None:
        commit(world, SEGMENTS, [_retry_row(world, each) for each in retries])

    return step


def close(*retries: Again) -> Step:
    """Say of redeliveries that they are not to be made, in one commit."""

    def step(world: World) -> None:
        commit(world, CLOSED, [_closed_row(world, each) for each in retries])

    return step


def commit(world: World, table: Table, rows: list[dict[str, Any]]) -> None:
    """Append rows as settle does."""
    table_rows = pa.Table.from_pylist([{"batch_id": 7, **row} for row in rows], schema=arrow_schema(table.schema))
    Sink(world.warehouse, table, SETTLE).put(table_rows, "settle", 7, {})


def place(world: World, payload: str, topic: str = "t") -> tuple[int, int]:
    """Ledger and entry of a message."""
    (found,) = (place for place, each in _payloads(world, topic).items() if each == payload)
    return found


def came(world: World, table: Table = DELIVERIES, topic: str = "t") -> list[tuple[str, str, int, str, int]]:
    """(subscription, payload, count, cause, due) of what was delivered or released so far, by due time and count."""
    names = _payloads(world, topic)
    first, last = ("first_entry", "last_entry") if table is REDELIVERY else ("entry_id", "entry_id")
    found = [
        (row["subscription"], names[row["ledger_id"], entry], row["redelivery_count"], row["cause"], _due(row))
        for row in world.rows(table)
        if row["topic"] == topic
        for entry in range(row[first], row[last] + 1)
    ]
    return sorted(found, key=lambda each: (each[-1], each[2], each[:2]))


def again(world: World, table: Table = DELIVERIES, topic: str = "t") -> list[tuple[str, str, int, str, int]]:
    """The same of redeliveries alone."""
    return [each for each in came(world, table, topic) if each[2]]


def _payloads(world: World, topic: str) -> dict[tuple[int, int], str]:
    rows = (row for row in world.rows(MESSAGES) if row["topic"] == topic)
    return {(row["ledger_id"], row["entry_id"]): bytes(row["payload"]).decode() for row in rows}


def _due(row: Row) -> int:
    return round(cast("datetime", row["due_time"]).timestamp() * 1_000)


def _retry_row(world: World, retry: Again) -> dict[str, Any]:
    ledger, entry = place(world, retry.payload, retry.topic)
    return {
        "kind": "retry",
        "topic": retry.topic,
        "subscriptions": [{"name": retry.subscription, "life": retry.life, "tick_ms": retry.tick_ms}],
        "segment_start": retry.due // SEGMENT_MS * SEGMENT_MS * 1_000,
        "count": 1,
        "first_due": retry.due * 1_000,
        "last_due": retry.due * 1_000,
        "redelivery_count": retry.count,
        "cause": retry.cause,
        "chunk": encode_chunk([ledger], [entry], [retry.due], retry.tick_ms),
    }


def _closed_row(world: World, retry: Again) -> dict[str, Any]:
    ledger, entry = place(world, retry.payload, retry.topic)
    position = {"ledger_id": ledger, "first_entry": entry, "last_entry": entry, "redelivery_count": retry.count}
    who = {"topic": retry.topic, "subscription": retry.subscription, "life": retry.life, "cause": retry.cause}
    return position | who | {"closed_at": retry.due * 1_000}
