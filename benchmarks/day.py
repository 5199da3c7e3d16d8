"""Steady load for long under the virtual clock, with maintenance: what grows, and whether it gets slower.

An instant's time is that of all stages, without the producer's and without maintenance. Files are those that belong to
the tables: Delta's vacuum knows whole hours of the wall clock, so what maintenance takes out of a table within such a
run stays on the disk, and is not counted. A log is cut back to a checkpoint, and there is one every 50 commits: its
length goes up and down, so the most in one half of the run is compared with the most in the other one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.support import WORKLOADS
from benchmarks.support.clocked import Clocked, clocked
from benchmarks.support.machine import describe
from benchmarks.support.processes import memory
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_rows
from benchmarks.support.sizes import entries
from benchmarks.support.usual import usual_machine
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.session import local_session
from pipeline.config.settings import SECOND_MS, Upkeep
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import open_table
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.rounds import maintain
from schemas import DELIVERIES, TABLES

FILE = WORKLOADS / "day.toml"
T0, TICK_MS = 1_700_000_000_000, 1_000
INSTANT, WHEN = "an instant, s", ("most in first half and second", "median of first quarter and last")
COUNTED = FILES, ENTRIES, LOG_KB = "files", "log entries", "log, KB"


@dataclass(frozen=True)
class Workload:
    """One entry of the workload file in one of its sizes; see its head."""

    name: str
    seed: int
    payload_bytes: int
    memory: str
    step_ms: int
    delay_ms: int
    retain_ms: int
    instants: int
    messages: int
    every: int
    warm: int

    @property
    def upkeep(self) -> Upkeep:
        """What maintenance keeps."""
        kept = {"retain_ms": self.retain_ms, "retain_deliveries_ms": self.retain_ms}
        return Upkeep(**kept, retain_log_ms=0, log_ms=0, files_ms=0)

    @property
    def last(self) -> int:
        """An instant at which everything is due, ms."""
        return T0 + self.instants * self.step_ms + self.delay_ms + TICK_MS


def load(*, full: bool) -> list[Workload]:
    """The workloads in the order of their file."""
    return [Workload(**entry) for entry in entries(FILE, full=full)]


def extent(root: str) -> dict[str, dict[str, int]]:
    """How many live files each table has, how many entries its log, and how large the log is."""
    found: dict[str, dict[str, int]] = {name: {} for name in COUNTED}
    for table in TABLES:
        log = list(Path(root, table.name, "_delta_log").iterdir())
        found[FILES][table.name] = len(open_table(root, table).file_uris())
        found[ENTRIES][table.name] = sum(each.suffix == ".json" for each in log)
        found[LOG_KB][table.name] = sum(each.stat().st_size for each in log if each.is_file()) >> 10
    return found


def measured(workload: Workload) -> dict[str, Any]:
    """All figures of a run.

    Raises:
        SystemExit: not every message was delivered once.
    """
    row: dict[str, Any] = {"workload": workload.name, "parameters": vars(workload), "seconds": [], "rounds": []}
    spark = local_session("delayline bench", usual_machine(workload.memory))
    spark.sparkContext.setLogLevel("OFF")
    random = np.random.default_rng(workload.seed)
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        root, deleted = f"{folder}/warehouse", 0
        create_all(root)
        subscribe(root, Subscription("t", "s", tick_ms=TICK_MS))
        with clocked(Warehouse(root, spark)) as job:
            for number in range(workload.instants):
                now = T0 + number * workload.step_ms
                rows = inbox_rows(random, workload.messages, now, (0, workload.delay_ms - 1), workload.payload_bytes)
                row["seconds"].append(round(job.reach(now, rows), 3))
                if (number + 1) % workload.every == 0:
                    row["rounds"].append({"instant": number + 1} | _round(job, workload))
                    deleted += row["rounds"][-1]["deleted"].get(DELIVERIES.name, 0)
            job.reach(workload.last)
            delivered = deleted + open_table(root, DELIVERIES).count()
    spark.stop()
    if delivered != workload.instants * workload.messages:
        raise SystemExit(f"{delivered} delivered of {workload.instants * workload.messages}")
    return row | verdict(row, workload.warm)


def _round(job: Clocked, workload: Workload) -> dict[str, Any]:
    """One round of maintenance, and what there is after it."""
    begun = time.perf_counter()
    # Times of files have whole seconds on some systems.
    done = list(maintain(job.warehouse, workload.upkeep, wall_ms() + SECOND_MS))
    taken = {kind: each.resident >> 20 for kind, each in memory(os.getpid()).items()}
    return {
        "seconds": round(time.perf_counter() - begun, 2),
        "deleted": {each.table: each.rows for each in done if each.rows},
        "extent": extent(job.warehouse.root),
        "memory_mb": taken,
    }


def verdict(row: Mapping[str, Any], warm: int) -> dict[str, Any]:
    """The begin beside the end: the median instant of the first quarter and the last, the most in each half."""
    seconds, rounds = row["seconds"][warm:], row["rounds"]
    quarter, half = max(1, len(seconds) // 4), (len(rounds) + 1) // 2
    times = [round(median(some), 3) for some in (seconds[:quarter], seconds[-quarter:])]
    kinds = {name: [sum(each["extent"][name].values()) for each in rounds] for name in COUNTED}
    kinds |= {"memory, MB": [sum(each["memory_mb"].values()) for each in rounds]}
    most = {name: [max(counts[:half], default=0), max(counts[-half:], default=0)] for name, counts in kinds.items()}
    return {"drift": {INSTANT: times} | most, "cold_s": row["seconds"][0]}


def show(row: Mapping[str, Any]) -> Iterator[str]:
    """A run for a person: a line for each round of maintenance."""
    parameters = {key: value for key, value in row["parameters"].items() if key != "name"}
    yield f"\n{row['workload']}: " + ", ".join(f"{key} {value}" for key, value in parameters.items())
    heads = {"instant": 9, "median s": 10, "round s": 9, "deleted": 10, "MB": 7} | dict.fromkeys(COUNTED, 13)
    yield "  " + "".join(f"{name:>{width}}" for name, width in heads.items())
    for each in row["rounds"]:
        some = row["seconds"][each["instant"] - row["parameters"]["every"] : each["instant"]]
        sums = (sum(each["extent"][name].values()) for name in COUNTED)
        yield (
            f"  {each['instant']:>9}{median(some):>10.3f}{each['seconds']:>9}{sum(each['deleted'].values()):>10,}"
            f"{sum(each['memory_mb'].values()):>7,}" + "".join(f"{value:>13,}" for value in sums)
        )
    for name in COUNTED[:2]:
        counts = row["rounds"][-1]["extent"][name].items()
        yield f"  {name} at the end: " + ", ".join(f"{table} {count}" for table, count in counts if count)
    yield f"  the first instant (cold): {row['cold_s']} s"
    for name, (first, last) in row["drift"].items():
        yield f"  {name}, {WHEN[name == INSTANT]}: {first:,}, {last:,}"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.day", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--instants", type=int, help="so many, instead of those of the file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    chosen = [replace(workload, instants=options.instants or workload.instants) for workload in load(full=options.full)]
    for workload in chosen:
        if workload.instants < (least := max(workload.warm + 1, workload.every)):
            parser.error(f"--instants = {workload.instants}, allowed: {least} and more, for one round of maintenance")
    tell(describe("pyspark", "delta-spark", "pyarrow"), map(measured, chosen), show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
