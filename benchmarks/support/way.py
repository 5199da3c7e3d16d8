"""Where a message that is due at once spends its time: when each table had it, by the times of its log's entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import DELIVERIES, INBOX, MESSAGES, REDELIVERY, Table

_AT_ONCE = pc.field("deliver_at") <= pc.field("publish_time")
_PLACE = ["topic", "ledger_id", "entry_id"]
Place = tuple[str, int, int]
"""Topic, ledger id, entry id."""


def way(root: str) -> dict[str, dict[str, float]]:
    """Milliseconds that messages that were due at once took from table to table: count, p50, p99.

    Entries that maintenance has cut from a log, and files that it has vacuumed, are left out. The times of local files
    are taken, so the warehouse has to lie on this machine.
    """
    sent = {rows["publish_time"][0].as_py(): ms for ms, rows in appended(root, INBOX, ["publish_time"])}
    taken = {place: (published, ms) for ms, published, place in _at_once(root, MESSAGES)}
    due, shown = _due(root, set(taken)), {place: ms for ms, _, place in _at_once(root, DELIVERIES)}
    steps = (
        (published.timestamp() * 1_000, sent.get(published), ms, due.get(place), shown.get(place))
        for place, (published, ms) in taken.items()
    )
    whole = np.array([step for step in steps if None not in step], dtype=float).reshape(-1, 5)
    names = ("sent to inbox", "inbox to messages", "messages to redelivery", "redelivery to deliveries")
    return {name: _spread(whole[:, place + 1] - whole[:, place]) for place, name in enumerate(names)}


def _due(root: str, wanted: set[Place]) -> dict[Place, float]:
    """When `redelivery` had each place first."""
    found = dict[Place, float]()
    for ms, rows in appended(root, REDELIVERY, ["topic", "ledger_id", "first_entry", "last_entry"]):
        for run in rows.to_pylist():
            entries = range(run["first_entry"], run["last_entry"] + 1)
            places = ((run["topic"], run["ledger_id"], entry) for entry in entries)
            found = {place: ms for place in places if place in wanted} | found
    return found


def _at_once(root: str, table: Table) -> Iterator[tuple[float, Any, Place]]:
    """When the table had each message that was due at once, when it was published, and its place."""
    for ms, rows in appended(root, table, [*_PLACE, "publish_time"], _AT_ONCE):
        for row in rows.to_pylist():
            yield ms, row["publish_time"], (row["topic"], row["ledger_id"], row["entry_id"])


def appended(
    root: str, table: Table, columns: list[str], where: pc.Expression | None = None
) -> Iterator[tuple[float, pa.Table]]:
    """When each file that somebody appended became visible, and its rows."""
    folder = Path(root, table.name)
    for entry in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
        added = [each["add"] for each in actions if "add" in each and each["add"]["dataChange"]]
        for file in (folder / unquote(add["path"]) for add in added):
            if file.exists():
                yield entry.stat().st_mtime * 1_000, pq.read_table(file, columns=columns, filters=where)


def _spread(ms: Any) -> dict[str, float]:  # noqa: ANN401 - a column of numbers
    if not len(ms):
        return {"count": 0}
    return {"count": len(ms), "p50": round(float(np.quantile(ms, 0.5))), "p99": round(float(np.quantile(ms, 0.99)))}
