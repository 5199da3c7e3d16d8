"""A warehouse as an earlier version of this project left it, made of one of today."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import rmtree
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas import CLOSED, CONSUMER_EVENTS, CURSORS, REJECTED_SETTLE, SEGMENTS

NEW_TABLES = (CONSUMER_EVENTS, CURSORS, CLOSED, REJECTED_SETTLE)
NEW_COLUMNS = ("redelivery_count", "cause")
"""Of `segments`."""


def age(spark: SparkSession, root: str) -> None:
    """Take away what a warehouse had not before there was acknowledgement; its stages are stopped.

    Files of `segments` keep the columns, of which nobody is told.
    """
    for table in NEW_TABLES:
        rmtree(Path(root, table.name))
    for file in Path(root, SEGMENTS.name, "_delta_log").glob("*.*"):
        if file.suffix == ".json":
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            for metadata in (each["metaData"] for each in actions if "metaData" in each):
                _forget(metadata)
            file.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
        elif file.suffix == ".crc" and not file.name.startswith("."):
            sums = json.loads(file.read_text())
            _forget(sums["metadata"])
            file.write_text(json.dumps(sums))
    for file in Path(root, SEGMENTS.name, "_delta_log").glob(".*.crc"):
        file.unlink()
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert not set(NEW_COLUMNS) & set(columns(root))


def columns(root: str) -> list[str]:
    """The columns of `segments`."""
    return [each.name for each in DeltaTable(f"{root}/{SEGMENTS.name}").schema().fields]


def _forget(metadata: dict[str, Any]) -> None:
    told = json.loads(metadata["schemaString"])
    told["fields"] = [each for each in told["fields"] if each["name"] not in NEW_COLUMNS]
    metadata["schemaString"] = json.dumps(told)
