"""The files of a table, kept in the driver.

Delta tells them by a job or two for every new version. Here all are asked for once, and then each version is read once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

from pyspark.sql import SparkSession

from pipeline.delta.logs import entries
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.logs.restored import refuse_restored
from pipeline.delta.logs.snapshot import follow
from pipeline.delta.writing.appender import check_features
from pipeline.storage.hadoop import session_files
from schemas import Table

T = TypeVar("T")


class LiveFiles(Generic[T]):
    """The files of which a table consists, by their paths relative to it, each with what is kept of it."""

    def __init__(
        self, session: SparkSession | None, path: str, table: Table, kept: Callable[[Mapping[str, Any]], T]
    ) -> None:
        """Nothing is read yet.

        Args:
            session: for what this process cannot reach; None: it reaches all.
            path: the folder of the table.
            table: its contract.
            kept: what to keep of a file, from its entry in the log (`path`, `size`, `stats`, `tags`).
        """
        self._session, self._path, self._table, self._kept = session, path, table, kept
        self._files = session_files(session)
        self._log: TableLog | None = None
        self._version = -1
        self._held: dict[str, T] = {}

    def look(self) -> tuple[int, Mapping[str, T]]:
        """The newest version and its files; all of them by one job, the first time and after a long pause.

        Raises:
            UnknownTableFeature: the table asks something of its readers that we do not know.
            TableRestored: somebody has restored a table of the stages.
        """
        if self._log is None:
            self._log = TableLog(self._session, self._path)
        if not self._reaches_back():
            self._read(self._log)
        try:
            self._follow(self._log)
        except Exception:
            # Maintenance cuts logs; it may have done so since we looked.
            if self._reaches_back():
                raise
            self._read(self._log)
            self._follow(self._log)
        return self._version, self._held

    def _reaches_back(self) -> bool:
        return self._version >= 0 and entries.reaches_back(self._files, self._path, self._version)

    def _read(self, log: TableLog) -> None:
        check_features(self._table.name, log.head())
        self._version, live = log.files()
        self._held = {unquote(each["path"]): self._kept(each) for each in live}

    def _follow(self, log: TableLog) -> None:
        newest = entries.newest(self._files, self._path, self._version)
        behind = range(self._version + 1, newest + 1)
        versions = [(version, entries.actions(self._files, self._path, version)) for version in behind]
        refuse_restored(self._files, self._path, self._table, versions)
        for version, actions in versions:
            if entries.changes_table(actions):
                check_features(self._table.name, log.head())
            follow(self._held, actions, self._kept)
            self._version = version
