"""The job on the wall clock: lateness, release and idling, taken by an observer that is a process of its own.

Four processes: the job (or a baseline), a producer that appends to `inbox` with delta-rs, the observer
(`benchmarks.support.observer`), and this one, which starts them and counts commits and processor time. They share the
machine, so the figures hold for all of them together. Each run has a warehouse and a JVM of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.support import ROOT
from benchmarks.support.live_report import show
from benchmarks.support.load import GUARD, Producer, Workload, changed, fill_guard, produce, workloads
from benchmarks.support.machine import describe
from benchmarks.support.processes import started
from benchmarks.support.report import tell
from benchmarks.support.sizes import merged
from benchmarks.support.snapshot import Snapshot, Upkeep
from benchmarks.support.usual import LOCAL
from benchmarks.support.way import way
from benchmarks.support.words import check_names
from pipeline.client.create import create_all
from pipeline.config.stages import INGEST, SCHEDULE
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.subscriptions.guards import FOLDER, Guard, text_of
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES, MESSAGES, SUBSCRIPTIONS

_LOOK_S, _START_S, _STOP_S, _SETTLE_S = 0.2, 180, 120, 10
_READ_S = 20
"""Pause between two looks at what was committed; logs are kept for longer."""
_LEAD_MS = 2_000
"""From the start of the observer to that of the load: it has to be there before the first delivery."""
SYSTEMS: dict[str, tuple[list[str], int]] = {
    "delayline": ([str(ROOT / "jobs" / "deliver.py")], 3),
    "polling": (["-m", "benchmarks.baselines.service", "polling"], 2),
    "row-wise": (["-m", "benchmarks.baselines.service", "row-wise"], 3),
}
"""What can be measured: how its process is started, and how many stages it has."""
_TICKING = (INGEST, SCHEDULE)
"""Stages with a clock, which end a batch before `delayline run` says that it runs. Baselines have others."""


class Failed(Exception):
    """A process of a run ended before its time; what it said last is in the text."""


class Run:
    """One workload on one system."""

    def __init__(
        self, workload: Workload, system: str, folder: Path, launcher: Sequence[str] = (sys.executable,)
    ) -> None:
        """Make the warehouse, with its subscriptions and a profile beside it; `launcher` starts the job's program."""
        self._launcher = launcher
        self._workload, self._folder, self._root = workload, folder, str(folder / "warehouse")
        self._command, self._stages = SYSTEMS[system]
        create_all(self._root, rate=max(1, workload.rate // workload.topics))
        named = {"type": "shared", "start": "latest", "active": True}
        policies = self._policies()
        listeners = [
            {"topic": each.topic, "subscription": each.name, "tick_ms": each.tick_ms, "policies": policies or None}
            | named
            for each in workload.listeners
        ]
        append(self._root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, listeners))
        (folder / "profile.toml").write_text(profile_text(workload.profile), encoding="utf-8")

    def _policies(self) -> dict[str, str]:
        """A guard, and its table in the warehouse, for a workload that has one."""
        if not self._workload.guard_rows:
            return {}
        path = f"{self._root}/{FOLDER}/paid"
        fill_guard(path, self._workload.guard_rows)
        policies = Policies(guard=GUARD, guard_tables=text_of({"paid": path}))
        Guard.of(GUARD, policies.guard_tables).checked()
        return policies.as_map()

    def measure(self) -> dict[str, Any]:
        """Start everything, wait for the end, give the figures.

        Raises:
            Failed: the job, the producer or the observer ended with an error.
        """
        begun = time.monotonic()
        with self._job() as job:
            self._until_up(job)
            started_s = time.monotonic() - begun
            self._park(job)
            before = Snapshot.take(self._root, job.pid)
            observed = self._observed(job)
            after = Snapshot.take(self._root, job.pid)
            quiet = self._quiet(job) if self._workload.quiet_s else {}
            code = self._stopped(job)
        row = {"started_s": round(started_s, 1), "run": after.since(before), "job_exit": code, "way": way(self._root)}
        return row | observed | self._check(observed) | quiet

    def _park(self, job: subprocess.Popen[bytes]) -> None:
        """Have messages parked before the stream begins, a batch for each append."""
        for count in Producer(self._workload, self._root).park():
            while open_table(self._root, MESSAGES).count() < count:
                if job.poll() is not None:
                    raise Failed(f"job {job.returncode}: {self._said()}")
                time.sleep(_LOOK_S)

    def _observed(self, job: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Produce and observe until everything has been seen, or patience ends."""
        accepted_at = None
        with self._producer() as (producer, door):
            begin = time.time_ns() // 1_000_000 + _LEAD_MS
            with self._observer(begin) as observer:
                door.send(begin)
                while observer.poll() is None:
                    if job.poll() is not None or producer.exitcode not in (None, 0):
                        raise Failed(f"job {job.returncode}, producer {producer.exitcode}: {self._said()}")
                    if accepted_at is None and producer.exitcode == 0 and self._all_accepted():
                        accepted_at = time.time()
                    time.sleep(_LOOK_S)
                written = observer.communicate()[0]
        if observer.returncode:
            raise Failed(f"observer {observer.returncode}: {self._said()}")
        report: dict[str, Any] = json.loads(written)
        if self._workload.awaited_bulk and accepted_at is not None:
            report["intake_done_before_due_s"] = round(self._workload.bulk_due(begin) / 1_000 - accepted_at, 1)
        return report

    @contextmanager
    def _producer(self) -> Iterator[tuple[BaseProcess, Connection]]:
        """A producer that waits to be told when to begin; killed if it is still there at the end."""
        context = get_context("spawn")
        door, inside = context.Pipe()
        producer = context.Process(target=produce, args=(self._workload, self._root, inside))
        producer.start()
        try:
            if not door.poll(_START_S):
                raise Failed("the producer did not start")
            door.recv()
            yield producer, door
        finally:
            producer.join(timeout=1)
            producer.kill()
            producer.join()
            door.close()

    def _observer(self, begin: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
        workload = self._workload
        end_s = (workload.last_due(begin) - time.time_ns() // 1_000_000) / 1_000 + workload.patience_s
        limits = {"rows": workload.awaited, "timeout": round(end_s), "measured-from": workload.measured_from(begin)}
        first = open_table(self._root, DELIVERIES).version() + 1
        task = limits | {"table": f"{self._root}/{DELIVERIES.name}", "first": first}
        task["lookahead-ms"] = workload.profile["clock"]["lookahead_ms"]
        words = [word for name, value in task.items() for word in (f"--{name}", str(value))]
        return self._started("observer", [sys.executable, "-m", "benchmarks.support.observer", *words], subprocess.PIPE)

    def _all_accepted(self) -> bool:
        return bool(open_table(self._root, MESSAGES).count() >= self._workload.sent)

    def _quiet(self, job: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What the job takes while nothing is due, a moment after the last of the stream was delivered."""
        time.sleep(_SETTLE_S)
        now = before = Snapshot.take(self._root, job.pid)
        upkeep, mine = Upkeep(self._root, before), dict[str, int]()
        while (left := before.at + self._workload.quiet_s - now.at) > 0:
            time.sleep(min(left, _READ_S))
            now = Snapshot.take(self._root, job.pid)
            mine = upkeep.look(now)
        return {"quiet": now.since(before) | {"upkeep": mine}}

    def _check(self, observed: Mapping[str, Any]) -> dict[str, int]:
        """What did not come in time, and what the table holds twice."""
        twice = query(
            "SELECT COUNT(*) AS twice FROM (SELECT topic, subscription, ledger_id, entry_id FROM deliveries "
            "GROUP BY 1, 2, 3, 4 HAVING COUNT(*) > 1)",
            deliveries=open_table(self._root, DELIVERIES),
        )[0]["twice"]
        return {"missing": self._workload.awaited - observed["count"], "twice": twice}

    def _job(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        words = ["--profile", str(self._folder / "profile.toml"), "--warehouse", self._root]
        return self._started("job", [*self._launcher, *self._command, *words])

    def _started(
        self, name: str, command: list[str], output: int | None = None
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """A process whose words go to a log in the folder."""
        known = os.environ.get("PYTHONPATH")
        environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *([known] if known else [])])}
        return started(command, self._folder / f"{name}.log", environment, output)

    def _until_up(self, job: subprocess.Popen[bytes]) -> None:
        """Wait until every stage has planned its first batch, and those with a clock have ended it."""
        end, folder = time.monotonic() + _START_S, Path(self._root, "_checkpoints")
        ticking = [folder / stage for stage in _TICKING]
        while len(list(folder.glob("*/offsets"))) < self._stages or not all(map(_has_ended_a_batch, ticking)):
            if job.poll() is not None or time.monotonic() > end:
                raise Failed(f"the job did not start: {self._said()}")
            time.sleep(_LOOK_S)

    def _stopped(self, job: subprocess.Popen[bytes]) -> int:
        """Ask the job to stop; its exit code, negative when it had to be killed."""
        job.send_signal(signal.SIGTERM)
        try:
            return job.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            job.kill()
            return job.wait()

    def _said(self) -> str:
        """The last words of all processes."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text(encoding='utf-8', errors='replace')[-3_000:]}" for log in logs)


def _has_ended_a_batch(checkpoint: Path) -> bool:
    """Whether it has; also when there is no such checkpoint."""
    return not checkpoint.exists() or (checkpoint / "commits" / "0").exists()


def profile_text(changes: Mapping[str, Mapping[str, Any]]) -> str:
    """The local profile with changes, as TOML."""
    sections = merged(tomllib.loads(LOCAL.read_text(encoding="utf-8")), changes)
    lines = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def measured(workload: Workload, system: str) -> dict[str, Any]:
    """The figures of one run, with what was run."""
    if system != "delayline":
        # It cannot hold back what it has written: ahead of the wall clock it would deliver early.
        workload = replace(changed(workload, ["clock.lookahead_ms=0"]), **workload.baseline)
    with tempfile.TemporaryDirectory(prefix="delayline-live-") as folder:
        figures = Run(workload, system, Path(folder)).measure()
    return {"workload": workload.name, "system": system, "parameters": vars(workload), **figures}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something of ours came early, twice or not in time, or a job did not end well."""
    known = workloads(full=False)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD", default=list(known), help=", ".join(known))
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--beside", action="append", default=[], choices=[*SYSTEMS][1:], help="run a baseline as well")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change SECTION.KEY of the profile, or a size"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    check_names(parser, "workload", options.workload, known)
    try:
        chosen = [changed(workloads(full=options.full)[name], options.set) for name in options.workload]
    except ValueError as error:
        parser.error(str(error))
    runs = (measured(workload, system) for workload in chosen for system in ("delayline", *options.beside))
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    rows = tell(machine, runs, show, as_json=options.json)
    ours = [row for row in rows if row["system"] == "delayline"]
    return int(any(row[wrong] for row in ours for wrong in ("early", "twice", "missing", "job_exit")))


if __name__ == "__main__":
    sys.exit(main())
