"""`kill -9` of the Python processes below a service, as Linux does when memory ends."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from benchmarks.support.processes import tree
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from tests.support.jobs import delivered, said, until
from tests.support.services import RUN, ended_well, service

WORKER = "pyspark.daemon"


def kill_all(root: int, name: str) -> int:
    """Kill the processes below one whose command line has a name; how many."""
    count = 0
    for folder in tree(root):
        with suppress(FileNotFoundError, ProcessLookupError):
            if name in (folder / "cmdline").read_text(encoding="utf-8"):
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count


def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    """Workers and the process that forks them die several times under load; nothing is lost, nothing comes twice."""
    warehouse, log = tmp_path / "warehouse", tmp_path / "run"
    root = str(warehouse)
    create_all(root)
    subscribe(root, Subscription("t", "s", tick_ms=1))
    with service([*RUN, root], log) as job:
        until(lambda: "Running on" in said(log), job, log)
        for sent in range(0, 500, 100):
            send(
                root, [OutgoingMessage("t", b"%d" % number, deliver_after_ms=500) for number in range(sent, sent + 100)]
            )
            until(lambda: len(delivered(warehouse)) > 0, job, log)
            kill_all(job.pid, WORKER)
        until(lambda: len(delivered(warehouse)) >= 500, job, log)
        os.killpg(job.pid, signal.SIGTERM)
        ended_well(job, log)
    assert sorted(map(int, delivered(warehouse))) == list(range(500))
