"""A warehouse as an earlier version of this project left it, made of one of today."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from schemas import (
    CLOSED,
    COMMANDS,
    CONSUMER_EVENTS,
    CURSORS,
    DELIVERIES,
    GUARDED,
    HELD,
    IDENTITY,
    INBOX,
    MESSAGES,
    REDELIVERY,
    REJECTED_DISPATCH,
    REJECTED_INGEST,
    REJECTED_SETTLE,
    SEGMENTS,
    Table,
)

NEW_TABLES = (CONSUMER_EVENTS, CURSORS, CLOSED, REJECTED_SETTLE, COMMANDS, HELD)
NEW_COLUMNS = (
    (SEGMENTS, ("redelivery_count", "round", "cause")),
    (REDELIVERY, ("round",)),
    (DELIVERIES, ("round", *IDENTITY)),
    (MESSAGES, IDENTITY),
    (INBOX, IDENTITY),
    (REJECTED_INGEST, IDENTITY),
    (REJECTED_DISPATCH, ("life", "round", *GUARDED)),
)
"""Of tables that were there."""


def age(spark: SparkSession, root: str) -> None:
    """Take away what a warehouse had not before there was acknowledgement, and commands; its stages are stopped.

    Files keep the columns, of which nobody is told.
    """
    for table in NEW_TABLES:
        rmtree(Path(root, table.name))
    for table, names in NEW_COLUMNS:
        take_columns(root, table, names)
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert not any(set(names) & set(columns(root, table)) for table, names in NEW_COLUMNS)


def columns(root: str, table: Table = SEGMENTS) -> list[str]:
    """The columns of a table."""
    return [each.name for each in DeltaTable(f"{root}/{table.name}").schema().fields]


def take_columns(root: str, table: Table, names: Sequence[str]) -> None:
    """Take columns from what the log of a table says of it; files keep them."""
    log = Path(root, table.name, "_delta_log")
    for file in log.glob("*.*"):
        if file.suffix == ".json":
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            for metadata in (each["metaData"] for each in actions if "metaData" in each):
                _forget(metadata, names)
            file.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
        elif file.suffix == ".crc" and not file.name.startswith("."):
            sums = json.loads(file.read_text())
            _forget(sums["metadata"], names)
            file.write_text(json.dumps(sums))
    for file in log.glob(".*.crc"):
        file.unlink()


def _forget(metadata: dict[str, Any], names: Sequence[str]) -> None:
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [each for each in schema["fields"] if each["name"] not in names]
    metadata["schemaString"] = json.dumps(schema)
