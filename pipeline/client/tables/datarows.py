"""The rows of files of `deliveries` in their order, a bounded number at a time; small files are read once for all.

The order of deliveries is that of `ORDER`, whichever files the rows lie in. Files overlap where an outage is made up
for, and maintenance merges rows of many batches into one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.client.tables.rows import COLUMNS, NAMES
from pipeline.config.errors import VersionGone
from pipeline.config.routes import NotInDriver
from pipeline.delta.logs.filestats import known, moment_us
from pipeline.storage.files import Files
from pipeline.storage.merge import Key, Source, in_order, merged
from pipeline.storage.parquet import Footer, RowGroup, chosen_groups, read_footers, typed
from schemas import DELIVERIES

ORDER = ("due_time", "released_at", "batch_id", "sequence")
"""What is due first comes first; of that what was released first, and within a batch its sequence."""
_TIMES = ORDER[:2]
READ = tuple(dict.fromkeys((*NAMES, *COLUMNS, *ORDER)))
"""What consumers read."""
LIGHT = tuple(name for name in READ if name != "payload")
"""The same without what may be large."""
Chosen = Callable[[pa.Table], pa.Table]
"""Chooses rows of a piece."""
_FEW = 64
"""Rows at a time of a file that does not tell how long its rows are."""
_SMALL_BYTES, _KEPT_BYTES, _KEPT = 8 << 20, 64 << 20, 1_024
"""The rows of a file are kept if they are at most so many bytes. All that is kept is at most so many bytes, and at most
so many files; what nobody asked for the longest time goes first.

A consumer that takes a slot reads what is open of it. Most of that is in files that others of its process have just
read.
"""


@dataclass(frozen=True)
class DataFile:
    """A file of `deliveries`, with what the log knows of its rows.

    Attributes:
        path: in the folder of the table.
        low: the least values of columns.
        high: the greatest values of columns.
    """

    path: str
    low: Mapping[str, Any]
    high: Mapping[str, Any]

    def may_hold(self, wanted: Mapping[str, Any]) -> bool:
        """Whether a row may have these values, or one of several, as far as the log knows.

        An end of another type says nothing.
        """
        for name, value in wanted.items():
            if isinstance(value, tuple):
                if not any(self.may_hold({name: each}) for each in value):
                    return False
                continue
            low, high = self.low.get(name), self.high.get(name)
            if isinstance(low, type(value)) and value < low:
                return False
            if isinstance(high, type(value)) and value > high:
                return False
        return True

    def is_for(self, key: tuple[str, str, int]) -> bool:
        """Whether a row may be of a subscription of a topic in one of its lives."""
        return self.may_hold(dict(zip(NAMES, key, strict=True)))

    @property
    def least(self) -> Key:
        """None of its rows comes before it. Times are texts or `datetime`, as the log has them."""
        return _known(moment_us(self.low.get(name)) if name in _TIMES else self.low.get(name) for name in ORDER)


def _known(least: Iterable[Any]) -> Key:
    """The least values of columns as far as all before them are known, too."""
    return tuple(takewhile(lambda each: isinstance(each, int), least))


def data_file(add: Mapping[str, Any]) -> DataFile:
    """A file as a commit adds it, with statistics as text."""
    statistics = known(add.get("stats"))
    return DataFile(add["path"], statistics.get("minValues") or {}, statistics.get("maxValues") or {})


class DataRows:
    """Reads files of a warehouse's `deliveries`; may be used by several threads."""

    def __init__(self, folder: str, files: Files) -> None:
        self._folder, self._files = folder, files
        self._kept, self._bytes = OrderedDict[str, pa.Table](), 0
        self._lock = threading.Lock()

    def of(
        self, files: Sequence[DataFile], version: int, chosen: Chosen, columns: Sequence[str] = READ
    ) -> Iterator[pa.Table]:
        """The rows that are chosen of files, in the order of deliveries, with columns that consumers need.

        Raises:
            VersionGone: a file is gone; `version` is the one that has it.
        """
        return merged([self.source(each, version, chosen, columns) for each in files], ORDER)

    def source(self, file: DataFile, version: int, chosen: Chosen, columns: Sequence[str]) -> Source:
        """The same of one file, to be merged with others."""
        return Source(file.least, partial(self.pieces, file.path, version, chosen, columns))

    def pieces(self, path: str, version: int, chosen: Chosen, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows that are chosen of one file; see `of`."""
        kept = self._known(path)
        if kept is not None:
            # It has all columns, and is merged with files of which only some are read.
            yield chosen(kept.select(list(columns)))
            return
        try:
            for footer in read_footers([self._files.readable(f"{self._folder}/{path}") or path]):
                groups = [
                    Source(_least(footer[1], number), partial(self._group, path, footer, number, chosen, columns))
                    for number in range(footer[1].num_row_groups)
                ]
                yield from merged(groups, ORDER)
        except FileNotFoundError as error:
            raise VersionGone(DELIVERIES.name, version, path) from error
        except (OSError, pa.ArrowException) as error:
            error.add_note(f"{self._folder}/{path}")
            raise

    def _group(
        self, path: str, footer: Footer, number: int, chosen: Chosen, columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        for group in chosen_groups(DELIVERIES, [footer], lambda _: [number]):
            pieces = _pieces(group, columns)
            first = next(pieces, None)
            if first is None:
                continue
            if first.num_rows == group.count:
                rows = in_order(first, ORDER)
                if group.file.num_row_groups == 1 and columns is READ and rows.nbytes <= _SMALL_BYTES:
                    self._keep(path, rows)
                yield chosen(rows)
            elif _is_in_order(group):
                yield from map(chosen, chain((first,), pieces))
            else:
                # As maintenance merged it: what is chosen of a row group is held.
                yield in_order(pa.concat_tables(map(chosen, chain((first,), pieces))), ORDER)

    def _known(self, path: str) -> pa.Table | None:
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
            return self._kept.get(path)

    def _keep(self, path: str, rows: pa.Table) -> None:
        with self._lock:
            if path not in self._kept:
                self._kept[path] = rows
                self._bytes += rows.nbytes
            while self._bytes > _KEPT_BYTES or len(self._kept) > _KEPT:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes


def _least(footer: pq.FileMetaData, number: int) -> Key:
    """The place before which no row of a row group comes, as far as its statistics know it."""
    group = footer.row_group(number)
    statistics = {group.column(each).path_in_schema: group.column(each).statistics for each in range(group.num_columns)}
    return _known(_least_of(statistics.get(name), name) for name in ORDER)


def _least_of(statistics: pq.Statistics | None, name: str) -> int | None:
    if statistics is None or not statistics.has_min_max:
        return None
    return moment_us(statistics.min) if name in _TIMES else statistics.min


def _is_in_order(group: RowGroup) -> bool:
    rows = group.read(ORDER)
    return in_order(rows, ORDER) is rows


def step_of(group: RowGroup) -> int:
    """Rows of a row group that are read at a time."""
    try:
        return group.step
    except NotInDriver:
        return _FEW


def _pieces(group: RowGroup, columns: Sequence[str]) -> Iterator[pa.Table]:
    for batch in group.file.iter_batches(step_of(group), [group.number], list(columns)):
        yield pa.Table.from_batches([typed(DELIVERIES, batch, columns)])
