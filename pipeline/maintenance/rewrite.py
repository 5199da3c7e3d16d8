"""Files of a table, written anew into others by whole arrays in this process: no job runs, so no stage waits for one.

Spark needs ten times the processor for the same rows, and all cores at once (decision 0016).
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from pipeline.config.errors import UnknownTableFeature
from pipeline.config.routes import NotInDriver
from pipeline.config.session import compiled
from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.delta.logs.entries import is_plain
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.messagelog import Bounds
from pipeline.delta.reading.messages import due_times, message_rows
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import Appender
from pipeline.delta.writing.datafiles import DataFile, rows
from pipeline.delta.writing.numbering import SortKey, columns_of, order_of
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.storage.parquet import row_groups
from schemas import MESSAGES, Table

_LOG = logging.getLogger(__name__)
_MOST_BYTES = 256 << 20
"""What a file that is written may come to before it is compressed."""

_ORDER: tuple[SortKey[pa.Table], ...] = tuple(
    SortKey((name,), partial(longs, column=name)) for name in ("due_time", "ledger_id", "entry_id")
)
"""The order of rows of `messages`."""


@dataclass(frozen=True)
class Rewriting:
    """A table at a version, and what it takes to write some of its files anew.

    Attributes:
        warehouse: of which it is a table.
        path: where it lies.
        table: which one.
        folder: the same as arrays are read; None where only Spark reads it.
        appender: writes to it.
        seen: the version.
        files: path, size, statistics and tags of its files, or of some, as the log spells them.
    """

    warehouse: Warehouse
    path: str
    table: Table
    folder: str | None
    appender: Appender
    seen: int
    files: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, warehouse: Warehouse, table: Table) -> "Rewriting":
        """The table as it is now.

        Raises:
            NotInDriver: it is not what its contract says.
        """
        return cls.at(warehouse, table, *TableLog(warehouse.session, warehouse.path(table)).files())

    @classmethod
    def at(cls, warehouse: Warehouse, table: Table, seen: int, files: Sequence[Mapping[str, Any]]) -> "Rewriting":
        """Some files of the table, or all, as of a version.

        Raises:
            NotInDriver: it is not what its contract says.
        """
        path = warehouse.path(table)
        if not _is_known(table, TableLog(warehouse.session, path)):
            raise NotInDriver
        try:
            appender = Appender(warehouse.session, path, table)
        except UnknownTableFeature as error:
            raise NotInDriver from error
        folder = warehouse.files.readable(path)
        if not all(map(is_plain, files)):
            raise NotInDriver
        return cls(warehouse, path, table, folder, appender, seen, files)

    def write(self, paths: Sequence[str], count: int = 1) -> list[DataFile]:
        """Write the rows of files into about so many others; those of `messages` in the order of their due times.

        Raises:
            NotInDriver: they are not what the table says, or their rows are too large.
        """
        if self.folder is None:
            return self.write_by_spark(paths, count)
        here = [f"{self.folder}/{unquote(path)}" for path in paths]
        pieces = _in_order(here, count) if self.table is MESSAGES else _as_they_are(self.table, here)
        fresh: list[DataFile] = []
        try:
            # One piece is held at a time.
            while (piece := next(pieces, None)) is not None:
                fresh += self.appender.put(piece)
                del piece
        except Exception as error:
            self.appender.discard(fresh)
            if isinstance(error, pa.ArrowException):
                raise NotInDriver from error
            raise
        return fresh

    def write_by_spark(self, paths: Sequence[str], count: int) -> list[DataFile]:
        """What `write` gives, of rows that only Spark reaches, or that do not fit into it."""
        spark = self.warehouse.spark
        rows = spark.read.schema(self.table.schema).parquet(*(f"{self.path}/{unquote(path)}" for path in paths))
        with compiled(spark):
            if self.table is not MESSAGES:
                return self.appender.write(rows.coalesce(count))
            ahead = rows.repartitionByRange(count, "due_time")
            return self.appender.write(ahead.sortWithinPartitions(*columns_of(_ORDER)))

    def put_in_place(
        self,
        old: Mapping[str, int],
        count: int,
        fresh: Sequence[DataFile],
        tags: Mapping[str, str],
        *,
        fewer: bool = False,
    ) -> bool:
        """Make files visible in the place of others, if nobody has touched those.

        Args:
            old: sizes of the others in bytes, by their paths.
            count: how many rows the files must have.
            fresh: what `write` gave.
            tags: what the log says of them.
            fewer: rows were left out.

        Returns:
            Whether they are there. If not, that is logged, and nothing has changed.

        Raises:
            NotInDriver: they have more rows, or fewer.
        """
        if rows(fresh) != count:
            _LOG.error("%s: written anew, files have %d rows instead of %d", self.table.name, rows(fresh), count)
            self.appender.discard(fresh)
            raise NotInDriver
        if not self.appender.replace(self.seen, old, fresh, tags, fewer=fewer):
            _LOG.warning("%s: files are left as they are: another commit was in the way", self.table.name)
            self.appender.discard(fresh)
            return False
        return True


def _is_known(table: Table, log: TableLog) -> bool:
    """Whether a table has the columns of its contract and no others."""
    found = json.loads(log.head().metadata["schemaString"])["fields"]
    wanted = json.loads(table.schema.json())["fields"]
    return [(each["name"], each["type"]) for each in found] == [(each["name"], each["type"]) for each in wanted]


def _as_they_are(table: Table, paths: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of files, a piece at a time."""
    return pieces(table, (few for group in row_groups(table, paths) for few in group.all()))


def pieces(table: Table, rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Rows in pieces of which each becomes a file: they may unfold to far more than the files have they come from."""
    held, size = [arrow_schema(table.schema).empty_table()], 0
    for few in rows:
        held.append(few)
        size += few.nbytes
        if size > _MOST_BYTES:
            yield pa.concat_tables(held)
            held, size = held[:1], 0
    yield pa.concat_tables(held).combine_chunks()


def _in_order(paths: Sequence[str], count: int) -> Iterator[pa.Table]:
    """The rows of files of `messages`: in slices of due time, each in order."""
    due = np.sort(due_times(paths))
    cuts = np.unique(due[[len(due) * number // count for number in range(1, count)]]) if len(due) else due
    for first, end in pairwise([FIRST_INSTANT_MS, *cuts.tolist(), LAST_INSTANT_MS + 1]):
        held = message_rows(paths, Bounds(first_due=first, last_due=end - 1), _MOST_BYTES)
        held = held.take(pa.array(order_of(held, _ORDER)))
        yield held
        del held
