"""The stages on Spark beside plain applications on the same tables: intake, release at one instant, fan-out.

Every figure is of one run in one session: a warehouse is made and filled, then the clock is moved and the time taken
until the stages have nothing left to do. Each workload runs twice, on warehouses of its own: the first run is cold (the
JVM has not compiled the plans yet), the second warm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.baselines import polling, rowwise
from benchmarks.machine import describe
from benchmarks.rows import inbox_rows
from pipeline import run
from pipeline.client.registry import Subscription, subscribe
from pipeline.lockstep import reach
from pipeline.run import Options, Stage, stop_all
from pipeline.session import compiled, local_session
from pipeline.settings import Settings, VirtualClock
from pipeline.tables import Warehouse, create_all
from schemas import DELIVERIES, INBOX, MESSAGES, SEGMENTS, Table
from state import tick_bits, trim_up

WORKLOADS = Path(__file__).parent / "workloads" / "stages.toml"
T0, TICK_MS = 1_700_000_000_000, 1_000
COUNTED = (MESSAGES, SEGMENTS, DELIVERIES)


Start = Callable[[SparkSession, Warehouse, str, Options], Stage]


@dataclass(frozen=True)
class System:
    """What is measured: its stages, and how one is started. Intake is measured without the stages in `later`.

    `compiled`: Spark compiles its plans, as it does by itself. Ours change their literals with each batch, and are
    faster without; the baselines are faster with it. Each is measured as it is best.
    """

    stages: Sequence[str]
    start: Start
    later: Sequence[str]
    compiled: bool = True


SYSTEMS = {
    "delayline": System(run.STAGES, run.start, ["dispatch"], compiled=False),
    "row-wise": System(rowwise.STAGES, rowwise.start, ["dispatch"]),
    "polling": System(polling.STAGES, polling.start, ["poll"]),
}


@dataclass(frozen=True)
class Workload:
    """One entry of the workload file; see its head."""

    name: str
    measure: str
    messages: int
    full: int
    baseline: int
    delay_ms: int
    spread_ms: int
    subscriptions: int
    payload_bytes: int
    files: int

    @property
    def last_due(self) -> int:
        """The instant at which the last bucket is due, ms."""
        return trim_up(T0 + self.delay_ms + self.spread_ms, tick_bits(TICK_MS))


@dataclass(frozen=True)
class Figure:
    """What one run gave: seconds for so many messages, and the commits that the tables have after it."""

    messages: int
    seconds: float
    commits: int

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


def load() -> list[Workload]:
    """The workloads in the order of their file."""
    told = tomllib.loads(WORKLOADS.read_text(encoding="utf-8"))
    common = {key: value for key, value in told.items() if key != "workload"}
    return [Workload(**common, **each) for each in told["workload"]]


def produced(spark: SparkSession, workload: Workload, count: int) -> DataFrame:
    """Rows of the inbox, published at `T0`."""
    drawn = F.xxhash64("id", F.lit(workload.name))
    due = F.lit(T0 + workload.delay_ms) + F.pmod(drawn, F.lit(workload.spread_ms + 1))
    times = {"publish_time": F.timestamp_millis(F.lit(T0)), "deliver_at": F.timestamp_millis(due)}
    return inbox_rows(spark, count, workload.files, workload.payload_bytes, **times)


def one_run(spark: SparkSession, system: System, workload: Workload, count: int) -> Figure:
    """Make a warehouse, fill the inbox, measure."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        warehouse = Warehouse(f"{folder}/warehouse")
        create_all(spark, warehouse)
        for number in range(workload.subscriptions):
            subscribe(warehouse.root, Subscription("t", f"s{number}", tick_ms=TICK_MS))
        options = Options(VirtualClock(), Settings())
        stages = [system.start(spark, warehouse, stage, options) for stage in system.stages]
        taken_in = [stage for stage in stages if stage.name not in system.later]
        try:
            # Each stage meets its first instant, and who listens, with nothing to do.
            reach(stages, warehouse, T0 - 1)
            rows = produced(spark, workload, count)
            rows.write.format("delta").mode("append").save(warehouse.path(INBOX))
            seconds = _timed(taken_in, warehouse, T0)
            if workload.measure == "release":
                reach(stages, warehouse, T0 + workload.delay_ms - 1)
                seconds = _timed(stages, warehouse, workload.last_due)
                _check_all_delivered(spark, warehouse, count * workload.subscriptions)
        finally:
            stop_all(stages)
        return Figure(count, seconds, sum(_commits(warehouse, table) for table in COUNTED))


def _timed(stages: Sequence[Stage], warehouse: Warehouse, instant: int) -> float:
    begun = time.perf_counter()
    reach(stages, warehouse, instant)
    return time.perf_counter() - begun


def _check_all_delivered(spark: SparkSession, warehouse: Warehouse, expected: int) -> None:
    found = warehouse.read(spark, DELIVERIES).count()
    if found != expected:
        raise SystemExit(f"{found} rows in deliveries, expected {expected}: the figure would be worth nothing")


def _commits(warehouse: Warehouse, table: Table) -> int:
    return len(list(Path(warehouse.path(table), "_delta_log").glob("*.json")))


def plain_copy(spark: SparkSession, workload: Workload, count: int) -> Figure:
    """Copy an inbox of so many rows to another Delta table: what Spark and Delta cost without us."""
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        produced(spark, workload, count).write.format("delta").save(f"{folder}/inbox")
        begun = time.perf_counter()
        spark.read.format("delta").load(f"{folder}/inbox").write.format("delta").save(f"{folder}/copy")
        return Figure(count, time.perf_counter() - begun, 1)


def measured(spark: SparkSession, workload: Workload, *, full: bool) -> dict[str, Any]:
    """All systems on one workload."""
    count = workload.full if full else workload.messages
    sizes = {name: count if name == "delayline" else min(count, workload.baseline) for name in SYSTEMS}
    row: dict[str, Any] = {"workload": workload.name, "measure": workload.measure, "systems": {}}
    for name, system in SYSTEMS.items():
        with compiled(spark, when=system.compiled):
            cold, warm = (one_run(spark, system, workload, sizes[name]) for _ in range(2))
        row["systems"][name] = {"messages": warm.messages, "commits": warm.commits} | {
            f"{kind}_s": round(figure.seconds, 2) for kind, figure in (("cold", cold), ("warm", warm))
        }
        row["systems"][name]["per_s"] = round(warm.rate)
    with compiled(spark):
        row["copy_s"] = round(min(plain_copy(spark, workload, count).seconds for _ in range(2)), 2)
    return row


def show(row: dict[str, Any]) -> Iterator[str]:
    """A row for a person, with the ratios to the baselines of the same run."""
    yield f"\n{row['workload']}  (plain Delta copy of the inbox: {row['copy_s']} s)"
    yield f"  {'':12}{'messages':>11}{'cold s':>9}{'warm s':>9}{'per s':>11}{'commits':>9}{'ours is':>9}"
    ours = row["systems"]["delayline"]["per_s"]
    for name, figures in row["systems"].items():
        ratio = "" if name == "delayline" else f"{ours / figures['per_s']:>8.1f}x"
        values = (figures[key] for key in ("messages", "cold_s", "warm_s", "per_s", "commits"))
        yield f"  {name:12}" + "{:>11}{:>9}{:>9}{:>11}{:>9}".format(*values) + ratio


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the full sizes")
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "pyarrow")
    if not told.json:
        print("machine:", ", ".join(f"{key} {value}" for key, value in machine.items()))
    spark = local_session("delayline bench", memory="6g")
    rows = []
    try:
        for workload in load():
            if told.only in workload.name:
                rows.append(measured(spark, workload, full=told.full))
                if not told.json:
                    print("\n".join(show(rows[-1])), flush=True)
    finally:
        spark.stop()
    if told.json:
        print(json.dumps({"machine": machine, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
