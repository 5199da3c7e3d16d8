"""Reading what settle follows, version by version, by whole arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.config.errors import VersionGone
from pipeline.delta.logs.entries import entry
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.reading.files import read_files
from pipeline.delta.reading.livefiles import LiveFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.hadoop import session_files
from schemas import COMMANDS, CONSUMER_EVENTS, Table

_OPEN = (CONSUMER_EVENTS, COMMANDS)
"""Tables to which anybody may append."""


class Source:
    """A table that settle follows.

    Attributes:
        passed: files of a table to which anybody may append that were too large, and were passed over.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, table: Table, columns: Sequence[str]) -> None:
        """Name the table and the columns that are read, which are small."""
        self._spark, self._files, self._path = spark, session_files(spark), warehouse.path(table)
        self._table, self._columns = table, list(columns)
        self.passed: list[str] = []

    def versions(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The rows that each version added, in the order of the log; versions without any are left out.

        Raises:
            VersionGone: the log does not have one of them any more.
        """
        for version in range(after + 1, upto + 1):
            actions = entry(self._files, self._path, version)
            if actions is None:
                raise VersionGone(self._table.name, version, "_delta_log")
            added = appended(actions)
            if added:
                yield version, self._rows([each["path"] for each in added])

    def since(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The same, and where the log does not reach back so far, first all that the table holds, as of `after`."""
        if after < upto and entry(self._files, self._path, after + 1) is None:
            _, live = LiveFiles(self._spark, self._path, self._table, lambda _: None).look()
            yield upto, self._rows(list(live))
            return
        yield from self.versions(after, upto)

    def _rows(self, paths: Sequence[str]) -> pa.Table:
        too_large = self.passed.append if self._table in _OPEN else None
        return read_files(self._spark, self._files, self._path, self._table, paths, self._columns, too_large)
