"""The tail of a table's log: version after version, each asked for by its name."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.errors import VersionGone
from pipeline.config.routes import FileTooLarge
from pipeline.delta.logs.entries import entry, exists, newest, oldest
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from pipeline.storage.parquet import bounded, typed
from schemas import Table

_LOG = logging.getLogger(__name__)
Actions = list[dict[str, Any]]


class Tail:
    """A place in the log of a table.

    Attributes:
        next: the version that comes next.
    """

    def __init__(self, files: Files, folder: str, following: int = 0) -> None:
        """Stand before a version."""
        self._files, self._folder, self.next = files, folder, following

    @property
    def last(self) -> int:
        """The version before that."""
        return self.next - 1

    def upcoming(self) -> Actions | None:
        """The actions of the next version; None when it is not there yet.

        Raises:
            VersionGone: the log begins behind it. An entry that is there all the same is somebody's who was too late.
            BrokenVersion: the version is empty or cut short.
        """
        if not exists(self._files, self._folder, max(0, self.last)) and oldest(self._files, self._folder) > self.next:
            raise VersionGone(self._folder.rpartition("/")[2], self.next, "_delta_log")
        return entry(self._files, self._folder, self.next)


class Follower(Tail, ABC):
    """Takes in what the log says; all consumers of a process share it."""

    def read(self) -> bool:
        """Take in what is new; whether anything is. Where versions are gone, all begins anew behind the newest one."""
        before = self.next
        try:
            actions = self.upcoming()
            while actions is not None:
                self._take(self.next, actions)
                # Not before: what a store does not give now is asked for again by the next call.
                self.next += 1
                actions = entry(self._files, self._folder, self.next)
        except VersionGone:
            self._begin_anew()
        return self.next != before

    @abstractmethod
    def _take(self, version: int, actions: Actions) -> None:
        """Take in a version; what was taken in of it before counts once.

        Raises:
            VersionGone: a file of it is gone.
        """

    def _rows(self, table: Table, path: str, version: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a file that a version added.

        Whoever appends rows on Spark may leave columns out, and then they are not in the file.

        Raises:
            VersionGone: it is gone.
        """
        try:
            with self._files.open(f"{self._folder}/{path}") as file:
                return typed(table, pq.ParquetFile(file).read(list(columns)), columns)
        except FileNotFoundError as error:
            raise VersionGone(table.name, version, path) from error

    def _small_rows(self, table: Table, path: str, version: int, columns: Sequence[str]) -> pa.Table:
        """The same of a file that anybody may have written; one that is too large has none, for all who read it.

        Raises:
            VersionGone: it is gone.
        """
        where = self._files.readable(f"{self._folder}/{path}") or path
        try:
            return bounded(table, where).select(list(columns))
        except FileTooLarge as error:
            _LOG.warning("%s: a file is passed over: %s", table.name, error)
            return arrow_schema(table.columns).empty_table().select(list(columns))
        except FileNotFoundError as error:
            raise VersionGone(table.name, version, path) from error

    def _begin_anew(self) -> None:
        """Stand behind the newest version."""
        self.next = newest(self._files, self._folder) + 1
