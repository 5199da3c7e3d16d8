"""A standalone cluster on this machine: lateness of a live load, and one hot topic on more and more executors.

Executors have one core each, and share the disk. `batch` sends one topic's messages through all stages by Spark alone
and says for each stage how much of its time is serial: Amdahl's fraction, of the time with one executor and with more.
Its executors stay on their core, compiler and Python workers included, where the system can see to it; the driver may
use every core.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from benchmarks import live
from benchmarks.support import ROOT, WORKLOADS
from benchmarks.support.live_report import show as show_live
from benchmarks.support.load import Workload
from benchmarks.support.machine import describe
from benchmarks.support.processes import apart, memory, usage
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_rows
from benchmarks.support.sizes import entries
from benchmarks.support.standalone import CONFINES, HERE, Cluster, cluster, submit
from benchmarks.support.usual import usual_machine
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.session import local_session
from pipeline.config.settings import MINUTE_MS, Settings, VirtualClock
from pipeline.config.sparkversion import delta_package
from pipeline.delta.deltars import append
from pipeline.delta.warehouse import Warehouse
from pipeline.service import clock
from pipeline.service.lockstep import reach
from pipeline.service.run import Stage, start_all, stop_all
from schemas import DELIVERIES, INBOX

FILE = WORKLOADS / "cluster.toml"
T0, SEGMENT_MS = 1_700_000_100_000, 5 * MINUTE_MS
MEMORY = "2g"
"""Of an executor, and of the driver's JVM."""
PARTS = ("ingest", "encode", "schedule", "release")
"""What is measured; `encode` is the part of ingest that makes positions into chunks."""
ALL = "all"


@dataclass(frozen=True)
class Batch:
    """The workload `batch` in one of its sizes; see the head of the file."""

    name: str
    seed: int
    payload_bytes: int
    tick_ms: int
    executors: int
    files: int
    delay_ms: int
    spread_ms: int
    messages: int
    warmup: int

    @property
    def due(self) -> int:
        """The instant at which all of it is released, ms."""
        return T0 + self.delay_ms + self.spread_ms + self.tick_ms


def load(*, full: bool) -> tuple[Workload, int, Batch]:
    """The live workload and its number of executors, and the batch."""
    streamed, batched = entries(FILE, full=full)
    executors = streamed.pop("executors")
    return Workload(**streamed), executors, Batch(**batched)


# Nodes find the code in the tree; tests ship the zip.
_SHARED = {"spark.executorEnv.PYTHONPATH": str(ROOT), "spark.executor.memory": MEMORY, "spark.driver.host": HERE}


@contextmanager
def standing(executors: int, *, confine: bool = False) -> Iterator[tuple[Path, Cluster]]:
    """A folder, and a cluster with so many workers, each of them confined to a core if asked for."""
    with (
        tempfile.TemporaryDirectory(prefix="delayline-cluster-") as folder,
        cluster(Path(folder, "cluster"), executors, MEMORY, confine=confine) as nodes,
    ):
        run = Path(folder, "run")
        run.mkdir()
        yield run, nodes


def lateness(workload: Workload, executors: int) -> dict[str, Any]:
    """The job, submitted to a cluster, under a live load."""
    python = {"spark.pyspark.python": sys.executable, "spark.driver.memory": MEMORY}
    with standing(executors) as (folder, nodes):
        launcher = submit(nodes.url, [delta_package()], _SHARED | python, [])
        figures = live.Run(workload, "delayline", folder, launcher).measure()
    row = {"workload": "cluster, live", "kind": "live", "system": "delayline", "executors": executors}
    return row | {"parameters": vars(workload), **figures}


@dataclass(frozen=True)
class Spent:
    """What a part took: seconds, and seconds of processor of the driver, of all nodes, and of the busiest node."""

    seconds: float = 0.0
    driver_cpu_s: float = 0.0
    nodes_cpu_s: float = 0.0
    busiest_cpu_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Spent) -> Spent:
        """What came after another one."""
        return Spent(*(mine - its for mine, its in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Trial:
    """A session of this process, and the processes of the workers of its cluster."""

    spark: SparkSession
    batch: Batch
    workers: Sequence[int]

    def through(self, warehouse: Warehouse, count: int) -> dict[str, Spent]:
        """Send so many messages through all stages by Spark.

        Raises:
            SystemExit: not all were delivered.
        """
        batch, steps, found = self.batch, dict[str, Spent](), dict.fromkeys(PARTS, Spent())
        create_all(warehouse.root, segment_ms=SEGMENT_MS)
        subscribe(warehouse.root, Subscription("t", "s", tick_ms=batch.tick_ms))
        settings = Settings(driver_rows=0, partitions=batch.executors, max_bytes=1 << 40)
        options = Options(VirtualClock(), settings, observe=lambda step, _: steps.update({step: self._now()}))
        stages = start_all(warehouse, options)
        try:
            reach(stages, warehouse, T0 - 1)
            for instant, sent in ((T0, count), (batch.due, 0)):
                for part, spent in self._reach(stages, warehouse, instant, steps, sent):
                    found[part] += spent
        finally:
            stop_all(stages)
        if (delivered := warehouse.read(DELIVERIES).count()) != count // batch.files * batch.files:
            raise SystemExit(f"{delivered} rows in deliveries, expected {count}: the figure would be worth nothing")
        return found

    def _reach(
        self, stages: Sequence[Stage], warehouse: Warehouse, instant: int, steps: dict[str, Spent], count: int
    ) -> Iterator[tuple[str, Spent]]:
        """What each part takes of an instant with which so many messages enter."""
        ingest, *others = stages
        for stage in others:
            # Held until it is its turn, or it would begin with what ingest writes.
            clock.hold(warehouse.instants(stage.name))
        steps.clear()

        def produce() -> None:
            # While ingest is held, so that all of it is one batch.
            self._send(warehouse, count)
            steps["sent"] = self._now()

        reach([ingest], warehouse, instant, produce)
        taken = self._now()
        encoded = steps["ingest.segments"] - steps["ingest.messages"] if count else Spent()
        yield "encode", encoded
        yield "ingest", taken - steps["sent"] - encoded
        reach(others, warehouse, instant)
        end = self._now()
        # Dispatch begins when the schedule has given something out.
        scheduled = steps.get("schedule.redelivery", end)
        yield "schedule", scheduled - taken
        yield "release", end - scheduled

    def _send(self, warehouse: Warehouse, count: int) -> None:
        batch, random = self.batch, np.random.default_rng(self.batch.seed)
        delays = (batch.delay_ms, batch.delay_ms + batch.spread_ms)
        for _ in range(batch.files if count else 0):
            append(warehouse.root, INBOX, inbox_rows(random, count // batch.files, T0, delays, batch.payload_bytes))

    def _now(self) -> Spent:
        used = [usage(pid).cpu_s for pid in self.workers]
        return Spent(time.perf_counter(), usage(os.getpid()).cpu_s, sum(used), max(used))


def one_size(batch: Batch, folder: Path, url: str, workers: Sequence[int]) -> dict[str, Any]:
    """The batch on the executors of a cluster, in a process of its own, which is the driver: each part, and memory."""
    extra = {**_SHARED, "spark.master": url}
    spark = local_session("delayline bench", replace(usual_machine(MEMORY), partitions=batch.executors), extra=extra)
    spark.sparkContext.setLogLevel("OFF")
    try:
        trial = Trial(spark, batch, workers)
        trial.through(Warehouse(f"{folder}/warmup", spark), batch.warmup)
        parts = trial.through(Warehouse(f"{folder}/warehouse", spark), batch.messages)
        peak = {f"{kind}, MB": found.peak >> 20 for kind, found in memory(os.getpid()).items()}
    finally:
        spark.stop()
    figures = {part: {name: round(value, 2) for name, value in vars(spent).items()} for part, spent in parts.items()}
    return {"parts": figures, "seconds": round(sum(each.seconds for each in parts.values()), 2), "driver": peak}


def amdahl(one: float, more: float, executors: int) -> float:
    """The part of the time with one executor that is serial, when it takes `one` with one and `more` with so many."""
    return round(min(1.0, max(0.0, (more * executors / one - 1) / (executors - 1))), 2)


def compared(batch: Batch, counts: Sequence[int]) -> dict[str, Any]:
    """The batch on so many executors each; with two sizes also how they compare."""
    sizes = {}
    for count in counts:
        with standing(count, confine=True) as (folder, nodes):
            workers = [worker.process.pid for worker in nodes.workers]
            sizes[str(count)] = apart(one_size, batch, folder, nodes.url, workers)
    row = {"workload": "cluster, batch", "kind": "batch", "parameters": vars(batch) | {"confined": CONFINES}}
    row |= {"sizes": sizes}
    return row | (scaled(sizes) if len(sizes) > 1 else {})


def scaled(sizes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """How much faster more executors are than one, and what of each part is serial.

    `by_cpu` is the ratio of processor time, of the driver and the busiest node: what the ratio of times would be where
    neither waits for the other or for a processor.
    """
    (_, one), (count, more) = sizes.items()
    serial = {part: amdahl(one["parts"][part]["seconds"], more["parts"][part]["seconds"], int(count)) for part in PARTS}
    serial[ALL] = amdahl(one["seconds"], more["seconds"], int(count))
    busy = [
        sum(part["driver_cpu_s"] + part["busiest_cpu_s"] for part in size["parts"].values()) for size in (one, more)
    ]
    ratios = {"ratio": one["seconds"] / more["seconds"], "by_cpu": busy[0] / busy[1]}
    return {name: round(value, 2) for name, value in ratios.items()} | {"serial": serial}


def show(row: Mapping[str, Any]) -> Iterator[str]:
    """A row for a person."""
    if row["kind"] == "live":
        yield from show_live(row)
        return
    yield f"\n{row['workload']}: {row['parameters']['messages']:,} messages of one topic"
    yield f"  {'':34}" + "".join(f"{part:>10}" for part in (*PARTS, ALL))
    for count, figures in row["sizes"].items():
        for name in Spent.__dataclass_fields__:
            values = [part[name] for part in figures["parts"].values()]
            yield _line(f"{count} executors, {name}", [*values, round(sum(values), 2)])
        yield f"  {count} executors, the driver: " + ", ".join(
            f"{kind} {size:,}" for kind, size in figures["driver"].items()
        )
    if "serial" in row:
        yield _line("serial", row["serial"].values()) + f"   {row['ratio']}x, by processor time {row['by_cpu']}x"


def _line(name: str, values: Iterable[float]) -> str:
    return f"  {name:34}" + "".join(f"{value:>10}" for value in values)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something came early, twice or not in time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--only", choices=["live", "batch"], help="one of the two")
    parser.add_argument("--executors", type=int, help="of the batch: this number alone, without a comparison")
    parser.add_argument("--messages", type=int, help="of the batch")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    streamed, executors, batch = load(full=options.full)
    batch = replace(batch, messages=options.messages or batch.messages)
    counts = [options.executors] if options.executors else [1, batch.executors]

    def rows() -> Iterator[dict[str, Any]]:
        if options.only != "batch":
            yield lateness(streamed, executors)
        if options.only != "live":
            yield compared(batch, counts)

    found = tell(describe("pyspark", "delta-spark", "pyarrow"), rows(), show, as_json=options.json)
    lived = [row for row in found if row["kind"] == "live"]
    return int(any(row[wrong] for row in lived for wrong in ("early", "twice", "missing", "job_exit")))


if __name__ == "__main__":
    sys.exit(main())
