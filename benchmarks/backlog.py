"""What messages that wait cost those that do not: memory, time of a batch, of a load and of a release, by their number.

For each number a warehouse is filled by one process, which also sorts the messages as maintenance does, and measured by
another one: memory that only the filling took does not count. Both are started for it, so no number inherits anything
from the one before. Times are of instants under the virtual clock, without the producer's. The first of each kind is
cold, the median of the others warm.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.support import WORKLOADS
from benchmarks.support.clocked import Clocked, clocked
from benchmarks.support.held import held
from benchmarks.support.machine import describe
from benchmarks.support.processes import apart, memory
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_rows
from benchmarks.support.sizes import entries
from benchmarks.support.usual import usual_machine
from benchmarks.support.words import check_only
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.session import compiled, local_session
from pipeline.config.settings import MINUTE_MS, Upkeep
from pipeline.delta.warehouse import Warehouse
from pipeline.maintenance.layout import cluster
from pipeline.maintenance.rounds import own_session
from schemas import DELIVERIES
from state import tick_bits, trim_up

FILE = WORKLOADS / "backlog.toml"
SEGMENT_MS, TICK_MS = 5 * MINUTE_MS, 1_000
T0 = 1_700_000_100_000
"""The begin of a segment."""
PAUSE_MS = 10_000
TIMES = INSTANT, LOAD, RELEASE = "an instant, s", "load of a segment, s", "release of what is due at once, s"
STATE = "state, bytes"


@dataclass(frozen=True)
class Workload:
    """One entry of the workload file in one of its sizes; see its head."""

    name: str
    seed: int
    payload_bytes: int
    memory: str
    sizes: Sequence[int]
    spread_ms: int
    slice: int
    steady: int
    steady_ms: int
    instants: int
    step_ms: int
    warm: int
    loads: int
    released: int
    releases: int

    @property
    def loads_from(self) -> int:
        """The instant of the first load, ms."""
        return T0 + SEGMENT_MS

    @property
    def releases_from(self) -> int:
        """The instant after the last load, ms."""
        return self.loads_from + self.loads * SEGMENT_MS

    def due(self, release: int) -> int:
        """When the messages of a release are due, ms: at a bucket, so that not one comes later."""
        return trim_up(self.releases_from + (release + 1) * PAUSE_MS, tick_bits(TICK_MS))


def load(*, full: bool) -> list[Workload]:
    """The workloads in the order of their file."""
    return [Workload(**entry) for entry in entries(FILE, full=full)]


class Entering:
    """What enters in a run of a workload."""

    def __init__(self, workload: Workload) -> None:
        """Draw nothing yet."""
        self.workload, self._random = workload, np.random.default_rng(workload.seed)

    def rows(self, count: int, published: int, delays: tuple[int, int]) -> pa.Table:
        """Rows of the inbox with delays from one to another; times in ms."""
        return inbox_rows(self._random, count, published, delays, self.workload.payload_bytes)


@contextmanager
def stages(workload: Workload, root: str) -> Iterator[tuple[SparkSession, Clocked]]:
    """A session of this process, and all stages in it."""
    spark = local_session("delayline bench", usual_machine(workload.memory))
    spark.sparkContext.setLogLevel("OFF")
    try:
        with clocked(Warehouse(root, spark)) as job:
            yield spark, job
    finally:
        spark.stop()


def fill(workload: Workload, root: str, count: int) -> dict[str, Any]:
    """Take in the messages that wait: seconds of the stages, and the most memory."""
    entering = Entering(workload)
    with stages(workload, root) as (spark, job), compiled(spark):
        job.reach(T0 - 1)
        seconds = 0.0
        for number, first in enumerate(range(0, count, workload.slice)):
            rows = entering.rows(min(workload.slice, count - first), T0, (1, workload.spread_ms))
            seconds += job.reach(T0 + number, rows)
        taken = {"seconds": round(seconds, 1), "per_s": round(count / seconds), "peak_mb": _mb("peak")}
        return taken | _sorted(job.warehouse)


def _sorted(warehouse: Warehouse) -> dict[str, Any]:
    """Sort the messages as rounds of maintenance would have: seconds, rounds, and how many files were written again."""
    upkeep, begun, found = Upkeep(), time.perf_counter(), list[int]()
    warehouse = warehouse.within(own_session(warehouse.spark))
    while again := cluster(warehouse, T0 + upkeep.every_ms, upkeep.cluster_bytes)[0]:
        found.append(again)
    return {"sorted_s": round(time.perf_counter() - begun, 1), "rounds": len(found), "sorted_files": sum(found)}


def measure(workload: Workload, root: str) -> dict[str, Any]:
    """All figures of a warehouse that was filled: the warm ones, and the cold ones of what has both."""
    entering = Entering(workload)
    with stages(workload, root) as (_, job):
        times = {
            INSTANT: cold_and_warm(_steadily(job, entering), workload.warm),
            LOAD: cold_and_warm(_loads(job, workload), workload.loads - 1),
            RELEASE: cold_and_warm(_releases(job, entering), workload.releases - 1),
        }
        resident, state = _mb("resident"), held(job.warehouse)
    sizes = {f"{kind}, MB": size for kind, size in resident.items()} | {STATE: state.size}
    return {
        "figures": {name: warm for name, (_, warm) in times.items()} | sizes,
        "cold": {name: cold for name, (cold, _) in times.items()},
        "state": vars(state),
    }


def cold_and_warm(seconds: Iterable[float], warm: int) -> tuple[float, float]:
    """The first of them, and the median of the last."""
    found = list(seconds)
    return round(found[0], 3), round(median(found[-warm:]), 3)


def _steadily(job: Clocked, entering: Entering) -> Iterator[float]:
    """Seconds of instants at which a few messages enter and as many leave, all within a segment."""
    workload = entering.workload
    for number in range(1, workload.instants + 1):
        now = T0 + number * workload.step_ms
        yield job.reach(now, entering.rows(workload.steady, now, (1, workload.steady_ms)))


def _loads(job: Clocked, workload: Workload) -> Iterator[float]:
    """Seconds that ingest takes to load a segment, and to note it."""
    for number in range(workload.loads):
        job.reach(workload.loads_from + number * SEGMENT_MS)
        if not job.steps.seconds("ingest.segments"):
            raise SystemExit("nothing was loaded: the figure would be worth nothing")
        yield job.steps.seconds("ingest")


def _releases(job: Clocked, entering: Entering) -> Iterator[float]:
    """Seconds from the instant at which a release is due to its last row in `deliveries`."""
    workload = entering.workload
    for number in range(workload.releases):
        due = workload.due(number)
        published = due - PAUSE_MS // 2
        job.reach(published, entering.rows(workload.released, published, (due - published, due - published)))
        job.reach(due - 1)
        yield job.reach(due)
        wanted = F.col("deliver_at") == F.timestamp_millis(F.lit(due))
        if job.warehouse.read(DELIVERIES).where(wanted).count() < workload.released:
            raise SystemExit("not all were delivered: the figure would be worth nothing")


def _mb(name: str) -> dict[str, int]:
    """Memory of this process and of those below it, by kind; MB."""
    return {kind: getattr(found, name) >> 20 for kind, found in memory(os.getpid()).items()}


def measured(workload: Workload) -> dict[str, Any]:
    """All sizes of a workload."""
    row: dict[str, Any] = {"workload": workload.name, "parameters": vars(workload), "sizes": []}
    for count in workload.sizes:
        with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
            root = f"{folder}/warehouse"
            create_all(root, segment_ms=SEGMENT_MS)
            subscribe(root, Subscription("t", "s", tick_ms=TICK_MS))
            filled = apart(fill, workload, root, count)
            row["sizes"].append({"messages": count, "filled": filled, **apart(measure, workload, root)})
    return row


def growth(row: Mapping[str, Any]) -> dict[str, float]:
    """How much the largest of each figure is of that with the fewest messages."""
    least, *_ = sizes = [each["figures"] for each in row["sizes"]]
    return {name: round(max(each[name] for each in sizes) / max(least[name], 0.001), 2) for name in least}


def show(row: Mapping[str, Any]) -> Iterator[str]:
    """A workload for a person: a column for each size."""
    parameters = {key: value for key, value in row["parameters"].items() if key not in ("name", "sizes")}
    yield f"\n{row['workload']}: " + ", ".join(f"{key} {value}" for key, value in parameters.items())
    yield _line("messages that wait", [each["messages"] for each in row["sizes"]]) + f"{'growth':>9}"
    for name, ratio in growth(row).items():
        yield _line(name, [each["figures"][name] for each in row["sizes"]]) + f"{ratio:>8.2f}x"
        if name in TIMES:
            yield _line("  cold", [each["cold"][name] for each in row["sizes"]])
    for name in ("keys", "positions"):
        yield _line(f"{name} in the state", [each["state"][name] for each in row["sizes"]])
    yield _line("taken in, a second", [each["filled"]["per_s"] for each in row["sizes"]])
    yield _line("rounds of sorting", [each["filled"]["rounds"] for each in row["sizes"]])
    yield _line("sorted in, s", [each["filled"]["sorted_s"] for each in row["sizes"]])


def _line(name: str, values: Iterable[float]) -> str:
    return f"  {name:26}" + "".join(f"{value:>14,}" for value in values)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backlog", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--sizes", type=int, nargs="*", help="other sizes than those of the file")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    workloads = list(load(full=options.full))
    check_only(parser, options.only, [workload.name for workload in workloads])
    chosen = (workload for workload in workloads if options.only in workload.name)
    rows = (measured(replace(workload, sizes=options.sizes or workload.sizes)) for workload in chosen)
    tell(describe("pyspark", "delta-spark", "pyarrow"), rows, show, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
