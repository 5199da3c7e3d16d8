"""The mains as processes of their own: started in a folder, waited for, listened to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.support import processes
from schemas import DELIVERIES
from tests.support.modules import ROOT

PROFILE = ROOT / "conf" / "local.toml"
PATIENCE_S = 300
Process = subprocess.Popen[bytes]


@contextmanager
def started(command: list[str], folder: Path, **environment: str) -> Iterator[Process]:
    """A process in a folder of its own, its words in `log`; killed if the test leaves it running."""
    folder.mkdir(exist_ok=True)
    with processes.started(command, folder / "log", environment) as process:
        yield process


def module(name: str, *words: str) -> list[str]:
    """The command of a module of `jobs`, without spark-submit."""
    return [sys.executable, "-m", f"jobs.{name}", *words]


def main(job: str, warehouse: Path, profile: Path = PROFILE) -> list[str]:
    """The command of a main without spark-submit."""
    return module(job, "--profile", str(profile), "--warehouse", str(warehouse))


def said(folder: Path) -> str:
    """What the process wrote."""
    return (folder / "log").read_text(encoding="utf-8", errors="replace")


def words_of_ours(folder: Path) -> list[str]:
    """The lines that we wrote, between those of Spark."""
    return [line for line in said(folder).splitlines() if line.startswith("delayline: ")]


def until(seen: Callable[[], bool], job: Process, folder: Path) -> None:
    """Wait for the job to get somewhere; it must stay alive meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while not seen():
        assert job.poll() is None, f"ended with {job.returncode}:\n{said(folder)[-5_000:]}"
        assert time.monotonic() < end, f"not within {PATIENCE_S} s:\n{said(folder)[-5_000:]}"
        time.sleep(0.2)


def delivered(warehouse: Path) -> list[str]:
    """The payloads delivered so far, in order."""
    rows = DeltaTable(f"{warehouse}/{DELIVERIES.name}").to_pyarrow_table().to_pylist()
    in_order = sorted(rows, key=lambda row: (row["batch_id"], row["sequence"]))
    return [row["payload"].decode() for row in in_order]


def lose_the_content_of_a_version(table: Path) -> None:
    """Commit a version to a table whose entry a power cut has left empty."""
    following = DeltaTable(table).version() + 1
    (table / "_delta_log" / f"{following:020d}.json").touch()


def signal_all(root: int, number: int) -> None:
    """Send a signal to a process and to all that it started, as systemd does when it stops a service."""
    for folder in processes.tree(root):
        with suppress(ProcessLookupError):
            os.kill(int(folder.name), number)
