"""Some files of a Delta table as Spark reads them, with what the table says of its files: names of columns, vectors."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.jvm import java_class
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.streams.source import of_list, singleton

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
        """The same for PySpark."""
        return DataFrame(self.dataset(files), self._spark)


def _entry(file: Mapping[str, Any]) -> str:
    """The entry of a file as the log has it, less what a scan does not need."""
    fields = {name: file[name] for name in _NEEDED if file.get(name) is not None}
    safe = _UNQUOTED + (":" if _ABSOLUTE.match(file["path"]) else "")
    return json.dumps({"add": {**fields, "path": quote(file["path"], safe=safe)}})
