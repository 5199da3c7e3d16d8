"""Deliveries from before the beginning of the log: the rows of a table as it was, in the order of delivery.

The log says in which order rows became visible. Where it was cut, the rows themselves say it, as far as they know:
first what was due first, of that what was released first, and within a batch its sequence. Row groups are merged by
that: one is read when its first row may come next, and given back after its last one. So memory is bounded by how many
row groups have something due at the same time, and not by the table.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config.errors import VersionGone
from pipeline.storage.files import Files
from pipeline.storage.parquet import typed
from schemas import DELIVERIES

_ORDER = ("due_time", "released_at", "batch_id", "sequence")
_LONG, _TIME = pa.int64(), pa.timestamp("us", "UTC")
_BEFORE_ALL = -(1 << 63)
_SLICE = 1_024
"""Rows of a row group that are taken apart at a time."""
Key = tuple[int, ...]


@dataclass(frozen=True, order=True)
class _Group:
    """A row group, sorted by what none of its rows comes before."""

    least: Key
    path: str
    number: int


@dataclass(frozen=True)
class History:
    """The rows of `deliveries` as it was at a version, until which they are all that is left of its log.

    Attributes:
        folder: of the table.
        version: the version.
        paths: the files that it consists of.
    """

    folder: str
    version: int
    paths: Sequence[str]

    def rows(self, wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The rows with these values of columns, in order.

        Raises:
            VersionGone: a file is gone.
        """
        waiting = sorted((group for path in self.paths for group in self._groups(path)), reverse=True)
        held: list[tuple[Key, int, dict[str, Any], Iterator[tuple[Key, dict[str, Any]]]]] = []
        numbers = count()

        def hold(rows: Iterator[tuple[Key, dict[str, Any]]]) -> None:
            for key, row in rows:
                heapq.heappush(held, (key, next(numbers), row, rows))
                return

        while waiting or held:
            while waiting and (not held or waiting[-1].least <= held[0][0]):
                hold(self._sorted(waiting.pop(), wanted))
            if held:
                _, _, row, rows = heapq.heappop(held)
                yield row
                hold(rows)

    def _groups(self, path: str) -> Iterator[_Group]:
        with self._opened(path) as file:
            told = file.metadata
            places = {told.schema.column(number).path: number for number in range(told.num_columns)}
            micros = all(file.schema_arrow.field(name).type == _TIME for name in _ORDER[:2])
            for number in range(told.num_row_groups):
                ends = [told.row_group(number).column(places[name]).statistics for name in _ORDER]
                known = micros and all(each is not None and each.has_min_max for each in ends)
                yield _Group(tuple(each.min_raw for each in ends) if known else (_BEFORE_ALL,), path, number)

    def _sorted(self, group: _Group, wanted: Mapping[str, str]) -> Iterator[tuple[Key, dict[str, Any]]]:
        """The rows of a row group, each after its place in the order."""
        with self._opened(group.path) as file:
            names = DELIVERIES.columns.names
            rows = typed(DELIVERIES, file.read_row_group(group.number, columns=names), names)
        for column, value in wanted.items():
            rows = rows.filter(pc.equal(rows.column(column), value))
        keys = pa.table({name: _longs(rows.column(name)) for name in _ORDER})
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in _ORDER])
        for start in range(0, len(order), _SLICE):
            chosen = order.slice(start, _SLICE)
            places = zip(*keys.take(chosen).to_pydict().values(), strict=True)
            yield from zip(places, rows.take(chosen).to_pylist(), strict=True)

    def _opened(self, path: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(Files().open(f"{self.folder}/{path}"))
        except FileNotFoundError as error:
            raise VersionGone(DELIVERIES.name, self.version, path) from error


def _longs(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(_TIME).cast(_LONG) if pa.types.is_timestamp(column.type) else column.cast(_LONG)
