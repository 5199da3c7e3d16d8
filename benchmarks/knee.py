"""The highest rate that one machine takes: steady load on the wall clock, faster from run to run, until it is late.

Each run is one of `benchmarks.live`: a warehouse, a job, a producer and an observer of its own, all on this machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.live import measured
from benchmarks.support.live_report import show
from benchmarks.support.load import changed, workloads
from benchmarks.support.machine import describe
from benchmarks.support.report import tell

RATES = (10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 80_000)
SECONDS = 120
LATE_MS = 1_000
"""The p99 of lateness of a run that was on time is at most this."""


def on_time(row: Mapping[str, Any]) -> bool:
    """Whether a run kept up: everything came, and in time."""
    late = row["warm"]["late"]
    return bool(late["count"]) and late["p99"] <= LATE_MS and not row["missing"]


def runs(rates: Sequence[int], seconds: int) -> Iterator[dict[str, Any]]:
    """A run for each rate, up to the first that is late."""
    for rate in rates:
        parameters = {"rate": rate, "seconds": seconds, "low_ms": 5_000, "high_ms": 60_000, "bulk": 0, "quiet_s": 0}
        parameters["high_ms"] = min(parameters["high_ms"], seconds * 500)
        workload = changed(workloads(full=True)["steady"], [f"{name}={value}" for name, value in parameters.items()])
        row = measured(changed(workload, [f"warm_s={seconds // 3}", "patience_s=60"]), "delayline")
        yield row
        if not on_time(row):
            return


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; 1 when something came early or twice, or a job did not end well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.knee", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", nargs="+", type=int, default=RATES, help="messages a second, ascending")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="how long each run sends")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "deltalake", "pyarrow")
    rows = tell(machine, runs(options.rates, options.seconds), show, as_json=options.json)
    return int(any(row[wrong] for row in rows for wrong in ("early", "twice", "job_exit")))


if __name__ == "__main__":
    sys.exit(main())
