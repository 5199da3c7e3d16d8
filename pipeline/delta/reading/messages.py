"""`messages` by ledger and due time: the files that may hold what is asked for, and no others; and their rows.

Their bounds are kept in the driver. What is asked for may be in a file that was compacted since: the newest version is
looked at with each question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.lazyspark import F
from pipeline.config.routes import PLACE, NotInDriver
from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.delta.logs.filestats import count, span, span_ms
from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.storage.parquet import MOST_ROWS, Footer, RowGroup, chosen_groups, held, opened, read_footers, typed
from schemas import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LAST_LEDGER = (1 << 63) - 1


@dataclass(frozen=True)
class Bounds:
    """Some of the log, or what a file holds of it; both ends are included, times in ms."""

    first_ledger: int = 0
    last_ledger: int = _LAST_LEDGER
    first_due: int = FIRST_INSTANT_MS
    last_due: int = LAST_INSTANT_MS

    @property
    def inside(self) -> Column:
        """Whether a row of `messages` is in it, as literals that readers of Parquet prune by."""
        due = F.col("due_time").between(*(F.timestamp_millis(F.lit(ms)) for ms in (self.first_due, self.last_due)))
        return F.col("ledger_id").between(self.first_ledger, self.last_ledger) & due

    def meets(self, other: Bounds) -> bool:
        """Whether a row may be in both."""
        ledgers = self.first_ledger <= other.last_ledger and other.first_ledger <= self.last_ledger
        return ledgers and self.first_due <= other.last_due and other.first_due <= self.last_due

    def share(self, other: Bounds) -> float:
        """The part of its due times that lies within other bounds; it has to meet them."""
        common = min(self.last_due, other.last_due) - max(self.first_due, other.first_due) + 1
        return common / (self.last_due - self.first_due + 1)

    @classmethod
    def of_file(cls, file: Mapping[str, Any]) -> Bounds:
        """What a file may hold, by the statistics of its entry in the log; anything when there are none."""
        stats = file.get("stats")
        try:
            first_due, last_due = span_ms(stats, "due_time")
            low, high = span(stats, "ledger_id")
        except KeyError:
            return cls()
        # Delta cuts times to milliseconds. Ours have no more, but who knows who wrote the file.
        return cls(low, high, first_due, last_due + 1)


def any_of(bounds: Iterable[Bounds]) -> Column:
    """Whether a row of `messages` is in one of them."""
    return reduce(or_, (each.inside for each in bounds), F.lit(False))  # noqa: FBT003 - a literal column


@dataclass(frozen=True)
class MessageFile:
    """A file of the log: its path relative to the table, what it holds, and how many rows; 0 where nobody knows."""

    path: str
    held: Bounds
    rows: int


class MessageLog:
    """The files of `messages`."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse, self._path = warehouse, warehouse.path(MESSAGES)
        self._folder = warehouse.files.readable(self._path)
        self._live = LiveFiles(warehouse, MESSAGES, _held)

    def read(self, wanted: Sequence[Bounds], spark: SparkSession | None = None) -> DataFrame:
        """The rows of `messages` as it is now, less those of files that hold nothing within any of the bounds.

        Args:
            wanted: where they are.
            spark: the session of the frame, when that is not the one of the stage.
        """
        return self.rows_of(self.files(wanted), spark)

    def rows_of(self, files: Iterable[MessageFile], spark: SparkSession | None = None) -> DataFrame:
        """All rows of some files."""
        spark, paths = spark or self._warehouse.spark, [f"{self._path}/{file.path}" for file in files]
        if not paths:
            return spark.createDataFrame([], MESSAGES.schema)
        return spark.read.schema(MESSAGES.schema).parquet(*paths)

    def readable_paths(self, files: Iterable[MessageFile]) -> list[str] | None:
        """The paths of files as arrays are read; None where only Spark reads them."""
        return None if self._folder is None else [f"{self._folder}/{file.path}" for file in files]

    def files(self, wanted: Sequence[Bounds]) -> list[MessageFile]:
        """The files that may hold something within any of the bounds, as the table is now."""
        _, live = self._live.look()
        held = ((path, *entry) for path, entry in live.items())
        return [MessageFile(*each) for each in held if any(each[1].meets(bounds) for bounds in wanted)]


def about(files: Iterable[MessageFile], wanted: Bounds) -> int:
    """About how many messages within bounds files hold, as if those of a file were spread evenly over its due times."""
    return round(sum(file.rows * file.held.share(wanted) for file in files if file.held.meets(wanted)))


def _held(file: Mapping[str, Any]) -> tuple[Bounds, int]:
    return Bounds.of_file(file), count(file.get("stats")) or 0


def messages(
    log: MessageLog, bounds: Bounds, columns: Sequence[str], files: Sequence[MessageFile] | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages within bounds, of columns that are small; files and row groups outside are passed over.

    With `files` only those are read.

    Raises:
        NotInDriver: only Spark reaches them, or they are not what the table says.
    """
    names = [*dict.fromkeys((*columns, "ledger_id", "due_time"))]
    first, last = bounds.first_due * 1_000, bounds.last_due * 1_000
    try:
        for _, file in opened(MESSAGES, _footers(log, log.files([bounds]) if files is None else files)):
            for batch in file.iter_batches(MOST_ROWS, list(_meeting(file, bounds)), names):
                rows = typed(MESSAGES, batch, names)
                ledger, due = longs(rows, "ledger_id"), longs(rows, "due_time")
                inside = (due >= first) & (due <= last)
                inside &= (ledger >= bounds.first_ledger) & (ledger <= bounds.last_ledger)
                found = rows.select(list(columns))
                yield found if inside.all() else found.take(pa.array(np.flatnonzero(inside)))
    except pa.ArrowException as error:
        raise NotInDriver from error


def message_groups(log: MessageLog, *bounds: Bounds) -> Iterator[RowGroup]:
    """The row groups in which messages within any of the bounds may be; statistics tell, and others are passed over.

    Raises:
        NotInDriver: only Spark reaches them, or they have other columns than they should.
    """
    yield from chosen_groups(MESSAGES, _footers(log, log.files(bounds)), lambda file: _meeting(file, *bounds))


def _footers(log: MessageLog, files: Sequence[MessageFile]) -> Iterator[Footer]:
    """The footers of files.

    Raises:
        NotInDriver: only Spark reaches them.
    """
    paths = log.readable_paths(files)
    if paths is None:
        raise NotInDriver(PLACE)
    return read_footers(paths)


def due_times(paths: Sequence[str]) -> IntArray:
    """The due times of all messages in files, ms.

    Raises:
        NotInDriver: the files are not what the table says.
    """
    groups = chosen_groups(MESSAGES, read_footers(paths))
    return np.concatenate([np.empty(0, np.int64), *(_due_ms(group) for group in groups)])


def _due_ms(group: RowGroup) -> IntArray:
    due: IntArray = np.floor_divide(longs(group.read(("due_time",)), "due_time"), 1_000)
    return due


def message_rows(paths: Sequence[str], bounds: Bounds, most: int) -> pa.Table:
    """The rows of files of `messages` that are due within bounds, all columns, up to so many bytes.

    Raises:
        NotInDriver: there are more, or the files are not what the table says.
    """

    def pieces() -> Iterator[pa.Table]:
        for group in chosen_groups(MESSAGES, read_footers(paths), lambda file: _meeting(file, bounds)):
            due = _due_ms(group)
            inside = np.flatnonzero((due >= bounds.first_due) & (due <= bounds.last_due))
            yield from group.take(MESSAGES.columns.names, inside) if len(inside) else ()

    return held(MESSAGES, pieces(), most)


def _meeting(file: pq.ParquetFile, *bounds: Bounds) -> Iterator[int]:
    """The row groups of `messages` with something within any of the bounds.

    So are all whose statistics do not say it in our units.
    """
    footer, kinds = file.metadata, (file.schema_arrow, arrow_schema(MESSAGES.columns))
    places = {footer.schema.column(number).path: number for number in range(footer.num_columns)}
    names = ("ledger_id", "due_time")
    known = all(len({kind.field(name).type for kind in kinds}) == 1 for name in names)
    for number in range(footer.num_row_groups):
        ledger, due = (footer.row_group(number).column(places[name]).statistics for name in names)
        if known and ledger and due and ledger.has_min_max and due.has_min_max:
            held = Bounds(ledger.min_raw, ledger.max_raw, due.min_raw // 1_000, due.max_raw // 1_000)
            if not any(map(held.meets, bounds)):
                continue
        yield number
