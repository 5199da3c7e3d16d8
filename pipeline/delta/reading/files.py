"""The rows of some files of a table, whole, by arrays where this process reads them."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pipeline.config.routes import FileTooLarge, NotInDriver
from pipeline.delta.reading.strangers import TOO_LARGE, LeftOut, broken, left_out, places
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.parquet import bounded, row_groups
from pipeline.storage.texts import with_texts
from schemas import Table

_LOG = logging.getLogger(__name__)


def read_files(
    warehouse: Warehouse,
    table: Table,
    names: Sequence[str],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Columns of files of a table, by paths relative to it; all columns when none are named.

    Args:
        warehouse: where the table lies.
        table: the table.
        names: of the files.
        columns: their names.
    """
    wanted = _wanted(table, columns)
    path = warehouse.path(table)
    with suppress(NotInDriver):
        folder = warehouse.files.readable(path)
        if folder is not None:
            groups = row_groups(table, [f"{folder}/{name}" for name in names])
            return pa.concat_tables([wanted.empty_table(), *(group.read(wanted.names) for group in groups)])
    found = (
        warehouse.spark.read.schema(table.schema).parquet(*(f"{path}/{name}" for name in names)).select(*wanted.names)
    )
    return with_texts(found.toArrow().cast(wanted))


def read_strangers(
    warehouse: Warehouse,
    table: Table,
    added: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
) -> tuple[pa.Table, list[LeftOut]]:
    """The same of a table without long texts to which anybody may append, by entries with decoded paths and versions.

    Returns:
        The rows, and the files that are not read.
    """
    files, path = warehouse.files, warehouse.path(table)
    left, wanted = left_out(files, path, added), _wanted(table, columns)
    known, found = places(left), [wanted.empty_table()]
    for each in added:
        if (each["version"], each["path"]) in known:
            continue
        try:
            found.append(bounded(table, f"{files.readable(path) or path}/{each['path']}").select(wanted.names))
        except FileTooLarge as error:
            left.append(LeftOut(each["version"], each["path"], TOO_LARGE, str(error)))
        except (NotInDriver, OSError, pa.ArrowException):
            problems = broken(files, path, table, [each])
            left += problems
            if not problems:
                found.append(read_files(warehouse, table, [each["path"]], columns))
    for file in left:
        _LOG.warning("%s: version %d: %r is left out: %s", table.name, file.version, file.path, file.text)
    return pa.concat_tables(found), left


def _wanted(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    schema = arrow_schema(table.columns)
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])
