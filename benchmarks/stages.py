"""The stages on Spark beside plain applications on the same tables: intake, encoding, release at one instant, fan-out.

Every figure is of one run in one session: a warehouse is made and filled, then the clock is moved and the time taken
until the stages have nothing left to do. Ours runs each workload twice, on warehouses of its own: the first run is cold
(the JVM has not compiled the plans yet), the second warm. Baselines run as often with --full, else once, and the run
that is compared with ours is of the same number: a first one with our first, in a JVM that ours has warmed up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.baselines import polling, rowwise
from benchmarks.support import WORKLOADS
from benchmarks.support.machine import describe
from benchmarks.support.report import tell
from benchmarks.support.rows import inbox_rows
from benchmarks.support.usual import usual
from benchmarks.support.words import check_only
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Options
from pipeline.config.session import Machine, compiled, local_session
from pipeline.config.settings import VirtualClock
from pipeline.config.stages import STAGES
from pipeline.delta.deltars import append
from pipeline.delta.warehouse import Warehouse
from pipeline.service import clock, run
from pipeline.service.lockstep import reach
from pipeline.service.run import Stage, stop_all
from schemas import DELIVERIES, INBOX, MESSAGES, SEGMENTS, Table
from state import tick_bits, trim_up

FILE = WORKLOADS / "stages.toml"
T0, TICK_MS = 1_700_000_000_000, 1_000
COUNTED = (MESSAGES, SEGMENTS, DELIVERIES)


Start = Callable[[Warehouse, str, Options], Stage]


@dataclass(frozen=True)
class System:
    """What is measured: its stages, and how one is started.

    Attributes:
        stages: in the order in which a message passes them; the first one is ingest.
        start: starts one.
        later: those that intake is measured without.
        indexing: those that bring positions from `messages` into the state; none when there is no index.
        compiled: Spark compiles its plans, as it does by itself. Ours change their literals with each batch, and are
            faster without; the baselines are faster with it. Each is measured as it is best.
    """

    stages: Sequence[str]
    start: Start
    later: Sequence[str]
    indexing: Sequence[str]
    compiled: bool = True


OURS = "delayline"
SYSTEMS = {
    OURS: System(STAGES, run.start, ["dispatch"], ["ingest", "schedule"], compiled=False),
    "row-wise": System(rowwise.STAGES, rowwise.start, ["dispatch"], ["schedule"]),
    "polling": System(polling.STAGES, polling.start, ["poll"], []),
}


@dataclass(frozen=True)
class Workload:
    """One entry of the workload file; see its head."""

    name: str
    measure: str
    messages: int
    full: int
    baseline: int
    beside: bool
    delay_ms: int
    spread_ms: int
    subscriptions: int
    seed: int
    payload_bytes: int
    files: int

    @property
    def last_due(self) -> int:
        """The instant at which the last bucket is due, ms."""
        return trim_up(T0 + self.delay_ms + self.spread_ms, tick_bits(TICK_MS))


@dataclass(frozen=True)
class Figure:
    """What one run gave: seconds for so many messages, and the commits that the tables have after it.

    `ingest` is the part of the first stage in them, where that has one; `parked` messages wait in the log, the others
    were brought into the state.
    """

    messages: int
    seconds: float
    commits: int
    parked: int
    ingest: float = 0.0

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


def load() -> list[Workload]:
    """The workloads in the order of their file."""
    file = tomllib.loads(FILE.read_text(encoding="utf-8"))
    common = {key: value for key, value in file.items() if key != "workload"}
    return [Workload(**common, **each) for each in file["workload"]]


def produce(warehouse: Warehouse, workload: Workload, count: int) -> None:
    """Fill the inbox, published at `T0`: an append for each file."""
    random, delays = np.random.default_rng(workload.seed), (workload.delay_ms, workload.delay_ms + workload.spread_ms)
    for size in (count // workload.files,) * workload.files:
        append(warehouse.root, INBOX, inbox_rows(random, size, T0, delays, workload.payload_bytes))


@dataclass
class Trial:
    """Stages that have met their first instant, with nothing to do, and an inbox to take in; its methods are measures.

    A measure gives seconds.
    """

    spark: SparkSession
    system: System
    workload: Workload
    warehouse: Warehouse
    stages: Sequence[Stage]
    count: int
    ingest: float = 0.0

    def intake(self) -> float:
        """From the rows in the inbox to the state of the schedule."""
        ingest, *others = (stage for stage in self.stages if stage.name not in self.system.later)
        for stage in others:
            # Held until it is its turn, or it would begin with what ingest writes.
            clock.hold(self.warehouse.instants(stage.name))
        self.ingest = self._timed([ingest], T0)
        return self.ingest + self._timed(others, T0)

    def encode(self) -> float:
        """From the rows in `messages` to the state of the schedule: who listens comes when they lie there.

        Raises:
            SystemExit: nothing is in the state.
        """
        ingest, schedule, *_ = self.stages
        # Held until it is its turn, or it would begin with what ingest writes.
        clock.hold(self.warehouse.instants(schedule.name))
        reach([ingest], self.warehouse, T0)
        listen(self.warehouse, self.workload, "earliest")
        seconds = self._timed([stage for stage in self.stages if stage.name in self.system.indexing], T0 + 1)
        if not any(progress.numRowsTotal for each in schedule.query.recentProgress for progress in each.stateOperators):
            raise SystemExit("nothing is in the state: the figure would be worth nothing")
        return seconds

    def release(self) -> float:
        """From the due instant to the last row in `deliveries`.

        Raises:
            SystemExit: they do not hold every message for each subscription.
        """
        self.intake()
        reach(self.stages, self.warehouse, T0 + self.workload.delay_ms - 1)
        seconds = self._timed(self.stages, self.workload.last_due)
        _check_all_delivered(self.warehouse, self.count * self.workload.subscriptions)
        return seconds

    def _timed(self, stages: Sequence[Stage], instant: int) -> float:
        begun = time.perf_counter()
        reach(stages, self.warehouse, instant)
        return time.perf_counter() - begun


def listen(warehouse: Warehouse, workload: Workload, start: str) -> None:
    """Make the subscriptions of a workload."""
    for number in range(workload.subscriptions):
        subscribe(warehouse.root, Subscription("t", f"s{number}", tick_ms=TICK_MS, start=start))


def one_run(spark: SparkSession, system: System, workload: Workload, count: int) -> Figure:
    """Make a warehouse, fill the inbox, measure."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        warehouse = Warehouse(f"{folder}/warehouse", spark)
        create_all(warehouse.root)
        if workload.measure != "encode":
            listen(warehouse, workload, "latest")
        options = Options(VirtualClock(), usual(warehouse))
        stages = [system.start(warehouse, stage, options) for stage in system.stages]
        try:
            reach(stages, warehouse, T0 - 1)
            produce(warehouse, workload, count)
            trial = Trial(spark, system, workload, warehouse, stages, count)
            seconds: float = getattr(trial, workload.measure)()
        finally:
            stop_all(stages)
        parked = warehouse.read(MESSAGES).where("parked").count()
        return Figure(count, seconds, sum(_commits(warehouse, table) for table in COUNTED), parked, trial.ingest)


def _check_all_delivered(warehouse: Warehouse, expected: int) -> None:
    found = warehouse.read(DELIVERIES).count()
    if found != expected:
        raise SystemExit(f"{found} rows in deliveries, expected {expected}: the figure would be worth nothing")


def _commits(warehouse: Warehouse, table: Table) -> int:
    return len(list(Path(warehouse.path(table), "_delta_log").glob("*.json")))


def plain_copy(spark: SparkSession, workload: Workload, count: int) -> Figure:
    """Copy an inbox of so many rows to another Delta table: what Spark and Delta cost without us."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        warehouse = Warehouse(f"{folder}/warehouse", spark)
        create_all(warehouse.root)
        produce(warehouse, workload, count)
        begun = time.perf_counter()
        warehouse.read(INBOX).write.format("delta").save(f"{folder}/copy")
        return Figure(count, time.perf_counter() - begun, 1, 0)


def measured(spark: SparkSession, workload: Workload, *, full: bool) -> dict[str, Any]:
    """All systems on one workload that have what it measures."""
    count = workload.full if full else workload.messages
    row: dict[str, Any] = {"workload": workload.name, "measure": workload.measure, "systems": {}}
    runs: dict[str, list[Figure]] = {}
    for name, system in SYSTEMS.items():
        if workload.measure == "encode" and not system.indexing:
            continue
        if name != OURS and not (full or workload.beside):
            continue
        size = count if name == OURS else min(count, workload.baseline)
        with compiled(spark, when=system.compiled):
            runs[name] = [one_run(spark, system, workload, size) for _ in range(2 if full or name == OURS else 1)]
        row["systems"][name] = summary(runs[name])
    row["ratios"] = ratios(runs)
    if workload.measure == "intake" and workload.beside:
        with compiled(spark):
            row["copy_s"] = round(min(plain_copy(spark, workload, count).seconds for _ in range(2)), 2)
    return row


def summary(runs: Sequence[Figure]) -> dict[str, Any]:
    """What a system's runs gave; rate and sizes are those of the last one."""
    last = runs[-1]
    times = {name: round(run.seconds, 2) for name, run in zip(("cold_s", "warm_s"), runs, strict=False)}
    counts = {"messages": last.messages, "parked": last.parked, "commits": last.commits}
    return times | counts | {"per_s": round(last.rate), "ingest_s": round(last.ingest, 2)}


def ratios(runs: Mapping[str, Sequence[Figure]]) -> dict[str, float]:
    """How many times as fast as each baseline ours is, in the runs of the same number; the last that both have."""
    others = {name: len(found) - 1 for name, found in runs.items() if name != OURS}
    return {name: round(runs[OURS][last].rate / runs[name][last].rate, 2) for name, last in others.items()}


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person, with the ratios to the baselines of the same run."""
    yield f"\n{row['workload']}" + (f"  (plain Delta copy of the inbox: {row['copy_s']} s)" if "copy_s" in row else "")
    heads = ("messages", "parked", "cold_s", "warm_s", "ingest_s", "per_s", "commits")
    yield f"  {'':12}" + "".join(f"{name:>12}" for name in (*heads, "ours is"))
    for name, figures in row["systems"].items():
        ratio = f"{row['ratios'][name]:>11.1f}x" if name in row["ratios"] else ""
        yield f"  {name:12}" + "".join(f"{figures.get(head, ''):>12}" for head in heads) + ratio
    for name in SYSTEMS.keys() - row["systems"].keys():
        yield f"  {name:12}" + ("has no index" if row["measure"] == "encode" else "takes part with --full")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    workloads = list(load())
    check_only(parser, options.only, [each.name for each in workloads])
    spark = local_session("delayline bench", Machine(memory="6g"))
    try:
        rows = (measured(spark, each, full=options.full) for each in workloads if options.only in each.name)
        tell(describe("pyspark", "delta-spark", "pyarrow"), rows, show, as_json=options.json)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
