"""Where a message that is due at once spends its time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("deltalake", reason="the tables are made by delta-rs")

from benchmarks.support.way import way
from pipeline.client.create import create_all
from pipeline.delta.deltars import append, arrow_schema, rows_of
from schemas import DELIVERIES, INBOX, MESSAGES, REDELIVERY, Table

SENT = datetime(2026, 11, 24, tzinfo=UTC)
_EMPTY = {pa.string(): "", pa.binary(): b"", pa.bool_(): False, pa.timestamp("us", "UTC"): SENT}


def added(root: str, table: Table, after_ms: int, **columns: Any) -> None:  # noqa: ANN401 - values of any column
    """Append a row that was visible so long after it was sent; what is not told is empty."""
    values = {field.name: _EMPTY.get(field.type, 0) for field in arrow_schema(table) if not field.nullable} | columns
    version = append(root, table, rows_of(table, [values]))
    seen = SENT.timestamp() + after_ms / 1_000
    os.utime(Path(root, table.name, "_delta_log", f"{version:020d}.json"), (seen, seen))


def test_each_step_of_what_is_due_at_once_is_told(tmp_path: Path) -> None:
    """What is delayed is left out, and so is what has not arrived."""
    root = str(tmp_path)
    create_all(root)
    added(root, INBOX, 20, topic="t", publish_time=SENT, payload=b"")
    for entry, delay in ((0, 0), (1, 5), (2, 0)):
        message = {"topic": "t", "ledger_id": 7, "publish_time": SENT, "deliver_at": SENT + timedelta(seconds=delay)}
        added(root, MESSAGES, 220, entry_id=entry, **message)
        if entry < 2:
            added(root, DELIVERIES, 420, entry_id=entry, **message)
    added(root, REDELIVERY, 250, topic="t", ledger_id=7, first_entry=0, last_entry=1)
    added(root, REDELIVERY, 900, topic="t", ledger_id=7, first_entry=0, last_entry=0)
    assert way(root) == {
        "sent to inbox": {"count": 1, "p50": 20, "p99": 20},
        "inbox to messages": {"count": 1, "p50": 200, "p99": 200},
        "messages to redelivery": {"count": 1, "p50": 30, "p99": 30},
        "redelivery to deliveries": {"count": 1, "p50": 170, "p99": 170},
    }


def test_a_warehouse_in_which_nothing_was_due_at_once_has_no_steps(tmp_path: Path) -> None:
    """A baseline may use other tables."""
    create_all(str(tmp_path))
    assert {step["count"] for step in way(str(tmp_path)).values()} == {0}
