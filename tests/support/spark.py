"""One Spark session for a whole test run, made when the first test asks for it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.support.brokers import QUICK_START
from pipeline.config.session import IN_STORES, PARTITIONS, Machine, local_session, set_meanwhile
from pipeline.config.sparkversion import kafka_connector
from pipeline.storage.files import sync_files
from tests.support.jars import fetch, needed

QUICK_JVM = f"{' '.join(QUICK_START)} -XX:CompileThresholdScaling=0.25 -XX:ReservedCodeCacheSize=240m"
"""Tests run each plan once or twice: compiling it well takes longer than running it. Interpreting it is what takes
longest, so it is compiled, fast and plainly, after a quarter of the usual calls."""
_YOUNG = "-Xmn512m"
"""Memory of new objects. Batches leave hardly any behind, and with little memory they are collected all the time."""

_WORKER = """#!/bin/sh
PYTHONPATH="${{PYTHONPATH##*.jar:}}" exec '{}' "$@"
"""
"""Spark puts its own ZIP of PySpark first, and each Python that it starts compiles that anew: without it the installed
one is taken, which is the same."""


@cache
def session() -> SparkSession:
    """The session: two cores, two partitions, UTC, quiet."""
    fetch(*needed())
    machine = Machine(cores=2)
    # The heap has its size from the beginning: each time that it grows all of it is collected.
    machine = replace(machine, java_options=f"{QUICK_JVM} {_YOUNG} -Xms{machine.memory}")
    spark = local_session("delayline-tests", machine, extra=IN_STORES, packages=[kafka_connector()])
    spark.sparkContext.setLogLevel("OFF")
    worker = Path(mkdtemp()) / "python"
    worker.write_text(_WORKER.format(sys.executable), encoding="utf-8")
    worker.chmod(0o755)
    spark.sparkContext.pythonExec = str(worker)
    return spark


@contextmanager
def lent() -> Iterator[SparkSession]:
    """The session, for a command that takes it for its own and stops it.

    Afterwards it goes on, has its partitions again, and nobody waits for the disk.
    """
    found = session()
    with patch.object(SparkSession, "stop"), set_meanwhile(found, {PARTITIONS: str(found.conf.get(PARTITIONS))}):
        try:
            yield found
        finally:
            sync_files(on=False)


def end_jvm() -> None:
    """End the JVM of a session that was stopped. It keeps the JARs and options of its start; the next one needs others.

    PySpark would use it for the next session.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    # It ends when nobody writes to it any more.
    gateway.proc.communicate()
