"""A warehouse: the folders of its tables, and how their rows are read and followed.

A few rows of a table, or answers of a few rows about it, are read in the driver, without a job where that can be. A job
of Spark's that reads one small file takes a tenth of a second of a CPU, and a start asks several. To join small tables
Spark looks for the files of each, and runs a job or two to read them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.errors import VersionGone
from pipeline.config.paths import usable
from pipeline.config.routes import PLACE, SETTING, SIZE, NotInDriver, SessionNeeded
from pipeline.config.threads import panics_raised
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset, Position
from pipeline.delta.deltars import batches_of, query
from pipeline.delta.logs.entries import between, is_plain, is_whole, newest, rows_of
from pipeline.delta.logs.opening import table_at
from pipeline.delta.logs.snapshot import live_files
from pipeline.delta.streams.log import LogSource, TableFiles
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from pipeline.storage.hadoop import session_files
from pipeline.storage.parquet import read_footers
from schemas import (
    Table,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[int, str]
"""A file of a table: the version that added it, and its path relative to the table, decoded."""


_FOOTERS = 64
"""So many files are looked at to learn how many rows they have."""


@dataclass(frozen=True)
class Warehouse:
    """A folder of Delta tables, with checkpoints and the virtual clock beside them, and what reaches them.

    Attributes:
        root: the folder.
        session: reads and writes what this process cannot. None: nobody does, and what this process cannot reach is out
            of reach.
    """

    root: str
    session: SparkSession | None = field(default=None, compare=False, repr=False)

    @property
    def spark(self) -> SparkSession:
        """The session, for what only Spark can do.

        Raises:
            SessionNeeded: there is none.
        """
        if self.session is None:
            raise SessionNeeded
        return self.session

    @property
    def files(self) -> Files:
        """All file systems that are reached."""
        return session_files(self.session)

    def within(self, session: SparkSession | None) -> Warehouse:
        """The same one as another session of the process reads it: that of a query's batch has settings of its own."""
        return replace(self, session=session)

    def path(self, table: Table) -> str:
        """The folder of a table."""
        return f"{usable(self.root)}/{table.name}"

    def checkpoint(self, stage: str) -> str:
        """The checkpoint folder of a stage."""
        return f"{self.root}/_checkpoints/{stage}"

    def instants(self, stage: str) -> str:
        """The file with a stage's instants of the virtual clock. One for each stage: a replay runs them in lockstep."""
        return f"{self.root}/_clock/{stage}"

    def read(self, table: Table, version: int | None = None) -> DataFrame:
        """A table as it is now, or as it was at a version."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.load(self.path(table))

    def between(self, table: Table, begin: Offset, end: Offset, left: Collection[Place] = ()) -> DataFrame:
        """The rows that a stream of a table gives between two places: after `begin`, up to and with `end`.

        Files of some versions are `left` out.

        Raises:
            VersionGone: the log does not have all of them any more.
        """
        found = between(self.files, self.path(table), begin, end)
        if found is None:
            raise VersionGone(table.name, begin[0], "_delta_log")
        found = [each for each in found if (each["version"], each["path"]) not in left]
        if not found:
            return self.spark.createDataFrame([], table.schema)
        return TableFiles(self.spark, self.path(table)).frame(found).select(*table.columns.names)

    def files_between(
        self, table: Table, begin: Position, end: Position, most: int, left: Collection[Place] = ()
    ) -> list[Place]:
        """The files that a batch of a stream takes: the version that added each, and a path that can be read.

        Files of some versions are `left` out.

        Raises:
            NotInDriver: only Spark reads the table, they hold more than `most` rows, or they are more than plain files.
        """
        folder = self.files.readable(self.path(table))
        if folder is None or most == 0:
            raise NotInDriver(SETTING if most == 0 else PLACE)
        added = between(self.files, self.path(table), begin.offset, end.offset)
        added = added and [each for each in added if (each["version"], each["path"]) not in left]
        if added is None or not all(map(is_plain, added)):
            raise NotInDriver
        found = [(each["version"], f"{folder}/{each['path']}") for each in added]
        count = rows_of(added)
        if (_counted(found) if count is None else count) > most:
            raise NotInDriver(SIZE)
        return found

    def follow(self, table: Table, start: Position | int, max_files: int, max_bytes: int | None = None) -> DataFrame:
        """A stream for one query: the rows appended to a table from a position or a version on; never a snapshot."""
        begin = (start, EVERYTHING_BEFORE) if isinstance(start, int) else start.offset
        return LogSource(self.spark, self.path(table), begin, max_files, max_bytes).stream()


def _counted(found: Collection[Place]) -> int:
    """How many rows files have whose log does not say it, by their footers.

    Raises:
        NotInDriver: they are many, or one cannot be read.
    """
    if len(found) > _FOOTERS:
        raise NotInDriver
    try:
        return sum(footer.num_rows for _, footer in read_footers(path for _, path in found))
    except pa.ArrowException as error:
        raise NotInDriver from error


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
    return arrow_frame(warehouse.spark, few).coalesce(1)


def rows_here(warehouse: Warehouse, table: Table, columns: Sequence[str], most: int) -> pa.Table:
    """Columns of all rows of a table, in this process; by Spark when they are more than `most`, or many."""
    files, path = warehouse.files, warehouse.path(table)
    few = _few(files, path, table, columns, "true", newest(files, path), min(most, _MOST_ROWS)) if most else None
    return warehouse.read(table).select(*columns).toArrow() if few is None else few


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
