"""The job on other ground: the warehouse in an object store, or every batch by Spark; beside this machine's own disk.

The store is moto's server, a Python process on the same machine, so its time is in the figures. What it shows is how
the ways compare with each other. Lateness is what `publications` says of each commit, of messages that are due a
while after the start (`warm_s`).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.support import ROOT
from benchmarks.support.machine import describe
from benchmarks.support.processes import started, usage
from benchmarks.support.report import tell
from benchmarks.support.s3 import named
from benchmarks.support.sizes import merged
from benchmarks.support.usual import LOCAL
from benchmarks.support.words import check_names
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.stages import STAGES
from pipeline.delta.deltars import arrow_schema, open_table, query
from pipeline.service.watch.line import Publication, percentile
from pipeline.storage.files import Files
from schemas import DELIVERIES, INBOX, PUBLICATIONS

_BUCKET, _APPEND_S, _PATIENCE_S, _SETTLE_S, _LOOK_S = "bench", 0.5, 180, 10, 2


@dataclass(frozen=True)
class Workload:
    """A stream, and perhaps many messages at one instant.

    Attributes:
        name: what it is called.
        rate: messages a second.
        seconds: for so long.
        low_ms: the shortest delay; they are uniform.
        high_ms: the longest.
        bulk: messages due together, 30 s after the stream has begun.
        warm_s: what is due in the first so many seconds does not count.
        idle_s: so long is measured afterwards what the job takes while nothing is due.
    """

    name: str
    rate: int
    seconds: int
    low_ms: int = 15_000
    high_ms: int = 40_000
    bulk: int = 0
    warm_s: int = 25
    idle_s: int = 0


WORKLOADS = (
    Workload("steady 500", 500, 40, idle_s=30),
    Workload("steady 2000", 2_000, 40),
    Workload("release 100000", 0, 40, bulk=100_000),
    Workload("at once", 20, 40, low_ms=0, high_ms=0, warm_s=15, idle_s=30),
)
PLACES: dict[str, tuple[bool, dict[str, Any]]] = {
    "disk": (False, {}),
    "disk, by Spark": (False, {"driver_rows": 0}),
    "store": (True, {}),
    "store, by Spark": (True, {"driver_rows": 0}),
}
"""Where the warehouse lies and what the profile says: in the store or not, and settings."""
_SHOWN = """
    SELECT d.publish_time, p.committed_at FROM deliveries d
    JOIN publications p ON d.batch_id = p.batch_id AND d.due_time BETWEEN p.first_due AND p.last_due
"""


def _until(there: Any, process: subprocess.Popen[bytes]) -> None:  # noqa: ANN401 - a function without arguments
    end = time.monotonic() + _PATIENCE_S
    while not there():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"process {process.pid} ended or does not answer")
        time.sleep(_LOOK_S)


class Run:
    """One workload in one place."""

    def __init__(self, workload: Workload, place: str, folder: Path) -> None:
        """Make the warehouse."""
        remote, settings = PLACES[place]
        self._workload, self._folder = workload, folder
        self._root = f"s3a://{_BUCKET}/{folder.name}" if remote else str(folder / "warehouse")
        create_all(self._root, rate=max(1_000, workload.rate))
        subscribe(self._root, Subscription("t", "s", start="earliest", tick_ms=1_000))
        profile = merged(
            tomllib.loads(LOCAL.read_text(encoding="utf-8")),
            {"settings": settings, "run": {"progress_log": str(folder / "progress.jsonl")}},
        )
        lines = [
            f"[{name}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in each.items())
            for name, each in profile.items()
        ]
        (folder / "profile.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def measure(self) -> dict[str, Any]:
        """Start the job, send, wait for all deliveries, give the figures."""
        words = [str(ROOT / "jobs" / "deliver.py"), "--profile", str(self._folder / "profile.toml")]
        command = [sys.executable, *words, "--warehouse", self._root]
        with started(command, self._folder / "job.log", {"PYTHONPATH": str(ROOT)}) as job:
            up = time.monotonic()
            _until(lambda: all(self._begun(stage) for stage in STAGES), job)
            figures: dict[str, Any] = {"up_s": round(time.monotonic() - up, 1)}
            begin, used = time.time(), usage(job.pid)
            sent = self._send(begin)
            _until(lambda: open_table(self._root, DELIVERIES).count() >= sent, job)
            took = time.time() - begin
            figures["cpu_s_per_minute"] = round((usage(job.pid).cpu_s - used.cpu_s) / took * 60)
            figures |= self._idle(job.pid) if self._workload.idle_s else {}
            job.send_signal(signal.SIGTERM)
            figures["job_exit"] = job.wait(timeout=_PATIENCE_S)
        figures |= self._late(begin, sent) | ({} if self._workload.high_ms else self._at_once(begin))
        return figures | {"batches": self._batches()}

    def _batches(self) -> dict[str, Any]:
        """Of each stage: how many batches, and the medians of where their time went, ms."""
        lines = (self._folder / "progress.jsonl").read_text(encoding="utf-8").splitlines()
        by_stage: dict[str, list[dict[str, int]]] = {}
        for each in map(json.loads, lines):
            if each["event"] == "progress":
                by_stage.setdefault(each["stage"], []).append(each["duration_ms"])
        return {stage: _parts(batches) for stage, batches in by_stage.items()}

    def _begun(self, stage: str) -> bool:
        return Files().exists(f"{self._root}/_checkpoints/{stage}/offsets/0")

    def _send(self, begin: float) -> int:
        """Append the messages at their times, as a producer does that stays; how many they were."""
        load, random, sent = self._workload, np.random.default_rng(7), 0
        # A table that is opened for each append reads its log each time, and most of the store's work would be that.
        inbox = open_table(self._root, INBOX)
        if load.bulk:
            write_deltalake(inbox, _rows(np.full(load.bulk, int((begin + 30) * 1e6)), random), mode="append")
            return load.bulk
        for number in range(int(load.seconds / _APPEND_S)):
            time.sleep(max(0.0, begin + number * _APPEND_S - time.time()))
            count = int(load.rate * _APPEND_S)
            due = time.time() * 1e6 + random.uniform(load.low_ms, load.high_ms, count) * 1e3
            write_deltalake(inbox, _rows(due.astype(np.int64), random), mode="append")
            sent += count
        return sent

    def _idle(self, pid: int) -> dict[str, Any]:
        time.sleep(_SETTLE_S)
        before = usage(pid).cpu_s
        time.sleep(self._workload.idle_s)
        return {"idle_cpu_s_per_minute": round((usage(pid).cpu_s - before) / self._workload.idle_s * 60, 1)}

    def _at_once(self, begin: float) -> dict[str, Any]:
        """From sent to visible, in seconds."""
        tables = {name.name: open_table(self._root, name) for name in (DELIVERIES, PUBLICATIONS)}
        rows = query(_SHOWN, **tables)
        sent = [(each["publish_time"].timestamp(), each["committed_at"].timestamp()) for each in rows]
        took = [shown - at for at, shown in sent if at >= begin + self._workload.warm_s]
        return {f"sent_to_visible_p{share}": round(float(np.percentile(took, share)), 2) for share in (50, 99)}

    def _late(self, begin: float, sent: int) -> dict[str, Any]:
        """Lateness in seconds, and what is missing or there twice."""
        rows = query("SELECT * FROM publications", publications=open_table(self._root, PUBLICATIONS))
        names = ("first_due", "last_due", "committed_at")
        lines = [(row["count"], *(int(row[name].timestamp() * 1_000) for name in names)) for row in rows]
        counted = [each for each in lines if each[1] >= (begin + self._workload.warm_s) * 1_000]
        parts = [Publication.of(*each) for each in counted]
        late = {f"p{share:.0%}"[:-1]: percentile(parts, share) for share in (0.5, 0.99, 1.0)}
        figures = {name: None if value is None else round(value, 2) for name, value in late.items()}
        held = query(
            "SELECT COUNT(*) AS n, COUNT(DISTINCT ledger_id * 1000000 + entry_id) AS d FROM deliveries",
            deliveries=open_table(self._root, DELIVERIES),
        )[0]
        early = sum(each[3] < each[2] for each in lines)
        return {**figures, "missing": sent - held["d"], "twice": held["n"] - held["d"], "early": early}


def _parts(batches: list[dict[str, int]]) -> dict[str, int]:
    """How many batches, and the median of each part of their time, ms."""
    names = {name for batch in batches for name in batch}
    medians = {name: int(np.median([batch.get(name, 0) for batch in batches])) for name in sorted(names)}
    return {"count": len(batches)} | {name: ms for name, ms in medians.items() if ms}


def _rows(due: np.ndarray[Any, np.dtype[np.int64]], random: np.random.Generator) -> pa.Table:
    schema, count = arrow_schema(INBOX), len(due)
    row = {
        "topic": pa.repeat("t", count),
        "publish_time": pa.repeat(pa.scalar(time.time_ns() // 1_000, pa.timestamp("us", "UTC")), count),
        "deliver_at": pa.array(due, pa.timestamp("us", "UTC")),
        "payload": pa.array([random.bytes(100)] * count, pa.binary()),
    }
    return pa.table([row.get(field.name, pa.nulls(count)).cast(field.type) for field in schema], schema)


def show(row: dict[str, Any]) -> Iterator[str]:
    """One run for a person."""
    yield f"{row['workload']}, {row['place']}: " + ", ".join(
        f"{name} {value}" for name, value in row.items() if name not in {"workload", "place", "parameters"}
    )


def measured(workload: Workload, place: str) -> dict[str, Any]:
    """The figures of one run, with what was run."""
    with (
        named(_BUCKET) if PLACES[place][0] else nullcontext(),
        tempfile.TemporaryDirectory(prefix="delayline-stores-") as folder,
    ):
        figures = Run(workload, place, Path(folder)).measure()
    return {"workload": workload.name, "place": place, "parameters": vars(workload), **figures}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something came early, twice or not at all, or a job did not end well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[each.name for each in WORKLOADS], metavar="WORKLOAD")
    parser.add_argument("--place", nargs="*", default=list(PLACES), choices=[*PLACES])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    check_names(parser, "workload", options.only, [each.name for each in WORKLOADS])
    runs = (measured(each, place) for each in WORKLOADS if each.name in options.only for place in options.place)
    rows = tell(describe("pyspark", "delta-spark", "deltalake", "pyarrow"), runs, show, as_json=options.json)
    return int(any(row[wrong] for row in rows for wrong in ("early", "twice", "missing", "job_exit")))


if __name__ == "__main__":
    sys.exit(main())
