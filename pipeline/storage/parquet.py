"""Parquet files of tables, read by whole arrays in the driver, from this machine or from an object store.

Planning and starting a job costs a tenth of a second or two, whatever is in it. A batch that is small enough to be held
here does without (`Settings.driver_rows`), and so does what passes through by and by; whatever else there is, Spark
does, with the same rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.routes import SIZE, FileTooLarge, NotInDriver
from pipeline.storage.arrays import IntArray, arrow_schema, lengths
from pipeline.storage.arrowfs import in_store, store_of
from pipeline.storage.texts import MAX_NAME_BYTES, has_texts, with_texts
from schemas import INBOX, Table

Footer = tuple[str, pq.FileMetaData]
"""A file by a path that `Files.readable` gave, and its metadata."""
# Spark's INT96 has nanoseconds, in which the year 9999 has no number.
_INT96 = {"coerce_int96_timestamp_unit": "us"}
_READ_BYTES, MOST_ROWS = 16 << 20, 1 << 16
"""About so many bytes of a row group are read at a time, and so many rows."""
MOST_UNFOLDED = 512 << 20
"""Of rows of a file that anybody may have written; maintenance writes files of half as much."""
_MAP_BYTES = 256 << 20
"""What the maps of a row group may come to, whatever is in them: one row may have all entries."""
BUFFER_BYTES = 1 << 20
"""Of a column's bytes in a file, read at once. Without a buffer Arrow reads all that a row group has of the column."""
_STORE_BUFFER_BYTES = 8 << 20
"""Of a column's bytes in an object store, read at once: each read is a request."""
_SMALL_BYTES, _SMALL_FILES = 1 << 20, 64
"""Files of a store that are read whole, by one request, and how many of them are kept."""
_TOGETHER = 16
"""Files of a store whose beginnings are asked for at once."""
_POOL = ThreadPoolExecutor(_TOGETHER, thread_name_prefix="parquet")


def parquet_file(path: str, footer: pq.FileMetaData, **how: Any) -> pq.ParquetFile:  # noqa: ANN401 - options of Arrow's
    """A file, opened; `footer` is its metadata."""
    store = store_of(path)
    if store is None:
        return pq.ParquetFile(path, metadata=footer, buffer_size=BUFFER_BYTES, **how)
    return pq.ParquetFile(_source(path), metadata=footer, buffer_size=_STORE_BUFFER_BYTES, **how)


def _metadata(path: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path if store_of(path) is None else _source(path))
    except (pa.ArrowException, OSError) as error:
        error.add_note(path)
        raise


def _source(path: str) -> pa.NativeFile:
    """A file of a store: all of it when it is small."""
    data = _small_file(path)
    if data is not None:
        return pa.BufferReader(data)
    system, where = in_store(path)
    return system.open_input_file(where)


@lru_cache(_SMALL_FILES)
def _small_file(path: str) -> bytes | None:
    """The content of a small file, None of a large one. Files of a table never change once they are written."""
    system, where = in_store(path)
    with system.open_input_file(where) as file:
        return bytes(file.read()) if file.size() <= _SMALL_BYTES else None


@dataclass(frozen=True)
class RowGroup:
    """Some rows of a Parquet file of a table.

    They may be far more than anybody can hold, however small the file is: equal texts are written once.

    Attributes:
        table: whose file it is.
        path: where it is, as `Files.readable` gave it.
        file: the same, opened.
        number: which row group.
        known_step: rows that can be read at once, when that is known already.
    """

    table: Table
    path: str
    file: pq.ParquetFile
    number: int
    known_step: int | None = None

    @cached_property
    def step(self) -> int:
        """Rows that can be read at once, whatever is in them; see `_step`."""
        return self.known_step or _step(self.path, self.file.metadata, self.number)

    @property
    def count(self) -> int:
        """How many rows it has."""
        return int(self.file.metadata.row_group(self.number).num_rows)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows; of columns that are small."""
        return typed(self.table, self.file.read_row_group(self.number, list(columns)), columns)

    def all(self) -> Iterator[pa.Table]:
        """All rows with all columns, a few at a time."""
        for batch in self.file.iter_batches(self.step, [self.number], self.table.columns.names):
            yield pa.Table.from_batches([typed(self.table, batch, self.table.columns.names)])

    def take(self, columns: Sequence[str], rows: IntArray) -> Iterator[pa.Table]:
        """Some rows, ascending, a few at a time."""
        start = 0
        for batch in self.file.iter_batches(self.step, [self.number], list(columns)):
            first, last = np.searchsorted(rows, (start, start + batch.num_rows))
            if last > first:
                # First the types: other writers say that texts are to be read as views, of which Arrow takes no rows.
                found = typed(self.table, batch, columns)
                whole = last - first == batch.num_rows
                yield pa.Table.from_batches([found if whole else found.take(pa.array(rows[first:last] - start))])
            start += batch.num_rows
            if last == len(rows):
                return


def row_groups(table: Table, paths: Iterable[str]) -> Iterator[RowGroup]:
    """All row groups of files of a table.

    Raises:
        NotInDriver: a file is not what the table says.
    """
    try:
        yield from chosen_groups(table, read_footers(paths))
    except pa.ArrowException as error:
        raise NotInDriver from error


def _all(file: pq.ParquetFile) -> Iterable[int]:
    return range(file.num_row_groups)


def chosen_groups(
    table: Table, footers: Iterable[Footer], chosen: Callable[[pq.ParquetFile], Iterable[int]] = _all
) -> Iterator[RowGroup]:
    """Row groups of files.

    Raises:
        NotInDriver: a file has other columns than it should.
    """
    for path, file in opened(table, footers):
        for number in chosen(file):
            yield RowGroup(table, path, file, number)


def _a_few(paths: Iterable[str]) -> Iterator[list[str]]:
    """Paths of a store in groups, to be asked for together; of this machine one by one, as they are wanted."""
    left = iter(paths)
    while some := list(islice(left, 1)):
        if store_of(some[0]) is not None:
            some += islice(left, _TOGETHER - 1)
        yield some


def read_footers(paths: Iterable[str]) -> Iterator[Footer]:
    """The metadata of files, read one after the other."""
    for some in _a_few(paths):
        yield from zip(some, _POOL.map(_metadata, some) if len(some) > 1 else map(_metadata, some), strict=True)


def opened(table: Table, footers: Iterable[Footer]) -> Iterator[tuple[str, pq.ParquetFile]]:
    """Files with their paths, each open until the next one.

    Raises:
        NotInDriver: a file has other columns than it should.
    """
    for path, footer in footers:
        with parquet_file(path, footer, **_INT96) as file:
            if not set(_required(table)) <= set(file.schema_arrow.names):
                raise NotInDriver
            yield path, file


def _required(table: Table) -> Iterator[str]:
    """The columns that a file has to have. Who appends some columns by Spark writes files with these."""
    return (field.name for field in table.columns.fields if not field.nullable)


def typed(table: Table, rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> pa.Table | pa.RecordBatch:
    """Columns with the types of their table, in this order; one that a file may lack and does is NULL.

    Texts are UTF-8 (`pipeline.storage.texts`), but those of `inbox`: ingest says which of these are none.
    """
    schema = arrow_schema(table.columns)
    for name in columns:
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    found = rows.select(list(columns)).cast(pa.schema([schema.field(name) for name in columns]))
    return found if table is INBOX else with_texts(found)


def _step(path: str, footer: pq.FileMetaData, number: int) -> int:
    """Rows of a row group that can be read at once.

    A row is as long as the others, or has the longest texts of all dictionaries. Those are in the row group, which is
    small in most cases; else the dictionaries are looked at, which Arrow reads with the first row.

    Raises:
        NotInDriver: a row may be longer: its texts repeat parts of those before, or a map repeats its entries.
    """
    group = footer.row_group(number)
    columns = [group.column(each) for each in range(footer.num_columns)]
    texts = [each for each in columns if each.physical_type == "BYTE_ARRAY"]
    coded = list(filter(_folded, texts))
    most: int = sum(each.total_uncompressed_size * (each.num_values if _nested(each) else 1) for each in coded)
    if most * min(group.num_rows, MOST_ROWS) > _READ_BYTES:
        if not all(each.has_dictionary_page for each in coded):
            raise NotInDriver
        longest = _longest_of(path, footer, number, coded)
        if any(longest[_top(each)] * each.num_values > _MAP_BYTES for each in coded if _nested(each)):
            raise NotInDriver
        entries = max([-(-each.num_values // group.num_rows) for each in coded if _nested(each)], default=1)
        most = sum(longest.values()) * entries
    row = most + int(group.total_byte_size) // max(1, int(group.num_rows))
    return min(MOST_ROWS, max(1, _READ_BYTES // max(1, row)))


def _longest_of(path: str, footer: pq.FileMetaData, number: int, coded: Sequence[Any]) -> dict[str, int]:
    """Bytes of the longest text in the dictionaries of columns of a row group, by column."""
    with parquet_file(path, footer, read_dictionary=[each.path_in_schema for each in coded]) as file:
        first = next(file.iter_batches(1, [number], sorted(set(map(_top, coded)))), None)
        return {} if first is None else {name: _longest(first.column(name)) for name in first.schema.names}


def size_of(path: str) -> int:
    """Bytes of a file, by a path that `Files.readable` gave."""
    if store_of(path) is None:
        return Path(path).stat().st_size
    system, where = in_store(path)
    return int(system.get_file_info(where).size or 0)


def unfolds_to_more(table: Table, path: str, most: int) -> bool:
    """Whether the texts of a file come to more than so many bytes, each counted for each row that has it.

    A text that many rows have is written once, and is not read more often for this.

    Raises:
        NotInDriver: the file is not what the table says.
    """
    texts = [
        (group, column)
        for group in row_groups(table, [path])
        for column in _columns(group)
        if column.physical_type == "BYTE_ARRAY" and column.num_values
    ]
    if sum(int(each.total_uncompressed_size) * (each.num_values if _folded(each) else 1) for _, each in texts) <= most:
        return False
    total = 0
    for group, column in texts:
        for size in _sizes(group, column):
            total += size
            if total > most:
                return True
    return False


def _columns(group: RowGroup) -> Iterator[Any]:
    metadata = group.file.metadata.row_group(group.number)
    return (metadata.column(number) for number in range(metadata.num_columns))


def _folded(column: Any) -> bool:  # noqa: ANN401 - Arrow's, without a type
    """Whether the texts of a column may be longer than what is written of them."""
    return bool(column.has_dictionary_page or "DELTA_BYTE_ARRAY" in column.encodings)


def _sizes(group: RowGroup, column: Any) -> Iterator[int]:  # noqa: ANN401 - as above
    """Bytes of the texts of a column of a row group, each counted as often as it is there, piece by piece."""
    size, name = int(column.total_uncompressed_size), column.path_in_schema
    if not _folded(column):
        yield size
        return
    coded = [name] if column.has_dictionary_page else []
    step = MOST_ROWS if coded else max(1, _READ_BYTES // size)
    with parquet_file(group.path, group.file.metadata, read_dictionary=coded) as file:
        for batch in file.iter_batches(step, [group.number], [name]):
            yield _total(batch.column(0))


def _total(column: pa.Array) -> int:
    """Bytes of the texts of an array. Of a map Arrow reads the keys, or the values, as a list of structs."""
    if pa.types.is_list(column.type):
        return _total(column.flatten())
    if pa.types.is_struct(column.type):
        return sum(map(_total, column.flatten()))
    if not pa.types.is_dictionary(column.type):
        return int(lengths(column).sum())
    places = column.indices.drop_null().to_numpy(zero_copy_only=False)
    return int(lengths(column.dictionary)[places].sum())


def _top(column: Any) -> str:  # noqa: ANN401 - Arrow's, without a type
    return str(column.path_in_schema).partition(".")[0]


def _nested(column: Any) -> bool:  # noqa: ANN401 - as above
    return "." in column.path_in_schema


def _longest(column: pa.Array) -> int:
    """Bytes of the longest text in the dictionaries of a column."""
    if pa.types.is_map(column.type):
        return _longest(column.keys) + _longest(column.items)
    if pa.types.is_list(column.type):
        return _longest(column.values)
    if pa.types.is_struct(column.type):
        return sum(_longest(column.field(number)) for number in range(column.type.num_fields))
    return int(lengths(column.dictionary).max(initial=0)) if pa.types.is_dictionary(column.type) else 0


def whole(table: Table, paths: Sequence[str], most: int) -> pa.Table:
    """All rows of files of a table, up to so many bytes of them.

    Raises:
        NotInDriver: there are more, or the files are not what the table says.
    """
    try:
        files = list(read_footers(paths))
        groups = (footer.row_group(number) for _, footer in files for number in range(footer.num_row_groups))
        if sum(group.total_byte_size for group in groups) > most:
            raise NotInDriver(SIZE)
        return held(table, (rows for group in chosen_groups(table, files) for rows in group.all()), most)
    except pa.ArrowException as error:
        raise NotInDriver from error


def bounded(table: Table, path: str) -> pa.Table:
    """All rows of a file that anybody may have written, of a table without long texts.

    Equal texts are written once: a file of some kB may unfold to more than anybody can hold.

    Raises:
        FileTooLarge: a text is longer than a name may be, or the rows come to more than `MOST_UNFOLDED` bytes.
    """
    found, size = [arrow_schema(table.columns).empty_table()], 0
    for group in row_groups(table, [path]):
        for rows in _short(group):
            found.append(rows)
            size += rows.nbytes
            if size > MOST_UNFOLDED:
                raise FileTooLarge(path, f"{MOST_UNFOLDED} bytes of rows")
    return pa.concat_tables(found)


def _short(group: RowGroup) -> Iterator[pa.Table]:
    """The rows of a row group, a few at a time, while all texts are short."""
    coded = [each for each in _columns(group) if each.physical_type == "BYTE_ARRAY" and each.has_dictionary_page]
    suspects = [each for each in coded if each.total_uncompressed_size > MAX_NAME_BYTES]
    if sum(each.total_uncompressed_size for each in suspects) > MOST_UNFOLDED:
        raise FileTooLarge(group.path, f"{MOST_UNFOLDED} bytes of texts")
    longest = _longest_of(group.path, group.file.metadata, group.number, suspects) if suspects else {}
    if max(longest.values(), default=0) > MAX_NAME_BYTES:
        raise FileTooLarge(group.path, f"{MAX_NAME_BYTES} bytes of a text")
    try:
        for rows in group.all():
            if any(has_texts(each.type) and lengths(each).max(initial=0) > MAX_NAME_BYTES for each in rows.columns):
                raise FileTooLarge(group.path, f"{MAX_NAME_BYTES} bytes of a text")
            yield rows
    except NotInDriver as error:
        raise FileTooLarge(group.path, "texts that tell how long they are") from error


def held(table: Table, pieces: Iterable[pa.Table], most: int) -> pa.Table:
    """Rows of a table in one piece, up to so many bytes of them.

    Raises:
        NotInDriver: there are more.
    """
    found, size = [arrow_schema(table.columns).empty_table()], 0
    for rows in pieces:
        found.append(rows)
        size += rows.nbytes
        if size > most:
            raise NotInDriver(SIZE)
    return pa.concat_tables(found).combine_chunks()
