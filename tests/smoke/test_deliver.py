"""The job as a process of its own, on the wall clock: started, used from outside, asked to stop."""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipeline.config.stages import STAGES
from tests.support.jobs import PATIENCE_S, PROFILE, delivered, main, said, signal_all, started, until
from tests.support.modules import ROOT


def rows(folder: Path) -> list[dict[str, Any]]:
    """A table's rows."""
    found: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return found


def test_messages_arrive_on_the_wall_clock_and_a_signal_ends_the_job_well(tmp_path: Path) -> None:
    """Sent by delta-rs with delays of seconds: each comes once, none is shown early, and SIGTERM gives exit code 0.

    The signal goes to Python, the JVM and the workers at once, as systemd sends it, and nobody complains. Who watches
    has heard of every batch meanwhile, and none lost a row behind its watermark.
    """
    warehouse, folder, profile = tmp_path / "warehouse", tmp_path / "empty", tmp_path / "profile.toml"
    local = PROFILE.read_text(encoding="utf-8")
    profile.write_text(local.replace("[run]", '[run]\nprogress_log = "progress.jsonl"'), encoding="utf-8")
    with started(main("deliver", warehouse, profile), folder, PYTHONPATH=str(ROOT)) as job:
        until((warehouse / "_checkpoints/dispatch/offsets").exists, job, folder)
        who = {"topic": ["t"], "subscription": ["s"], "type": ["shared"], "start": ["earliest"], "tick_ms": [100]}
        registered = pa.table({**who, "policies": pa.nulls(1, pa.map_(pa.string(), pa.string())), "active": [True]})
        write_deltalake(warehouse / "subscriptions", registered, mode="append")
        delays = pa.table({"topic": ["t"] * 10, "deliver_after_ms": [i * 500 for i in range(10)]})
        sent = delays.append_column("payload", pa.array([b"%d" % i for i in range(10)]))
        write_deltalake(warehouse / "inbox", sent, mode="append", schema_mode="merge")
        until(lambda: len(delivered(warehouse)) >= 10, job, folder)
        seen_at = datetime.now(UTC)
        signal_all(job.pid, signal.SIGTERM)
        assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    assert "Traceback" not in said(folder)
    deliveries = rows(warehouse / "deliveries")
    assert sorted(int(row["payload"]) for row in deliveries) == list(range(10))
    # The schedule runs ahead of the wall clock; what it released is shown when it is due.
    assert all(row["deliver_at"] <= row["due_time"] <= min(row["released_at"], seen_at) for row in deliveries)
    published = rows(warehouse / "publications")
    assert sum(row["count"] for row in published) == 10
    assert all(row["last_due"] <= row["committed_at"] for row in published)
    batches = [json.loads(line) for line in (folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {batch["stage"] for batch in batches} == set(STAGES)
    assert sum(batch["rows"] for batch in batches if batch["stage"] == "ingest") == 10
    assert all(batch["dropped"] == 0 for batch in batches)
