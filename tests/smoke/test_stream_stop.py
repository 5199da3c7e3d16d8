"""A stream of deliveries by README's session: `stop()` ends it without a word of the JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pipeline.client.create import create_all
from schemas import DELIVERIES
from tests.support.client import delivery_row, message_row, put
from tests.support.jobs import PATIENCE_S
from tests.support.modules import ROOT

PROGRAM = """
import random, sys, time
from pipeline.client import spark

session = spark.session(settings={settings})
deliveries = session.readStream.format("delta").option("skipChangeCommits", True).load("deliveries")
for turn in range({turns}):
    query = deliveries.writeStream.option("checkpointLocation", f"checkpoint-{{turn}}").foreachBatch(
        lambda rows, _: rows.groupBy("topic", "subscription").count().collect()
    ).start()
    time.sleep({pause} * turn)
    query.stop()
    assert query.exception() is None
session.stop()
print("stopped")
"""
SMALL = {"spark.databricks.delta.snapshotPartitions": "1", "spark.sql.shuffle.partitions": "2"}
"""Spark and Delta take two hundred tasks, and fifty, for any number of rows."""


def stopped(folder: Path, turns: int = 4, pause: float = 0.4) -> subprocess.CompletedProcess[str]:
    """Stop a stream at several moments of its life."""
    program = PROGRAM.format(settings=SMALL, turns=turns, pause=pause)
    words, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(  # noqa: S603
        words, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_a_stream_that_is_stopped_prints_no_trace(tmp_path: Path) -> None:
    """It was a thousand lines of StackOverflowError."""
    create_all(str(tmp_path))
    put(str(tmp_path), DELIVERIES, *(delivery_row(message_row(1, entry, 1_000), entry + 1) for entry in range(20)))
    done = stopped(tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["stopped"]), done.stderr
    assert [line for line in done.stderr.splitlines() if "StackOverflow" in line or line.startswith("\tat ")] == []
