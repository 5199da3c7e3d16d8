"""Rows of files in two parts: small columns, which are held, and texts, which may stay in their files.

A row group may hold far more than this process can. What orders, numbers and refuses rows is small; the texts travel
with a row and are looked at by nobody. Where they are too large to be held they are read once more when rows are
written, a piece at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config.routes import SIZE, NotInDriver
from pipeline.storage.arrays import IntArray, arrow_schema, sizes
from pipeline.storage.parquet import RowGroup, parquet_file
from pipeline.storage.texts import MAX_NAME_BYTES, PAYLOAD_BYTES, WRONG_TEXT, cut, wrong_texts
from schemas import INBOX, Table

TEXTS = ("message_key", "properties", "producer_name", "payload")
"""The columns of a message that may be large."""
_PIECE_BYTES = 128 << 20
"""Of the texts that are written to one file."""


@dataclass(frozen=True)
class Place:
    """Some rows of a row group, ascending, and how many of it can be read at once."""

    path: str
    footer: pq.FileMetaData
    group: int
    step: int
    rows: IntArray

    def read(self, table: Table, chosen: IntArray, columns: Sequence[str] = TEXTS) -> Iterator[pa.Table]:
        """The texts of some of them, ascending."""
        with parquet_file(self.path, self.footer) as file:
            yield from RowGroup(table, self.path, file, self.group, self.step).take(columns, self.rows[chosen])


@dataclass(frozen=True)
class Texts:
    """The texts of rows, which are numbered from 0.

    Attributes:
        table: whose rows they are.
        sizes: bytes of the texts of each row, about.
        held: the texts; None when they are too large for that.
        places: where they are, in the order of the numbers.
    """

    table: Table
    sizes: IntArray
    held: pa.Table | None
    places: tuple[Place, ...] = ()

    def take(self, rows: IntArray) -> pa.Table:
        """The texts of some rows, in this order; a row may be named more than once."""
        if self.held is not None:
            return self.held.take(pa.array(rows))
        wanted, back = np.unique(rows, return_inverse=True)
        found = [_schema(self.table).empty_table(), *self._read(wanted, TEXTS)]
        return pa.concat_tables(found).take(pa.array(back))

    def values(self, rows: IntArray, name: str) -> pa.ChunkedArray:
        """For some rows, ascending, the text that their properties have under a name, as bytes; NULL: there is none."""
        return pa.chunked_array([first_items(each, name) for each in self._chunks(rows, "properties")], pa.binary())

    def keys(self, rows: IntArray) -> pa.ChunkedArray:
        """The keys of some rows, ascending, as bytes; NULL: there is none."""
        return pa.chunked_array([each.cast(pa.binary()) for each in self._chunks(rows, "message_key")], pa.binary())

    def _chunks(self, rows: IntArray, column: str) -> Iterator[pa.Array]:
        """A column of some rows, ascending, in pieces."""
        held = None if self.held is None else self.held.select([column])
        whole = held is not None and len(rows) == held.num_rows
        pieces = self._read(rows, [column]) if held is None else [held if whole else held.take(pa.array(rows))]
        return (chunk for piece in pieces for chunk in piece.column(column).chunks)

    def _read(self, wanted: IntArray, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of some rows, ascending, from their files."""
        starts = np.cumsum([0, *(len(place.rows) for place in self.places)])
        for place, first, past in zip(self.places, starts, starts[1:], strict=False):
            low, high = np.searchsorted(wanted, (first, past))
            if high > low:
                yield from place.read(self.table, wanted[low:high] - first, columns)


@dataclass(frozen=True)
class Gathered:
    """Rows: small columns and `PAYLOAD_BYTES`, and the texts that go with them."""

    rows: pa.Table
    texts: Texts

    @classmethod
    def of(cls, table: Table, rows: pa.Table) -> "Gathered":
        """Whole rows that are held already."""
        held = rows.select(TEXTS)
        return cls(_small(table, rows), Texts(table, sizes(held), held))

    @classmethod
    def read(
        cls,
        table: Table,
        wanted: Iterable[tuple[RowGroup, IntArray | None]],
        most: int,
        fits: Callable[[str, int], None] | None = None,
    ) -> "Gathered":
        """Rows of row groups, ascending in each, or all of them: small columns up to so many bytes, texts if they fit.

        Args:
            table: whose rows they are.
            wanted: row groups, and the numbers of their rows.
            most: bytes of what is held.
            fits: is told how many bytes the texts of a file came to so far, by its path; what it raises is raised.

        Raises:
            NotInDriver: the small columns are larger, or the files are not what the table says.
        """
        gathering = _Gathering(table, most, fits)
        try:
            for group, rows in wanted:
                gathering.add(group, np.arange(group.count) if rows is None else rows)
        except pa.ArrowException as error:
            raise NotInDriver from error
        return gathering.done()


class _Gathering:
    """What was read so far."""

    def __init__(self, table: Table, most: int, fits: Callable[[str, int], None] | None) -> None:
        self._table, self._most, self._fits = table, most, fits
        self._of_file: tuple[str, int] = ("", 0)
        self._names = [name for name in table.columns.names if name not in TEXTS]
        empty = arrow_schema(table.columns).empty_table()
        self._small, self._held = [_small(table, empty)], [empty.select(TEXTS)]
        self._sizes, self._places = [np.empty(0, np.int64)], list[Place]()
        self._small_bytes, self._bytes = 0, 0

    def add(self, group: RowGroup, rows: IntArray) -> None:
        self._places.append(Place(group.path, group.file.metadata, group.number, group.step, rows))
        for each in group.take((*self._names, *TEXTS), rows):
            small, texts = _small(self._table, each), each.select(TEXTS)
            self._small.append(small)
            self._sizes.append(sizes(texts))
            self._small_bytes += small.nbytes
            self._bytes += texts.nbytes
            if self._fits is not None:
                path, before = self._of_file
                self._of_file = group.path, int(self._sizes[-1].sum()) + (before if path == group.path else 0)
                self._fits(*self._of_file)
            if self._small_bytes > self._most:
                raise NotInDriver(SIZE)
            if self._bytes <= self._most:
                self._held.append(texts)
            elif self._held:
                self._held.clear()
                pa.default_memory_pool().release_unused()

    def done(self) -> Gathered:
        held = pa.concat_tables(self._held).combine_chunks() if self._held else None
        places = () if held is not None else tuple(self._places)
        texts = Texts(self._table, np.concatenate(self._sizes), held, places)
        return Gathered(pa.concat_tables(self._small).combine_chunks(), texts)


def first_items(maps: pa.MapArray, name: str) -> pa.Array:
    """What each map has first under a name, as bytes. Arrow's own look-up takes many times as long."""
    offsets = maps.offsets.to_numpy()
    hits = pc.indices_nonzero(pc.equal(maps.keys, name)).to_numpy().astype(np.int64)
    begin, end = np.searchsorted(hits, offsets[[0, -1]])
    hits = hits[begin:end]
    if not len(hits):
        return pa.nulls(len(maps), pa.binary())
    sizes = np.diff(offsets)
    if (sizes == sizes[0]).all():
        rows = (hits - offsets[0]) // sizes[0]
    else:
        # A search for each hit would take three times as long.
        rows = np.repeat(np.arange(len(maps)), sizes)[hits - offsets[0]]
    first = np.diff(rows, prepend=-1) != 0
    items = np.full(len(maps), -1)
    items[rows[first]] = hits[first]
    if maps.null_count:
        items[~maps.is_valid().to_numpy(zero_copy_only=False)] = -1
    return maps.items.cast(pa.binary()).take(pa.array(items, mask=items < 0))


def cuts(texts: IntArray, most_rows: int) -> Iterator[tuple[int, int]]:
    """Rows in pieces that shall be files, by the bytes of their texts: first row, and the one behind the last."""
    ends, first = np.cumsum(texts), 0
    while first < len(texts):
        full = ends[first] - texts[first] + _PIECE_BYTES
        last = min(first + most_rows, int(np.searchsorted(ends, full, side="right")))
        last = max(first + 1, last)
        yield first, last
        first = last


def _small(table: Table, rows: pa.Table) -> pa.Table:
    length = pc.binary_length(rows.column("payload")).cast(pa.int64())
    small = rows.drop_columns(list(TEXTS)).append_column(PAYLOAD_BYTES, length)
    if table is not INBOX:
        return small
    # One that is too long shall not be held once for each row: it may be written once in the file.
    topic = cut(rows.column("topic"), MAX_NAME_BYTES + 1)
    return small.set_column(0, "topic", topic).append_column(WRONG_TEXT, wrong_texts(rows))


def _schema(table: Table) -> pa.Schema:
    schema = arrow_schema(table.columns)
    return pa.schema([schema.field(name) for name in TEXTS])
