"""Tables on this machine's own file system, read and worked on by whole arrays in the driver.

Planning and starting a job costs a tenth of a second or two, whatever is in it. A batch that is small enough to be held
here does without (`Settings.driver_rows`); whatever else there is, Spark does, with the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipeline.arrow import arrow_schema
from pipeline.messagelog import Bounds, MessageLog
from schemas import MESSAGES, Table

IntArray = npt.NDArray[np.int64]
MOST_BYTES = 256 << 20
"""Rows that are held here at once; they are copied once or twice on their way."""
# Spark's INT96 has nanoseconds, in which the year 9999 has no number.
_PARQUET = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


_READ_BYTES, _LEAST_ROWS, _MOST_ROWS = 16 << 20, 64, 1 << 16
"""About so many bytes of a row group are read at a time, and so many rows."""
_MAY_REPEAT = ("payload", "message_key")


class NotHere(Exception):
    """The tables are not on this machine, or the batch is too large for it."""


def dataset(table: Table, paths: Sequence[str]) -> ds.Dataset:
    """Files of a table."""
    return ds.dataset(list(paths), schema=arrow_schema(table.schema), format=_PARQUET)


def messages(log: MessageLog, bounds: Bounds, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The messages within bounds; files and row groups outside are passed over by their statistics.

    Raises:
        NotHere: they are not on this machine.
    """
    paths = log.local_paths([bounds])
    if paths is None:
        raise NotHere
    ledger, due = ds.field("ledger_id"), ds.field("due_time")
    first, last = (pa.scalar(ms * 1_000, pa.timestamp("us", "UTC")) for ms in (bounds.first_due, bounds.last_due))
    inside = (ledger >= bounds.first_ledger) & (ledger <= bounds.last_ledger) & (due >= first) & (due <= last)
    found = dataset(MESSAGES, paths)
    yield from found.to_batches(list(columns), inside, batch_readahead=2, fragment_readahead=2)


@dataclass(frozen=True)
class RowGroup:
    """Some rows of a Parquet file of `messages`.

    They may be far more than anybody can hold, however small the file is: equal payloads are written once.
    """

    file: pq.ParquetFile
    number: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows; of columns that are small."""
        return _as_told(self.file.read_row_group(self.number, list(columns)))

    def take(self, columns: Sequence[str], rows: IntArray) -> Iterator[pa.Table]:
        """Some rows, ascending, a few at a time."""
        told = self.file.metadata.row_group(self.number)
        step = max(_LEAST_ROWS, _READ_BYTES * told.num_rows // max(1, told.total_byte_size))
        start = 0
        for batch in self.file.iter_batches(min(step, _MOST_ROWS), [self.number], list(columns)):
            first, last = np.searchsorted(rows, (start, start + batch.num_rows))
            if last > first:
                taken = batch.take(pa.array(rows[first:last] - start))
                if _decoded(taken) > MOST_BYTES:
                    raise NotHere
                yield _as_told(pa.Table.from_batches([taken]))
            start += batch.num_rows
            if last == len(rows):
                return


def row_groups(log: MessageLog, bounds: Bounds) -> Iterator[RowGroup]:
    """The row groups in which messages within bounds may be.

    Raises:
        NotHere: they are not on this machine, or have other columns than they should.
    """
    paths = log.local_paths([bounds])
    if paths is None:
        raise NotHere
    for path in paths:
        told = pq.read_metadata(path)
        options = {"read_dictionary": _repeated(told), "coerce_int96_timestamp_unit": "us"}
        with pq.ParquetFile(path, metadata=told, **options) as file:
            if not set(MESSAGES.schema.names) <= set(file.schema_arrow.names):
                raise NotHere
            for number in range(file.num_row_groups):
                yield RowGroup(file, number)


def sizes(rows: pa.Table) -> IntArray:
    """Bytes of the texts of each row, about."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_map(column.type):
            held = column.combine_chunks()
            ends = np.cumsum(np.append(0, _lengths(held.keys) + _lengths(held.items)))[held.offsets.to_numpy()]
            total += ends[1:] - ends[:-1]
        elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            total += _lengths(column)
    return total


def _lengths(texts: pa.Array | pa.ChunkedArray) -> IntArray:
    lengths: IntArray = pc.fill_null(pc.binary_length(texts), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return lengths


def _repeated(told: pq.FileMetaData) -> list[str]:
    """The columns of long values of which some row group has a dictionary."""
    groups = (told.row_group(number) for number in range(told.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(told.num_columns))
    coded = {column.path_in_schema for column in columns if column.has_dictionary_page}
    return [name for name in _MAY_REPEAT if name in coded]


def _decoded(rows: pa.RecordBatch) -> int:
    """Bytes of the columns that have dictionaries, without them."""
    coded = (column for column in rows.columns if pa.types.is_dictionary(column.type))
    return sum(int(_lengths(column.dictionary.take(column.indices)).sum()) for column in coded)


def _as_told(rows: pa.Table) -> pa.Table:
    """Rows of `messages` with the types of the table."""
    schema = arrow_schema(MESSAGES.schema)
    return rows.cast(pa.schema([schema.field(name) for name in rows.column_names]))


def longs(rows: pa.Table | pa.RecordBatch, column: str) -> IntArray:
    """A column of numbers, or of times in microseconds, without NULL."""
    array: IntArray = rows.column(column).cast(pa.int64()).to_numpy()
    return array


def ranks(rows: pa.Table, column: str) -> IntArray:
    """The place of each text among the different ones of a column, in the order in which Spark sorts them.

    That is the order of their UTF-8 bytes, and so of their code points.
    """
    codes = rows.column(column).combine_chunks().dictionary_encode()
    texts = codes.dictionary.to_pylist()
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    found: IntArray = rank[codes.indices.to_numpy()]
    return found


def ordered(columns: Sequence[IntArray]) -> IntArray:
    """The numbers of rows in the order of several columns, the first one first."""
    told_apart = [column for column in columns if len(column) and column.min() != column.max()]
    if not told_apart:
        return np.arange(len(columns[0]))
    return np.lexsort(told_apart[::-1])
