"""A baseline as a process on the wall clock, with the profile and the words of `jobs/deliver.py`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.baselines import polling, rowwise
from pipeline.config.profiles import read_profile
from pipeline.config.session import local_session
from pipeline.delta.warehouse import Warehouse
from pipeline.service.process import serve
from pipeline.service.signals import stop_signals
from pipeline.service.stopfile import StopFile

BASELINES = {"polling": polling, "row-wise": rowwise}


def main() -> int:
    """Run a baseline until SIGTERM; 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baselines.service")
    parser.add_argument("name", choices=BASELINES)
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--warehouse", required=True)
    options = parser.parse_args()
    profile, chosen = read_profile(options.profile), BASELINES[options.name]
    # Their batches are Spark's own, whose code is faster compiled well: only ours asks for less.
    spark = local_session(options.name, replace(profile.machine, java_options=""))
    warehouse = Warehouse(options.warehouse, spark)
    with stop_signals() as asked:
        running = [chosen.start(warehouse, stage, profile.options) for stage in chosen.STAGES]
        reason = serve(running, asked, StopFile(warehouse.root))
    spark.stop()
    if reason is not None:
        sys.stderr.write(f"{reason}\n")
    return 0 if reason is None else 1


if __name__ == "__main__":
    sys.exit(main())
