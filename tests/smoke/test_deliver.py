"""The job as a process of its own, on the wall clock: started, used from outside, asked to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.config.stages import STAGES
from tests.support.jobs import signal_all
from tests.support.modules import ROOT

PATIENCE_S = 180


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A folder for the tables."""
    return tmp_path / "warehouse"


@pytest.fixture
def job(warehouse: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job, running all stages; killed if the test leaves it running."""
    profile, local = tmp_path / "profile.toml", (ROOT / "conf/local.toml").read_text(encoding="utf-8")
    profile.write_text(local.replace("[run]", '[run]\nprogress_log = "progress.jsonl"'), encoding="utf-8")
    command = [sys.executable, "-m", "jobs.deliver", "--profile", str(profile)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own job
            [*command, "--warehouse", str(warehouse)],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        yield process
        if process.poll() is None:
            process.kill()
            process.wait()


def until(seen: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
    """Wait for the job to get somewhere; it must stay alive meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while not seen():
        assert job.poll() is None, f"the job ended with {job.returncode}"
        assert time.monotonic() < end, f"not within {PATIENCE_S} s"
        time.sleep(0.2)


def rows(folder: Path) -> list[dict[str, Any]]:
    """A table's rows; none before it exists."""
    if not (folder / "_delta_log").exists():
        return []
    found: list[dict[str, Any]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return found


def test_messages_arrive_on_the_wall_clock_and_a_signal_ends_the_job_well(
    job: subprocess.Popen[bytes], warehouse: Path, tmp_path: Path
) -> None:
    """Sent by delta-rs with delays of seconds: each comes once, none is shown early, and SIGTERM gives exit code 0.

    The signal goes to Python, the JVM and the workers at once, as systemd sends it, and nobody complains. Who watches
    has heard of every batch meanwhile, and none lost a row behind its watermark.
    """
    until((warehouse / "_checkpoints/dispatch/offsets").exists, job)
    who = {"topic": ["t"], "subscription": ["s"], "type": ["shared"], "start": ["earliest"], "tick_ms": [100]}
    registered = pa.table({**who, "policies": pa.nulls(1, pa.map_(pa.string(), pa.string())), "active": [True]})
    write_deltalake(warehouse / "subscriptions", registered, mode="append")
    delays = pa.table({"topic": ["t"] * 10, "deliver_after_ms": [i * 500 for i in range(10)]})
    sent = delays.append_column("payload", pa.array([b"%d" % i for i in range(10)]))
    write_deltalake(warehouse / "inbox", sent, mode="append", schema_mode="merge")
    until(lambda: len(rows(warehouse / "deliveries")) >= 10, job)
    seen_at = datetime.now(UTC)
    signal_all(job.pid, signal.SIGTERM)
    assert job.wait(timeout=PATIENCE_S) == 0
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")
    delivered = rows(warehouse / "deliveries")
    assert sorted(int(row["payload"]) for row in delivered) == list(range(10))
    # The schedule runs ahead of the wall clock; what it released is shown when it is due.
    assert all(row["deliver_at"] <= row["due_time"] <= min(row["released_at"], seen_at) for row in delivered)
    published = rows(warehouse / "publications")
    assert sum(row["count"] for row in published) == 10
    assert all(row["last_due"] <= row["committed_at"] for row in published)
    batches = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {batch["stage"] for batch in batches} == set(STAGES)
    assert sum(batch["rows"] for batch in batches if batch["stage"] == "ingest") == 10
    assert all(batch["dropped"] == 0 for batch in batches)
