"""Delta's own objects for a table's log: what its files tell only at a cost, and its way to add a version.

Like `pipeline.storage.hadoop` it reaches into the JVM. The log store is the one that Delta itself uses on
the file system of the table, so a version is added by one writer only, wherever the table lies. On two file systems
that store looks whether a version is there and then writes it, and what came in between is replaced. On this machine's
own a version is added by a link, which replaces nothing, while no transaction of Delta's in this process adds one. In a
store that speaks S3 it is added by a conditional put, and no transaction of Delta's is used at all (decision 0024).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from deltalake.exceptions import DeltaError

from pipeline.config.jvm import hadoop_settings, java_class, session_of
from pipeline.config.lazyspark import pyspark, raised
from pipeline.config.paths import is_s3
from pipeline.config.routes import SessionNeeded
from pipeline.delta.logs.opening import table_at
from pipeline.delta.logs.snapshot import described, live_files
from pipeline.storage.hadoop import HadoopFiles, session_files
from pipeline.storage.inprocesswatch import notify
from schemas import COMMANDS, CONSUMER_EVENTS, INBOX, SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a file system says that has no links."""
_SHARED = frozenset(table.name for table in (INBOX, SUBSCRIPTIONS, CONSUMER_EVENTS, COMMANDS))
"""Tables to which others commit as well."""
_SETTLED_S = 0.1
"""So long after a commit a process of Spark that had looked before it, and not found it, has renamed its own."""
_EXISTS = "java.nio.file.FileAlreadyExistsException"


@dataclass(frozen=True)
class Head:
    """A table as it is now: its version, and the contents of its `protocol` and `metaData` actions."""

    version: int
    protocol: dict[str, Any]
    metadata: dict[str, Any]


class TableLog:
    """The log of one table."""

    def __init__(self, session: SparkSession | None, path: str) -> None:
        """Use Delta's log of a table's folder. Every call below asks it for what is new.

        Without a session no transaction of Delta's is in this process. What only the JVM can do then raises
        `SessionNeeded`.
        """
        self._session, self._path = session, path
        self._files = session_files(session)
        self._folder = self._files.local(f"{path}/_delta_log")
        self._shared = path.rpartition("/")[2] in _SHARED

    def head(self) -> Head:
        """The newest version."""
        found = described(self._files, self._path)
        if found is not None:
            return Head(*found)
        snapshot = self.snapshot()
        protocol, metadata = (json.loads(each.json()) for each in (snapshot.protocol(), snapshot.metadata()))
        return Head(int(snapshot.version()), protocol["protocol"], metadata["metaData"])

    def files(self) -> tuple[int, list[dict[str, Any]]]:
        """The newest version, and path, size, statistics (JSON), tags and deletion vector of each file.

        One job where the log does not tell it (`live_files`).
        """
        found = live_files(self._files, self._path)
        if found is not None:
            return found
        snapshot = self.snapshot()
        live = pyspark.sql.DataFrame(snapshot.allFiles().toDF(), self._spark)
        rows = live.select("path", "size", "stats", "tags", "deletionVector").collect()
        return int(snapshot.version()), [row.asDict() for row in rows]

    def transaction(self, name: str) -> int | None:
        """The last number that was noted under a name (`txn`), as Delta has it; None: none was."""
        found = self.snapshot().transactions().get(name)
        return int(found.get()) if found.isDefined() else None

    def add(self, version: int, lines: Sequence[str]) -> bool:
        """Add a version with these actions, whole or not at all; False when somebody else has added it.

        Also False when the log was cut up to behind it since the caller looked. Nobody reads what lies there.
        """
        if not self._added(version, "".join(f"{line}\n" for line in lines)):
            return False
        if version and not self._files.has(f"{self._path}/{_entry(version - 1)}"):
            self._files.delete(f"{self._path}/{_entry(version)}")
            return False
        if self._folder is None:
            notify(f"{self._path}/_delta_log")
        return True

    def _added(self, version: int, text: str) -> bool:
        if is_s3(self._path):
            return HadoopFiles(self._spark.sparkContext).create(f"{self._path}/{_entry(version)}", text)
        try:
            return self._stored(version, text) if self._folder is None else self._linked(self._folder, version, text)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._stored(version, text)

    def open(self) -> None:
        """Let Delta look at the table, whose lock each version takes: the first time that takes a moment."""
        if self._folder is not None and self._session is not None:
            self._log.snapshotLock()

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version: by delta-rs, or by a job where only Spark reads the table.

        Returns:
            How many actions it has, most of all a row for each file; 0 where that is not said.
        """
        self._write_checkpoint()
        text = self._files.text_if_there(f"{self._path}/_delta_log/_last_checkpoint")
        return 0 if text is None else int(json.loads(text).get("size", 0))

    def _write_checkpoint(self) -> None:
        readable = self._files.readable(self._path)
        if readable is not None:
            try:
                table = table_at(readable)
                table.create_checkpoint()
            except DeltaError:
                _LOG.warning("%s: Delta writes the checkpoint of its log, delta-rs does not", self._path, exc_info=True)
            else:
                if self._folder is not None:
                    # Hadoop's sum of the file that says which one is the last, if there is one, is that of another.
                    (self._folder / "._last_checkpoint.crc").unlink(missing_ok=True)
                # Maintenance deletes what it stands for.
                names = (f"{table.version():020d}.checkpoint.parquet", "_last_checkpoint", ".")
                self._files.sync(*(f"{self._path}/_delta_log/{name}" for name in names))
                return
        self._log.checkpointAndCleanUpDeltaLog(self.snapshot(), self._class("scala.Option").empty())

    @property
    def _spark(self) -> SparkSession:
        if self._session is None:
            raise SessionNeeded
        return self._session

    @property
    def _log(self) -> Any:  # noqa: ANN401 - a Java object
        """Asked for each time: Delta forgets it when it is not used for long, and then others would get another one."""
        logs = self._class("org.apache.spark.sql.delta.DeltaLog")
        return logs.forTable(session_of(self._spark), self._path)

    def _linked(self, folder: Path, version: int, text: str) -> bool:
        fresh, entry = folder / f".{version:020d}.json.{uuid4()}.tmp", folder / f"{version:020d}.json"
        fresh.write_text(text, encoding="utf-8")
        self._files.sync(str(fresh))
        try:
            with self._no_transaction():
                os.link(fresh, entry)
        except FileExistsError:
            return False
        finally:
            fresh.unlink()
        self._files.sync(str(folder))
        return not self._shared or _stays(entry, text)

    @contextmanager
    def _no_transaction(self) -> Iterator[None]:
        """Meanwhile no transaction of Delta's looks for a version and renames its own into its place."""
        if self._session is None:
            yield
            return
        lock = self._log.snapshotLock()
        lock.lock()
        try:
            yield
        finally:
            lock.unlock()

    def _stored(self, version: int, text: str) -> bool:
        path = self._class("org.apache.hadoop.fs.Path")(f"{self._path}/{_entry(version)}")
        actions = self._class("java.util.ArrayList")()
        for line in text.removesuffix("\n").split("\n"):
            actions.add(line)
        each = self._class("scala.jdk.javaapi.CollectionConverters").asScala(actions.iterator())
        try:
            self._log.store().write(path, each, False, hadoop_settings(self._spark))  # noqa: FBT003 - Delta has no name for "overwrite"
        except raised("Py4JJavaError") as error:
            if error.java_exception.getClass().getName() != _EXISTS:
                raise
            return False
        return True

    def snapshot(self) -> Any:  # noqa: ANN401 - a Java object
        """The newest version, as Delta has it."""
        # Delta asks the thread for its session when it reads a checkpoint. A thread in which no query ran has none.
        sessions = self._class("org.apache.spark.sql.classic.SparkSession")
        if sessions.getActiveSession().isEmpty():
            sessions.setActiveSession(session_of(self._spark))
        nothing = self._class("scala.Option").empty()
        return self._log.update(False, nothing, nothing)  # noqa: FBT003 - not stale

    def _class(self, name: str) -> Any:  # noqa: ANN401 - a Java object
        return java_class(self._spark, name)


def _stays(entry: Path, text: str) -> bool:
    """Whether a version that was added is still there, when a Spark process may have renamed its own over it."""
    time.sleep(_SETTLED_S)
    return entry.read_text(encoding="utf-8") == text


def _entry(version: int) -> str:
    """The file of a version, relative to the table."""
    return f"_delta_log/{version:020d}.json"
