"""Where the time of one instant goes: the steps of all stages under the virtual clock, warm, in seconds.

Each instant takes in a few thousand messages (`--messages`: more) and releases as many. With few, what a step takes is
mostly planning and starting jobs. This is the profile to look at before and after a change of a stage.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.support.clocked import clocked
from benchmarks.support.machine import describe
from benchmarks.support.report import machine_line
from benchmarks.support.rows import inbox_rows
from benchmarks.support.usual import usual_machine
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.session import COMPILED, local_session
from pipeline.config.settings import MINUTE_MS
from pipeline.delta.warehouse import Warehouse

T0 = 1_700_000_000_000
MESSAGES, SPREAD_MS, PAYLOAD_BYTES = 2_000, 10 * MINUTE_MS, 100
INSTANTS, WARM = 18, 8
"""So many instants a minute apart; the last of them are counted."""
SEED = 20_130_101
ALL, PRODUCER = "instant", "inbox"


def profile(spark: SparkSession, count: int) -> dict[str, float]:
    """Seconds of each step, the mean of the warm instants, in the order of the steps; `ALL` is without `PRODUCER`."""
    found, random = defaultdict[str, list[float]](list), np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        warehouse = Warehouse(f"{folder}/warehouse", spark)
        create_all(warehouse.root)
        for name, tick_ms in (("s", 1), ("coarse", MINUTE_MS)):
            subscribe(warehouse.root, Subscription("t", name, tick_ms=tick_ms))
        with clocked(warehouse) as job:
            for number in range(INSTANTS):
                now = T0 + number * MINUTE_MS
                job.reach(now, inbox_rows(random, count, now, (0, SPREAD_MS - 1), PAYLOAD_BYTES))
                if number >= INSTANTS - WARM:
                    for step, seconds in job.steps.spans():
                        found[step].append(seconds)
    steps = {step: sum(seconds) / WARM for step, seconds in found.items()}
    whole = sum(seconds for step, seconds in steps.items() if step != PRODUCER)
    return {step: round(seconds, 3) for step, seconds in [*steps.items(), (ALL, whole)]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print machine, parameters and the profile."""
    parser = argparse.ArgumentParser(description="Where the time of one instant goes.")
    parser.add_argument("--compiled", action="store_true", help="let Spark compile plans, as it does by itself")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="so many enter at each instant")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "pyarrow")
    spark = local_session("delayline bench", usual_machine("2g"), extra=COMPILED if options.compiled else {})
    spark.sparkContext.setLogLevel("OFF")
    figures = profile(spark, options.messages)
    spark.stop()
    parameters = {"messages": options.messages, "spread_ms": SPREAD_MS, "instants": INSTANTS}
    parameters["payload_bytes"] = PAYLOAD_BYTES
    if options.json:
        rows = [{"parameters": parameters, "seconds": figures}]
        print(json.dumps({"machine": machine, "rows": rows}))
        return
    print(machine_line(machine))
    print("parameters:", ", ".join(f"{key} {value}" for key, value in parameters.items()))
    for step, seconds in figures.items():
        part = "" if step == PRODUCER else f"{100 * seconds / figures[ALL]:6.0f} %"
        print(f"  {step:24}{seconds:8.3f}{part}")


if __name__ == "__main__":
    main()
