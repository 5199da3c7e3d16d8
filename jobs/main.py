"""What the mains share: arguments in, stages up, wait, exit code out."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from pipeline.profiles import Machine, read_profile
from pipeline.run import Stage, start, stop_all
from pipeline.service import StopFile, serve, stop_signals
from pipeline.session import builder, local_session
from pipeline.tables import Warehouse, create_all


def run(stages: Sequence[str], arguments: Sequence[str] | None = None) -> int:
    """Run stages until they are asked to stop: 0 after a stop in good order, 1 after a failure, 2 when refused."""
    parser = argparse.ArgumentParser(description=f"Run {', '.join(stages)} of delayline.")
    parser.add_argument("--profile", type=Path, required=True, help="a TOML file as in conf/")
    parser.add_argument("--warehouse", required=True, help="folder of the tables; made when it is missing")
    told = parser.parse_args(arguments)
    try:
        profile = read_profile(told.profile)
    except (PipelineError, OSError, ValueError) as error:
        parser.error(f"{told.profile}: {error}")
    spark = _session(f"delayline {' '.join(stages)}", profile.machine)
    warehouse = Warehouse(told.warehouse.rstrip("/"))
    create_all(spark, warehouse)
    running: list[Stage] = []
    with stop_signals() as asked:
        stop_file = StopFile(warehouse)
        stop_file.forget()
        try:
            for stage in stages:
                running.append(start(spark, warehouse, stage, profile.options))  # noqa: PERF401 - those that started are stopped
        except PipelineError as error:
            stop_all(running)
            return _end(spark, str(error), 2)
        reason = serve(running, asked, stop_file)
    return _end(spark, reason, 0 if reason is None else 1)


def _session(app: str, machine: Machine) -> SparkSession:
    """spark-submit brings master, memory and JARs, and we add what correctness needs; alone we bring them ourselves."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return builder(app).getOrCreate()
    return local_session(app, cores=machine.cores, memory=machine.memory, partitions=machine.partitions)


def _end(spark: SparkSession, reason: str | None, code: int) -> int:
    spark.stop()
    if reason is not None:
        sys.stderr.write(f"delayline: {reason}\n")
    return code
