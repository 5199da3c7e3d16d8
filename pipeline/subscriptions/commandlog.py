"""The rows of `commands` that a stage needs: each file is read once, and held until maintenance takes it out."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pipeline.config.routes import NotInDriver
from pipeline.delta.logs.entries import newest
from pipeline.delta.reading.livefiles import LiveFiles
from pipeline.delta.reading.messagelog import Bounds
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.hadoop import session_files
from pipeline.storage.parquet import row_groups
from pipeline.subscriptions.commands import READ
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import COMMANDS, Table

_NOTHING = arrow_schema(COMMANDS.columns).empty_table().select(READ)


class CommandLog:
    """The files of `commands`.

    Rows below the mark of what is settled are for nobody any more: dispatch has taken their positions for good.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._path, self._files = spark, warehouse.path(COMMANDS), session_files(spark)
        self._root = warehouse.root
        self._live = LiveFiles(spark, self._path, COMMANDS, lambda file: Bounds.of_statistics(file.get("stats")))
        self._rows: dict[str, pa.Table] = {}
        self._known = -1, _NOTHING

    def look(self) -> tuple[int, pa.Table]:
        """The newest version, and the columns `READ` of its rows. Without any rows yet, that is a look at the log.

        The table is the same object while the version is the same.
        """
        if self._known[0] <= 0 and newest(self._files, self._path, 0) == 0:
            self._known = 0, _NOTHING
            return self._known
        version, files = self._live.look()
        if version != self._known[0]:
            self._known = version, self._above(files)
        return self._known

    def forget(self) -> None:
        """Let go what is below the mark by now, with the next look."""
        self._known = -1, _NOTHING

    def _above(self, files: Mapping[str, Bounds]) -> pa.Table:
        mark = read_mark(self._files, self._root)
        fresh = {
            path: self._read(path) for path, held in files.items() if path not in self._rows and _is_above(held, mark)
        }
        self._rows = {path: _needed(rows, mark) for path, rows in (self._rows | fresh).items() if path in files}
        return pa.concat_tables([_NOTHING, *self._rows.values()])

    def _read(self, path: str) -> pa.Table:
        return read_files(self._spark, self._path, COMMANDS, [path], READ)


def read_files(
    spark: SparkSession, path: str, table: Table, names: Sequence[str], columns: Sequence[str] | None = None
) -> pa.Table:
    """Columns of files of a table, by paths relative to it; all columns when none are named."""
    schema = arrow_schema(table.columns)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    with suppress(NotInDriver):
        folder = session_files(spark).readable(path)
        if folder is not None:
            groups = row_groups(table, [f"{folder}/{name}" for name in names])
            return pa.concat_tables([wanted.empty_table(), *(group.read(wanted.names) for group in groups)])
    found = spark.read.schema(table.schema).parquet(*(f"{path}/{name}" for name in names)).select(*wanted.names)
    return found.toArrow().cast(wanted)


def _is_above(held: Bounds, mark: SettledMark) -> bool:
    """Whether a file has rows that are not below a mark."""
    return held.last_due > mark.due_ms or held.last_ledger >= mark.ledger


def _needed(rows: pa.Table, mark: SettledMark) -> pa.Table:
    """The rows that are not below a mark."""
    due = pc.less_equal(rows.column("due_time").cast(pa.int64()), mark.due_ms * 1_000)
    below = pc.and_(due, pc.less(rows.column("ledger_id"), mark.ledger))
    return rows.filter(pc.invert(pc.fill_null(below, fill_value=False)))
