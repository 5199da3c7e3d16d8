"""Where the time of one instant goes: the steps of all stages under the virtual clock, warm, in seconds.

Each instant takes in a few thousand messages and releases as many. What a step takes is mostly planning and starting
jobs, so this is the profile to look at before and after a change of a stage.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.clocked import clocked
from benchmarks.machine import describe
from benchmarks.rows import inbox_rows
from pipeline.client.registry import Subscription, subscribe
from pipeline.session import COMPILED, local_session
from pipeline.settings import MINUTE_MS
from pipeline.tables import Warehouse, create_all

T0 = 1_700_000_000_000
MESSAGES, SPREAD_MS, PAYLOAD_BYTES = 2_000, 10 * MINUTE_MS, 100
INSTANTS, WARM = 25, 8
"""So many instants a minute apart; the last of them are counted."""


def produced(spark: SparkSession, number: int) -> DataFrame:
    """What enters at an instant, in one file; delays are drawn by hash."""
    delay = F.pmod(F.xxhash64("id", F.lit(number)), F.lit(SPREAD_MS))
    published = F.timestamp_millis(F.lit(T0 + number * MINUTE_MS))
    return inbox_rows(spark, MESSAGES, 1, PAYLOAD_BYTES, publish_time=published, deliver_after_ms=delay)


def profile(spark: SparkSession) -> dict[str, float]:
    """Seconds of each step, the mean of the warm instants, in the order of the steps."""
    found = defaultdict[str, list[float]](list)
    with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
        warehouse = Warehouse(f"{folder}/warehouse")
        create_all(spark, warehouse)
        for name, tick_ms in (("s", 1), ("coarse", MINUTE_MS)):
            subscribe(warehouse.root, Subscription("t", name, tick_ms=tick_ms))
        with clocked(spark, warehouse) as job:
            for number in range(INSTANTS):
                job.reach(T0 + number * MINUTE_MS, produced(spark, number))
                if number >= INSTANTS - WARM:
                    for step, seconds in [*job.steps.spans(), ("instant", job.steps.seconds(""))]:
                        found[step].append(seconds)
    return {step: round(sum(seconds) / WARM, 3) for step, seconds in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print machine, parameters and the profile."""
    parser = argparse.ArgumentParser(description="Where the time of one instant goes.")
    parser.add_argument("--compiled", action="store_true", help="let Spark compile plans, as it does by itself")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args(arguments)
    machine = describe("pyspark", "delta-spark", "pyarrow")
    spark = local_session("delayline bench", extra=COMPILED if told.compiled else {})
    spark.sparkContext.setLogLevel("OFF")
    figures = profile(spark)
    spark.stop()
    parameters = {"messages": MESSAGES, "spread_ms": SPREAD_MS, "payload_bytes": PAYLOAD_BYTES, "instants": INSTANTS}
    if told.json:
        print(json.dumps({"machine": machine, "parameters": parameters, "seconds": figures}))
        return
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine.items()))
    print("parameters:", ", ".join(f"{key} {value}" for key, value in parameters.items()))
    for step, seconds in figures.items():
        print(f"  {step:24}{seconds:8.3f}")


if __name__ == "__main__":
    main()
