"""The rows of some files of a table, whole, by arrays where this process reads them."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.config.routes import FileTooLarge, NotInDriver
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from pipeline.storage.parquet import bounded, row_groups
from pipeline.storage.texts import with_texts
from schemas import Table

_LOG = logging.getLogger(__name__)


def read_files(
    spark: SparkSession,
    files: Files,
    path: str,
    table: Table,
    names: Sequence[str],
    columns: Sequence[str] | None = None,
    too_large: Callable[[str], None] | None = None,
) -> pa.Table:
    """Columns of files of a table, by paths relative to it; all columns when none are named.

    Args:
        spark: reads what this process cannot.
        files: the file systems of that session; to make them asks the JVM several things.
        path: of the table's folder.
        table: the table.
        names: of the files.
        columns: their names.
        too_large: anybody may have written the files; called with the name of one that is too large, which is then
            passed over.
    """
    schema = arrow_schema(table.columns)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    with suppress(NotInDriver):
        folder = files.readable(path)
        if folder is not None and too_large is not None:
            small = (_bounded(table, f"{folder}/{name}", name, too_large) for name in names)
            return pa.concat_tables([wanted.empty_table(), *(rows.select(wanted.names) for rows in small)])
        if folder is not None:
            groups = row_groups(table, [f"{folder}/{name}" for name in names])
            return pa.concat_tables([wanted.empty_table(), *(group.read(wanted.names) for group in groups)])
    found = spark.read.schema(table.schema).parquet(*(f"{path}/{name}" for name in names)).select(*wanted.names)
    return with_texts(found.toArrow().cast(wanted))


def _bounded(table: Table, path: str, name: str, too_large: Callable[[str], None]) -> pa.Table:
    try:
        return bounded(table, path)
    except FileTooLarge as error:
        _LOG.warning("%s: a file is passed over: %s", table.name, error)
        too_large(name)
        return arrow_schema(table.columns).empty_table()
