"""The session: classes of the JVM are known by their names, and workers import from no folder of the moment."""

from __future__ import annotations

import os
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

_LOOK = "r\nu\n"
"""What Py4J sends when it asks what a name is."""


def test_building_a_frame_looks_for_no_class_in_all_packages(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM looks for a name in all its jars, in each package that PySpark imports."""
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    sent, send = list[str](), client.send_command

    def listening(command: str, *more: Any, **how: Any) -> Any:  # noqa: ANN401 - Py4J's
        sent.append(command)
        return send(command, *more, **how)

    monkeypatch.setattr(client, "send_command", listening)
    frame = spark.range(3).select("*", F.lit(1).alias("one")).where(F.col("id") > 0)
    frame = frame.select(F.array_sort(F.transform(F.array("id", "one"), lambda each: each + 1)).alias("both"), "id")
    assert frame.agg(F.sum("id"), F.count_if(F.col("id") > 1)).collect()[0][0] == 3
    looks = [command.removeprefix(_LOOK).partition("\n")[0] for command in sent if command.startswith(_LOOK)]
    # One that is named with its package is found at once.
    assert [name for name in looks if "." not in name] == []
    assert "org.apache.spark.sql.functions" not in looks


def test_workers_import_nothing_from_the_folder_in_which_somebody_stands(spark: SparkSession) -> None:
    """They run as the job, and a folder of everybody may hold a module of any name."""
    found = spark.range(1).mapInArrow(lambda parts: (_flags(part) for part in parts), "safe boolean")
    assert [row.safe for row in found.collect()] == [True]
    # Those of Python data sources have the environment of the JVM.
    assert os.environ["PYTHONSAFEPATH"] == "1"


def _flags(_: pa.RecordBatch) -> pa.RecordBatch:
    """How the Python of a worker was started."""
    return pa.record_batch({"safe": [sys.flags.safe_path]})
