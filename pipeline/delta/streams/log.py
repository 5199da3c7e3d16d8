"""What is appended to a Delta table, as sources of Spark's streams that look for the next version by its name.

Delta's own source lists the log twice for each batch, and Hadoop asks for the size and the time of each of its files:
a quarter of the JVM's time under a small load with five hundred commits in the log, and more with each further one
(decision 0073). Offsets are Delta's, in its form: these sources go on from what Delta's noted, and it from theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipeline.config.errors import PipelineError, VersionGone
from pipeline.config.jvm import java_class
from pipeline.config.lazyspark import pyspark
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset
from pipeline.delta.logs.entries import appended, between, entry, exists, newest
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.streams.source import INSTANT, SQL, StreamSource, of_list, singleton
from pipeline.storage.hadoop import session_files

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

_DELTA = "org.apache.spark.sql.delta"
_NEEDED = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector", "baseRowId")
"""What is needed of the entry of a file to read it."""
_UNQUOTED = "/@!$&'()*+,;=-._~"
_ABSOLUTE = re.compile("[A-Za-z][A-Za-z0-9+.-]*:/")


class TableFiles:
    """Files of a table, by their entries in its log."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Note how the table is now."""
        self._spark, self._snapshot = spark, TableLog(spark, path).snapshot()
        self._log: Any = self._snapshot.deltaLog()
        self._nothing = java_class(spark, "scala.Option").empty()
        self._action: Any = singleton(spark, f"{_DELTA}.actions.Action").fromJson

    def dataset(self, files: Iterable[Mapping[str, Any]], *, streaming: bool = False) -> JavaObject:
        """Their rows. `path` of an entry is decoded, as `pipeline.delta.logs.entries.between` gives it."""
        entries = of_list(self._spark, [self._action(_entry(each)) for each in files])
        return self._log.createDataFrame(self._snapshot, entries, streaming, self._nothing)

    def frame(self, files: Iterable[Mapping[str, Any]]) -> DataFrame:
        """The columns as PySpark has them."""
        return pyspark.sql.DataFrame(self.dataset(files), self._spark)


def _entry(file: Mapping[str, Any]) -> str:
    """The entry of a file as the log has it, less what a scan does not need."""
    fields = {name: file[name] for name in _NEEDED if file.get(name) is not None}
    safe = _UNQUOTED + (":" if _ABSOLUTE.match(file["path"]) else "")
    return json.dumps({"add": {**fields, "path": quote(file["path"], safe=safe)}})


_FORM = 1
"""The version of Delta's form of an offset."""


class ColumnsChanged(PipelineError):
    """Somebody has changed the columns of a table that a query follows. A query that starts now has the new ones."""

    def __init__(self, table: str, version: int) -> None:
        super().__init__(f"{table} has other columns since version {version}")
        self.table, self.version = table, version


class SourceReplaced(PipelineError):
    """A table that a query follows was made again, or set back: what was read of it says nothing of the new one."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"{table} is another table than was read, or was set back; restore it together with the checkpoint "
            "(docs/operations.md)"
        )
        self.table = table


class PlaceSource(StreamSource):
    """Places in the log of a table, for a query whose function reads the files between two of them itself.

    Its batches have no rows: what Spark would plan for them is not needed. Versions that take rows out are passed over:
    deletes (retention) are not news.
    """

    def __init__(
        self, spark: SparkSession, path: str, begin: Offset, max_files: int, max_bytes: int | None = None
    ) -> None:
        """Note how the table is now.

        Args:
            spark: the session.
            path: the folder of the table.
            begin: where a query begins that has no checkpoint yet.
            max_files: of a batch.
            max_bytes: of the files of a batch; the file that passes it is still taken.
        """
        # The column of a clock, so that the two make one stream.
        super().__init__(spark, java_class(spark, f"{SQL}.types.StructType").fromDDL(INSTANT))
        self.files, self.path, self._begin = session_files(spark), path, begin
        self._max_files, self._max_bytes = max_files, max_bytes
        head = TableLog(spark, path).head()
        self._id, self._shape = head.metadata["id"], _shape(head.metadata)
        self._known, self._sure, self._protocol = head.version, -1, head.protocol

    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject | None:  # noqa: N802, ARG002
        """Behind the newest version, or behind the last file that a batch may take.

        Raises:
            ColumnsChanged: somebody has changed them.
            SourceReplaced: the query has read another table.
            VersionGone: the log was cut behind the place.
            BrokenVersion: an entry of the log was cut short.
        """
        begin = self._begin if start is None else self._place(start)
        end = self._end(begin)
        if end == (begin[0], max(begin[1], EVERYTHING_BEFORE)):
            return self.kept(start)
        fields = {"sourceVersion": _FORM, "reservoirId": self._id, "reservoirVersion": end[0], "index": end[1]}
        return self.deserializeOffset(json.dumps({**fields, "isStartingVersion": False}, separators=(",", ":")))

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802, ARG002
        """No rows."""
        return self.of_rows([])

    def between(self, start: JavaObject, end: JavaObject) -> list[dict[str, Any]]:
        """The files of a batch.

        Raises:
            VersionGone: the log does not have all of them any more.
        """
        begin = self._begin if start.isEmpty() else self._place(start.get())
        found = between(self.files, self.path, begin, self._place(end))
        if found is None:
            raise self._gone(begin[0])
        return found

    def toString(self) -> str:  # noqa: N802
        """What plans and the progress of queries call it, as they call Delta's."""
        return f"DeltaSource[{self.path}]"

    def _end(self, begin: Offset) -> Offset:
        (version, index), files, size = begin, self._max_files, self._max_bytes
        while (actions := entry(self.files, self.path, version)) is not None:
            if version > self._known:
                self._check(actions, version)
            for number, added in enumerate(appended(actions)):
                if number <= index:
                    continue
                if files == 0 or (size is not None and size <= 0):
                    return version, number - 1
                files -= 1
                size = None if size is None else size - (added.get("size") or 0)
            version, index = version + 1, EVERYTHING_BEFORE
        self._check_cut(version)
        return version, max(index, EVERYTHING_BEFORE)

    def _check(self, actions: Iterable[Mapping[str, Any]], version: int) -> None:
        """Whether files of a version that came since can be read as those before."""
        for each in actions:
            metadata = each.get("metaData")
            # RESTORE and CREATE OR REPLACE say once more what the table is.
            other = each.get("protocol", self._protocol) != self._protocol
            if other or (metadata is not None and _shape(metadata) != self._shape):
                raise ColumnsChanged(self.path, version)

    def _check_cut(self, version: int) -> None:
        """Where nothing comes: is that because others have cut the log? What they cut later was there to be seen."""
        if version == self._sure:
            return
        last = newest(self.files, self.path, max(0, version - 1))
        if last < version - 1:
            raise SourceReplaced(self.path)
        # It may have come since it was looked for.
        if last > version and not exists(self.files, self.path, version):
            raise self._gone(version)
        self._sure = version if last < version else -1

    def _gone(self, version: int) -> VersionGone:
        return VersionGone(self.path, version, "_delta_log")

    def _place(self, offset: JavaObject) -> Offset:
        fields = json.loads(offset.json())
        if fields["reservoirId"] != self._id:
            raise SourceReplaced(self.path)
        # Earlier releases passed over what lies before the begin of a checkpoint that a rebuild had made.
        return max(self._begin, (int(fields["reservoirVersion"]), int(fields["index"])))


def _shape(metadata: Mapping[str, Any]) -> object:
    """What must not change while files are read: columns, those of partitions, and which table it is."""
    return json.loads(metadata["schemaString"]), metadata.get("partitionColumns") or [], metadata["id"]


class LogSource(PlaceSource):
    """The rows that are appended to a table from a place on; never a snapshot.

    A snapshot would order rows by file and repeat, on a new checkpoint, what was taken before.
    """

    def __init__(
        self, spark: SparkSession, path: str, begin: Offset, max_files: int, max_bytes: int | None = None
    ) -> None:
        """As `PlaceSource`, with the columns of the table."""
        super().__init__(spark, path, begin, max_files, max_bytes)
        # Behind the version that is known: what changes in between is seen then, and the next start has it.
        self._table = TableFiles(spark, path)
        self.answer_with(self._table.dataset([], streaming=True).schema())

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802
        """The rows of the files between two places."""
        return self.kept(self._table.dataset(self.between(start, end), streaming=True))
