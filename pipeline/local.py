"""Tables on this machine's own file system, read and worked on by whole arrays in the driver.

Planning and starting a job costs a tenth of a second or two, whatever is in it. A batch that is small enough to be held
here does without (`Settings.driver_rows`); whatever else there is, Spark does, with the same rows.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from pipeline.arrow import arrow_schema
from pipeline.messagelog import Bounds, MessageLog
from schemas import MESSAGES, Table

IntArray = npt.NDArray[np.int64]
MOST_BYTES = 256 << 20
"""Rows that are held here at once; they are copied once or twice on their way."""
# Spark's INT96 has nanoseconds, in which the year 9999 has no number.
_PARQUET = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


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
