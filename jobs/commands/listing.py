"""`delayline list`: what waits, a line for each message and subscription, as text or JSON."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jobs.commands.jsonform import json_line, record
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text

_POLL_S = 1.0
Look = Callable[[], list[dict[str, Any]]]
"""Gives the rows of what waits, by due time."""


def listed(look: Look, *, follow: bool, limit: int | None) -> Iterator[dict[str, Any]]:
    """The rows of what waits, so many at most; who follows gets, for ever, what is new or due at another time."""
    seen, count = set[tuple[object, ...]](), 0
    while True:
        here = {_same(row): row for row in look()}
        for same, row in here.items():
            if same not in seen:
                yield row
                count += 1
                if count == limit:
                    return
        if not follow:
            return
        seen = set(here)
        time.sleep(_POLL_S)


def line(row: Mapping[str, Any]) -> str:
    """A row for people: when it is due, for whom, its position, its key, how large it is or what it holds."""
    name = printable(f"{row['topic']}/{row['subscription']}")
    key = "" if row["message_key"] is None else f"  [{printable(row['message_key'])}]"
    again = f"  redelivery {row['redelivery_count']}" if row["redelivery_count"] else ""
    text = f"{row['payload_bytes']:,} bytes"
    if "payload" in row:
        text = printable((row["payload"] or b"").decode(errors="backslashreplace"))
    return f"{iso_text(row['due_time'])}  {name}  {row['ledger_id']}:{row['entry_id']}{key}{again}  {text}"


def as_json(row: Mapping[str, Any]) -> str:
    """The same for scripts."""
    same = {name: row[name] for name in ("topic", "subscription", "due_time", "publish_time", "payload_bytes")}
    same |= {"key": row["message_key"], "position": (row["ledger_id"], row["entry_id"])}
    same |= {"properties": dict(row["properties"] or ()), "redelivery_count": row["redelivery_count"]}
    return json_line(record(**same, **({"payload": row["payload"]} if "payload" in row else {})))


def _same(row: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(
        row[name] for name in ("topic", "subscription", "ledger_id", "entry_id", "redelivery_count", "due_time")
    )
