"""Answers of a few rows about a table, in the driver: without a job where that can be.

A job of Spark's that reads one small file takes a tenth of a second of a CPU, and a start asks several.
"""

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.delta.deltars import query
from pipeline.delta.logs.entries import is_whole
from pipeline.delta.logs.opening import table_at
from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.storage.hadoop import session_files
from schemas import Table

_LOG = logging.getLogger(__name__)


def ask(spark: SparkSession, warehouse: Warehouse, table: Table, sql: str, version: int | None = None) -> Sequence[Any]:
    """The rows of a query over one table, each with its columns by name.

    Args:
        spark: the session.
        warehouse: where the table lies.
        table: its contract.
        sql: what both Spark and DataFusion understand; the table is `{told}` in it.
        version: of the table; None is the newest.
    """
    rows = _here(session_files(spark), warehouse.path(table), sql, version)
    return spark.sql(sql, told=warehouse.read(spark, table, version)).collect() if rows is None else rows


def _here(files: Files, path: str, sql: str, version: int | None) -> list[dict[str, Any]] | None:
    """The same by delta-rs; None where only Spark reads the table."""
    folder = files.readable(path)
    if folder is None:
        return None
    try:
        table = table_at(folder, version)
        return query(sql.format(told="told"), told=table) if _has_all(files, path, table) else None
    except Exception:  # noqa: BLE001 - most of all a table feature that it does not know
        _LOG.warning("%s, version %s, is read by Spark, which takes seconds", path, version, exc_info=True)
        return None


def _has_all(files: Files, path: str, table: DeltaTable) -> bool:
    """Whether delta-rs has found all files of a table: of a log that was cut it may read less than there was."""
    if is_whole(files, path):
        return True
    told = live_files(files, path, table.version())
    found = pa.table(table.get_add_actions())["path"].to_pylist()
    return told is not None and {unquote(each["path"]) for each in told[1]} == set(map(unquote, found))
