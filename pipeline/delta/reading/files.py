"""Files of a table: those of which it consists, kept in the driver, and the rows of some of them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from pipeline.config.routes import FileTooLarge, NotInDriver
from pipeline.delta.logs import entries
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.logs.restored import refuse_restored
from pipeline.delta.logs.snapshot import follow
from pipeline.delta.reading.strangers import TOO_LARGE, LeftOut, broken, left_out, places
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import check_features
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.parquet import bounded, row_groups
from pipeline.storage.texts import with_texts
from schemas import Table

T = TypeVar("T")


class LiveFiles(Generic[T]):
    """The files of which a table consists, by their paths relative to it, each with what is kept of it."""

    def __init__(self, warehouse: Warehouse, table: Table, kept: Callable[[Mapping[str, Any]], T]) -> None:
        """Nothing is read yet.

        Args:
            warehouse: where the table lies.
            table: its contract.
            kept: what to keep of a file, from its entry in the log (`path`, `size`, `stats`, `tags`).
        """
        self._warehouse, self._table, self._kept = warehouse, table, kept
        self._files, self._path = warehouse.files, warehouse.path(table)
        self._log: TableLog | None = None
        self._version = -1
        self._held: dict[str, T] = {}

    def look(self) -> tuple[int, Mapping[str, T]]:
        """The newest version and its files; all of them by one job, the first time and after a long pause.

        Raises:
            UnknownTableFeature: the table asks something of its readers that we do not know.
            TableRestored: somebody has restored a table of the stages.
        """
        if self._log is None:
            self._log = TableLog(self._warehouse.session, self._path)
        if not self._reaches_back():
            self._read(self._log)
        try:
            self._follow(self._log)
        except Exception:
            # Maintenance cuts logs; it may have done so since we looked.
            if self._reaches_back():
                raise
            self._read(self._log)
            self._follow(self._log)
        return self._version, self._held

    def newest(self, known: int = -1) -> int:
        """The newest version; see `entries.newest`."""
        return entries.newest(self._files, self._path, known)

    def rows(self, paths: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of some of them, or all columns; see `read_files`."""
        return read_files(self._warehouse, self._table, paths, columns)

    def _reaches_back(self) -> bool:
        return self._version >= 0 and entries.reaches_back(self._files, self._path, self._version)

    def _read(self, log: TableLog) -> None:
        check_features(self._table.name, log.head())
        self._version, live = log.files()
        self._held = {unquote(each["path"]): self._kept(each) for each in live}

    def _follow(self, log: TableLog) -> None:
        newest = entries.newest(self._files, self._path, self._version)
        versions = list(entries.versions(self._files, self._path, self._version, newest))
        refuse_restored(self._files, self._path, self._table, versions)
        for version, actions in versions:
            if entries.changes_table(actions):
                check_features(self._table.name, log.head())
            follow(self._held, actions, self._kept)
            self._version = version


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
