"""A few rows of a table, or answers of a few rows about it, in the driver: without a job where that can be.

A job of Spark's that reads one small file takes a tenth of a second of a CPU, and a start asks several. To join small
tables Spark looks for the files of each, and runs a job or two to read them.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from pipeline.config.threads import panics_raised
from pipeline.delta.deltars import batches_of, query
from pipeline.delta.logs.entries import is_whole, newest
from pipeline.delta.logs.opening import table_at
from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from schemas import Table

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_MOST_ROWS, _MOST_BYTES = 100_000, 64 << 20
"""Rows of a table that are held here, as in a plan Spark holds them several times, and bytes of its files."""


def ask(warehouse: Warehouse, table: Table, sql: str, version: int | None = None) -> Sequence[Any]:
    """The rows of a query over one table, each with its columns by name.

    Args:
        warehouse: where the table lies.
        table: its contract.
        sql: what both Spark and DataFusion understand; the table is `{rows}` in it.
        version: of the table; None is the newest.
    """
    files, path = warehouse.files, warehouse.path(table)
    rows = read_here(files, path, version, lambda opened: query(sql.format(rows="opened"), opened=opened))
    return warehouse.spark.sql(sql, rows=warehouse.read(table, version)).collect() if rows is None else rows


def frame_of(
    warehouse: Warehouse,
    table: Table,
    columns: Sequence[str],
    version: int | None = None,
    where: str = "true",
    most: int = _MOST_ROWS,
) -> DataFrame:
    """Columns of some rows of a table. When they are few the frame holds them itself, and reads nothing any more.

    Args:
        warehouse: where the table lies.
        table: its contract.
        columns: their names.
        version: of the table; None is the newest.
        where: which rows, in what both Spark and DataFusion understand.
        most: how many of them the driver may hold. It holds no more than 100,000, of a table of 64 MiB.
    """
    files, path = warehouse.files, warehouse.path(table)
    version = newest(files, path) if version is None else version
    few = _few(files, path, table, columns, where, version, min(most, _MOST_ROWS)) if most else None
    if few is None:
        return warehouse.read(table, version).where(where).select(*columns)
    # One task: each core would get a few rows, and write a file for them.
    return warehouse.spark.createDataFrame(few).coalesce(1)


def _few(
    files: Files, path: str, table: Table, columns: Sequence[str], where: str, version: int, most: int
) -> pa.Table | None:
    """The rows; None when they are more than that, or only Spark reads them, or the table is large."""

    def asked(opened: DeltaTable) -> pa.Table | None:
        sizes = pc.sum(pa.table(opened.get_add_actions())["size_bytes"]).as_py() or 0
        if sizes > _MOST_BYTES:
            return None
        wanted, rows = arrow_schema(table.columns), 0
        held = [pa.schema([wanted.field(name) for name in columns]).empty_table()]
        for batch in batches_of(f"SELECT {', '.join(columns)} FROM opened WHERE {where}", opened=opened):  # noqa: S608 - names
            rows += batch.num_rows
            if rows > most:
                return None
            held.append(pa.Table.from_batches([batch]).cast(held[0].schema))
        return pa.concat_tables(held)

    return read_here(files, path, version, asked)


def read_here(files: Files, path: str, version: int | None, read: Callable[[DeltaTable], T | None]) -> T | None:
    """What is read of a table by delta-rs, which runs no job; None where that cannot, or may not, be.

    Args:
        files: what reaches the table.
        path: its folder.
        version: of the table; None is the newest.
        read: reads the opened table; what it raises is logged, and is None.
    """
    folder = files.readable(path)
    if folder is None:
        return None
    try:
        with panics_raised():
            table = table_at(folder, version)
            return read(table) if _has_all(files, path, table) else None
    except Exception:  # noqa: BLE001 - most of all a table feature that it does not know
        which = "the newest version" if version is None else f"version {version}"
        _LOG.warning("%s: %s is left to Spark, which takes seconds", path, which, exc_info=True)
        return None


def _has_all(files: Files, path: str, table: DeltaTable) -> bool:
    """Whether delta-rs has found all files of a table: of a log that was cut it may read less than there was."""
    if is_whole(files, path):
        return True
    live = live_files(files, path, table.version())
    found = pa.table(table.get_add_actions())["path"].to_pylist()
    return live is not None and {unquote(each["path"]) for each in live[1]} == set(map(unquote, found))
