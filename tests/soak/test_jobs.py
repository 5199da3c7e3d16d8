"""The mains as users of a cluster start them: a process for each stage, and rebuilds between two starts."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.live import profile_text
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.stages import STAGES
from schemas import DELIVERIES, PUBLICATIONS, TABLES
from tests.support.jobs import PATIENCE_S, delivered, main, module, said, started, until, words_of_ours
from tests.support.modules import ROOT

HERE = {"PYTHONPATH": str(ROOT)}


def test_a_process_for_each_stage_delivers_and_one_command_stops_them_all(tmp_path: Path) -> None:
    """Nobody but the tables is between them; all three see the one request to stop, whoever is the first to end."""
    warehouse = tmp_path / "warehouse"
    create_all(str(warehouse))
    subscribe(str(warehouse), Subscription("t", "s", tick_ms=1))
    with ExitStack() as stack:
        jobs = [stack.enter_context(started(main(stage, warehouse), tmp_path / stage, **HERE)) for stage in STAGES]
        for stage, job in zip(STAGES, jobs, strict=True):
            until((warehouse / "_checkpoints" / stage / "offsets").exists, job, tmp_path / stage)
        send(str(warehouse), [OutgoingMessage("t", b"%d" % i, deliver_after_ms=1_000 * (2 - i)) for i in range(3)])
        until(lambda: len(delivered(warehouse)) >= 3, jobs[-1], tmp_path / STAGES[-1])
        command = [sys.executable, "-m", "jobs.cli", "stop", "--warehouse", str(warehouse)]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own command
        assert [job.wait(timeout=PATIENCE_S) for job in jobs] == [0, 0, 0]
    assert delivered(warehouse) == ["2", "1", "0"]
    with started(module("maintain", "--warehouse", str(warehouse), "--retain", "0s"), tmp_path / "tidy", **HERE) as job:
        assert job.wait(timeout=PATIENCE_S) == 0, said(tmp_path / "tidy")
    tables = [table.name for table in TABLES]
    assert [
        line.partition(": ")[0] for line in said(tmp_path / "tidy").splitlines() if "files became" in line
    ] == tables
    assert delivered(warehouse) == ["2", "1", "0"]


def rebuilt(stage: str, warehouse: Path, folder: Path) -> str:
    """Run the command that rebuilds a stage; what it said."""
    with started(module("rebuild", "--stage", stage, "--warehouse", str(warehouse)), folder, **HERE) as job:
        assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    return said(folder)


def other_settings(folder: Path) -> Path:
    """A profile with another lookahead, horizon, longest delay and number of partitions."""
    settings = {"horizon_ms": 1_000, "max_delay_ms": 60_000, "partitions": 3}
    changes = {"session": {"partitions": 3}, "settings": settings, "clock": {"lookahead_ms": 2_000}}
    path = folder / "other.toml"
    path.write_text(profile_text(changes), encoding="utf-8")
    return path


def test_stages_rebuilt_by_command_go_on_under_the_live_clock(tmp_path: Path) -> None:
    """What was pending when the checkpoints were lost comes once, never early, beside what is sent afterwards.

    Settings change at the restart too: an instant that runs ahead of the wall clock shows nothing early.
    """
    warehouse, first, refused, last = (tmp_path / name for name in ("warehouse", "first", "refused", "last"))
    root = str(warehouse)
    create_all(root)
    subscribe(root, Subscription("t", "s", tick_ms=1))
    with started(main("deliver", warehouse), first, **HERE) as job:
        until((warehouse / "_checkpoints/dispatch/offsets").exists, job, first)
        send(root, [OutgoingMessage("t", b"now"), OutgoingMessage("t", b"pending", deliver_after_ms=45_000)])
        until(lambda: delivered(warehouse) == ["now"], job, first)
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=PATIENCE_S) == 0, said(first)
    for stage in STAGES:
        shutil.rmtree(warehouse / "_checkpoints" / stage)
    with started(main("deliver", warehouse), refused, **HERE) as job:
        assert job.wait(timeout=PATIENCE_S) == 2
    assert [line.split(": ")[1] for line in words_of_ours(refused)] == ["stage ingest"]
    for stage in STAGES:
        assert f"stage {stage} goes on" in rebuilt(stage, warehouse, tmp_path / stage)
    with started(main("deliver", warehouse, other_settings(tmp_path)), last, **HERE) as job:
        send(root, [OutgoingMessage("t", b"after", deliver_after_ms=500)])
        until(lambda: len(delivered(warehouse)) >= 3, job, last)
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=PATIENCE_S) == 0, said(last)
    assert sorted(delivered(warehouse)) == ["after", "now", "pending"]
    rows = DeltaTable(f"{root}/{DELIVERIES.name}").to_pyarrow_table().to_pylist()
    assert all(row["deliver_at"] is None or row["deliver_at"] <= row["released_at"] for row in rows)
    published = DeltaTable(f"{root}/{PUBLICATIONS.name}").to_pyarrow_table().to_pylist()
    assert all(row["last_due"] <= row["committed_at"] for row in published)
