"""Rows of `messages` within bounds, read by whole arrays in the driver."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.routes import PLACE, NotInDriver
from pipeline.delta.reading.messagelog import Bounds, MessageFile, MessageLog
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.storage.parquet import MOST_ROWS, Footer, RowGroup, chosen_groups, held, opened, read_footers, typed
from schemas import MESSAGES


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
