"""The rows of files of `deliveries`, a bounded number at a time; small files are read once for all consumers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

import pyarrow as pa

from pipeline.client.consuming.rows import COLUMNS, NAMES
from pipeline.config.errors import VersionGone
from pipeline.config.routes import NotInDriver
from pipeline.storage.files import Files
from pipeline.storage.parquet import MOST_ROWS, RowGroup, row_groups, typed
from schemas import DELIVERIES

_READ = tuple(dict.fromkeys((*NAMES, *COLUMNS)))
_FEW = 64
"""Rows at a time of a file that does not tell how long its rows are."""
_SMALL_BYTES, _KEPT_BYTES, _KEPT = 8 << 20, 64 << 20, 1_024
"""The rows of a file are kept if they are at most so many bytes. All that is kept is at most so many bytes, and at most
so many files; what nobody asked for the longest time goes first.

A consumer that takes a slot reads what is open of it. Most of that is in files that others of its process have just
read.
"""


class DataRows:
    """Reads files of a warehouse's `deliveries`; may be used by several threads."""

    def __init__(self, folder: str, files: Files) -> None:
        """Nothing is kept yet."""
        self._folder, self._files = folder, files
        self._kept, self._bytes = OrderedDict[str, pa.Table](), 0
        self._lock = threading.Lock()

    def of(self, path: str, version: int) -> Iterator[pa.Table]:
        """The rows of a file, in their order, with the columns that consumers need.

        Raises:
            VersionGone: the file is gone; `version` is the one that has it.
        """
        kept = self._known(path)
        if kept is not None:
            yield kept
            return
        where = self._files.readable(f"{self._folder}/{path}")
        try:
            for group in row_groups(DELIVERIES, [where or path]):
                whole = group.file.num_row_groups == 1 and group.count <= MOST_ROWS
                for rows in _pieces(group):
                    if whole and rows.num_rows == group.count and rows.nbytes <= _SMALL_BYTES:
                        self._keep(path, rows)
                    yield rows
        except FileNotFoundError as error:
            raise VersionGone(DELIVERIES.name, version, path) from error

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


def _pieces(group: RowGroup) -> Iterator[pa.Table]:
    try:
        step = group.step
    except NotInDriver:
        step = _FEW
    for batch in group.file.iter_batches(step, [group.number], list(_READ)):
        yield pa.Table.from_batches([typed(DELIVERIES, batch, _READ)])
