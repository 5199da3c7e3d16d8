"""What the tests of a cluster look at: whether something became visible before it was due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the table is made by delta-rs")
pytest.importorskip("pyspark", reason="the cluster is Spark's")

from pipeline.client.create import create_all
from pipeline.delta.deltars import append, rows_of
from schemas import DELIVERIES
from tests.support.cluster import early

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_deliveries_that_were_visible_before_they_were_due_are_found(tmp_path: Path) -> None:
    """By the time of the file of the log, and by the time that was asked for, where one was."""
    root = str(tmp_path / "warehouse")
    create_all(root)
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    times = [(NOON, None), (NOON, NOON), (ahead, None), (NOON, ahead)]
    same = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": 1, "released_at": NOON, "publish_time": NOON}
    same |= {"batch_id": 1, "sequence": 1, "cause": "due", "redelivery_count": 0, "payload": b""}
    rows = [
        same | {"due_time": due, "deliver_at": asked, "entry_id": number} for number, (due, asked) in enumerate(times)
    ]
    append(root, DELIVERIES, rows_of(DELIVERIES, rows[:2]))
    assert early(tmp_path / "warehouse") == []
    append(root, DELIVERIES, rows_of(DELIVERIES, rows[2:]))
    assert early(tmp_path / "warehouse") == [ahead, ahead]
