"""What is appended to a Delta table, as a source of Spark's streams that looks for the next version by its name.

Delta's own source lists the log twice for each batch, and Hadoop asks for the size and the time of each of its files:
a quarter of the JVM's time under a small load with five hundred commits in the log, and more with each further one
(decision 0073). Offsets are Delta's, in its form: each of the two sources goes on from what the other one noted.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.config.errors import ColumnsChanged, SourceReplaced, VersionGone
from pipeline.config.jvm import java_class
from pipeline.delta.logs.entries import between, entry, newest
from pipeline.delta.logs.logfiles import appended
from pipeline.delta.offsets import EVERYTHING_BEFORE, Offset
from pipeline.delta.streamsource import StreamSource, of_list, singleton
from pipeline.storage.hadoop import session_files

_DELTA = "org.apache.spark.sql.delta"
_FORM = 1
"""The version of Delta's form of an offset."""
_NEEDED = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector", "baseRowId")
"""What is needed of a file's entry in the log to read it."""
_UNQUOTED = "/:@!$&'()*+,;=-._~"


class LogSource(StreamSource):
    """The rows appended to a table from a place on; never a snapshot.

    A snapshot would order rows by file and repeat, on a new checkpoint, what was taken before. A version that takes
    rows out is passed over: deletes (retention) are not news.
    """

    def __init__(
        self, spark: SparkSession, path: str, begin: Offset, max_files: int, max_bytes: int | None = None
    ) -> None:
        """Look at the columns of the table, as they are now.

        Args:
            spark: the session.
            path: the folder of the table.
            begin: where a query begins that has no checkpoint yet.
            max_files: of a batch.
            max_bytes: of the files of a batch; what passes it is still taken.
        """
        self._files, self._path, self._begin = session_files(spark), path, begin
        self._max_files, self._max_bytes = max_files, max_bytes
        session = spark._jsparkSession  # noqa: SLF001 - PySpark has no public door to its JVM
        log = java_class(spark, f"{_DELTA}.DeltaLog").forTable(session, path)
        nothing = java_class(spark, "scala.Option").empty()
        snapshot = log.update(False, nothing, nothing)  # noqa: FBT003 - Java has no names
        table = snapshot.metadata()
        self._id, self._told = table.id(), json.loads(table.schemaString())
        self._known, self._sure = int(snapshot.version()), -1
        self._action = singleton(spark, f"{_DELTA}.actions.Action").fromJson
        streaming = True
        self._of_files: Any = lambda files: log.createDataFrame(snapshot, of_list(spark, files), streaming, nothing)
        super().__init__(spark, self._of_files([]).schema())

    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject | None:  # noqa: N802, ARG002
        """Behind the newest version, or behind the last file that a batch may take.

        Raises:
            ColumnsChanged: somebody has changed them.
            VersionGone: the log was cut behind the place.
            BrokenVersion: an entry of the log was cut short.
        """
        begin = self._begin if start is None else self._place(start)
        end = self._end(begin)
        if end == (begin[0], max(begin[1], EVERYTHING_BEFORE)):
            return start
        told = {"sourceVersion": _FORM, "reservoirId": self._id, "reservoirVersion": end[0], "index": end[1]}
        return self.deserializeOffset(json.dumps({**told, "isStartingVersion": False}, separators=(",", ":")))

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802
        """The files of a batch.

        Raises:
            VersionGone: the log does not have all of them any more.
        """
        begin = self._begin if start.isEmpty() else self._place(start.get())
        found = between(self._files, self._path, begin, self._place(end))
        if found is None:
            raise self._gone(begin[0])
        return self._of_files([self._action(_entry(each)) for each in found])

    def toString(self) -> str:  # noqa: N802
        """What plans and the progress of queries call it, as they call Delta's."""
        return f"DeltaSource[{self._path}]"

    def _end(self, begin: Offset) -> Offset:
        (version, index), files, size = begin, self._max_files, self._max_bytes
        while (actions := entry(self._files, self._path, version)) is not None:
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
            told = each.get("metaData")
            if "protocol" in each or (told is not None and json.loads(told["schemaString"]) != self._told):
                raise ColumnsChanged(self._path, version)

    def _check_cut(self, version: int) -> None:
        """Where nothing comes: is that because others have cut the log? What they cut later was there to be seen."""
        if version == self._sure:
            return
        if newest(self._files, self._path, max(0, version - 1)) > version:
            raise self._gone(version)
        self._sure = version

    def _gone(self, version: int) -> VersionGone:
        return VersionGone(self._path, version, "_delta_log")

    def _place(self, offset: JavaObject) -> Offset:
        told = json.loads(offset.json())
        if told["reservoirId"] != self._id:
            raise SourceReplaced(self._path)
        return int(told["reservoirVersion"]), int(told["index"])


def _entry(file: Mapping[str, Any]) -> str:
    """The entry of a file as the log has it, less what a scan does not need."""
    told = {name: file[name] for name in _NEEDED if file.get(name) is not None}
    return json.dumps({"add": {**told, "path": quote(file["path"], safe=_UNQUOTED)}})
