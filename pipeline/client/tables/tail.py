"""The tail of a table's log: version after version, each asked for by its name; and that of `deliveries`."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.client.tables.datarows import DataFile, DataRows, data_file
from pipeline.config.errors import VersionGone
from pipeline.config.routes import FileTooLarge
from pipeline.delta.deltars import path_of
from pipeline.delta.logs.entries import appended, commits, entry, exists, newest, note_of, oldest
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.files import Files
from pipeline.storage.parquet import bounded, typed
from schemas import DELIVERIES, Table

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
    """Takes in what the log of a table says; all consumers of a process share it."""

    def __init__(self, root: str, files: Files, table: Table) -> None:
        """Stand before its first version."""
        super().__init__(files, path_of(root, table))
        self._root, self._table = root, table

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

    def _rows(self, path: str, version: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a file that a version added.

        Whoever appends rows on Spark may leave columns out, and then they are not in the file.

        Raises:
            VersionGone: it is gone.
        """
        try:
            with self._files.open(f"{self._folder}/{path}") as file:
                return typed(self._table, pq.ParquetFile(file).read(list(columns)), columns)
        except FileNotFoundError as error:
            raise VersionGone(self._table.name, version, path) from error

    def _small_rows(self, path: str, version: int, columns: Sequence[str]) -> pa.Table:
        """The same of a file that anybody may have written; one that is too large has none, for all who read it.

        Raises:
            VersionGone: it is gone.
        """
        where = self._files.readable(f"{self._folder}/{path}") or path
        try:
            return bounded(self._table, where).select(list(columns))
        except FileTooLarge as error:
            _LOG.warning("%s: a file is passed over: %s", self._table.name, error)
            return self._no_rows(columns)
        except FileNotFoundError as error:
            raise VersionGone(self._table.name, version, path) from error

    def _no_rows(self, columns: Sequence[str]) -> pa.Table:
        """None of a file. Made when it is needed, since pyarrow loads pandas for it, which a client does not pay."""
        return arrow_schema(self._table.columns).empty_table().select(list(columns))

    def _begin_anew(self) -> None:
        """Stand behind the newest version."""
        self.next = newest(self._files, self._folder) + 1


_MOST_VERSIONS = 10_000
"""Kept for who is behind; who is further behind reads the table, since an application may stand still for days."""


class DeliveryLog(Follower):
    """Versions as they come; those that nobody needs any more are forgotten.

    Attributes:
        data: reads the files.
        source: the version of `redelivery` up to which the newest version shows what was released; -1: nothing.
    """

    def __init__(self, root: str, files: Files) -> None:
        """Stand behind the newest version."""
        super().__init__(root, files, DELIVERIES)
        self.data = DataRows(self._folder, files)
        self._entries: dict[int, list[DataFile]] = {}
        self.source = -1
        self._begin_anew()

    def files(self, version: int) -> list[DataFile]:
        """The files that a version added, in no order.

        Raises:
            VersionGone: it is not held any more. What it added is in the table.
        """
        found = self._entries.get(version)
        if found is None:
            raise VersionGone(DELIVERIES.name, version, "_delta_log")
        return found

    def forget(self, before: int) -> None:
        """Versions before one are not needed any more, and too many are not kept for anybody."""
        before = max(before, self.next - _MOST_VERSIONS)
        for version in [each for each in self._entries if each < before]:
            del self._entries[version]

    def table(self, version: int) -> list[DataFile]:
        """The files of the table at a version, in no order.

        Raises:
            VersionGone: nobody can say what the table was then.
        """
        return files_at(self._folder, version)

    def _take(self, version: int, actions: Actions) -> None:
        source = _source(actions)
        self.source = self.source if source is None else source
        self._entries[version] = [data_file(each) for each in appended(actions)]

    def _begin_anew(self) -> None:
        super()._begin_anew()
        noted = (_source(actions) for actions in commits(self._files, self._folder, self.last))
        self.source, self._entries = next((each for each in noted if each is not None), -1), {}


def files_at(folder: str, version: int) -> list[DataFile]:
    """The files of the table in a folder at a version, in no order.

    Raises:
        VersionGone: nobody can say what the table was then.
    """
    try:
        actions = DeltaTable(folder, version=version).get_add_actions(flatten=False)
    except DeltaError as error:
        raise VersionGone(DELIVERIES.name, version, "its checkpoint") from error
    # Not `pa.table`: it loads pandas.
    files = pa.RecordBatchReader.from_stream(actions).read_all().to_pylist()
    return [DataFile(unquote(each["path"]), each.get("min") or {}, each.get("max") or {}) for each in files]


def _source(actions: Actions) -> int | None:
    """Up to which version of `redelivery` a commit of dispatch shows what was released; None: it does not say."""
    commit = note_of(actions)
    end = None if commit is None else commit.span[1]
    if end is None:
        return None
    # A stream ends before a version when it took no file of it.
    version, index = end
    return version if index >= 0 else version - 1
