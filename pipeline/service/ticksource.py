"""Instants as a source of Spark's streams, which the JVM asks for them in this process.

A source as PySpark offers it (`pyspark.sql.datasource`) has a process of its own for each query, and starts others
while a query is planned; each of them imports PySpark and PyArrow first. This is what Delta's streams are to Spark, a
`Source`, with methods in Python, like the function of `foreachBatch`. Decision 0055.
"""

import json
from typing import Any, ClassVar

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.jvm import java_class
from pipeline.service.instants import Instants

_COLUMN = "instant bigint"
_SQL = "org.apache.spark.sql"
_STREAMING = f"{_SQL}.execution.streaming"
_MOST_HASH = (1 << 31) - 1


class TickSource:
    """A source of one column, `instant` in ms, for one query; a batch has no more than one row.

    Its offset is the instant that a batch ends with, as JSON. Names and signatures are Spark's.
    """

    def __init__(self, spark: SparkSession, instants: Instants) -> None:
        """Answer Spark with these."""
        self._spark, self._instants = spark, instants
        self._nothing = java_class(spark, "scala.Option").empty()
        self._limit = java_class(spark, f"{_SQL}.connector.read.streaming.ReadLimit").allAvailable()
        self._type = java_class(spark, f"{_SQL}.types.StructType").fromDDL(_COLUMN)
        self._attributes = _singleton(spark, f"{_SQL}.catalyst.types.DataTypeUtils").toAttributes
        self._of_rows = _singleton(spark, f"{_SQL}.classic.Dataset").ofRows
        self._session = spark._jsparkSession  # noqa: SLF001 - PySpark has no public door to its JVM

    def stream(self) -> DataFrame:
        """The instants as a stream, for one query."""
        # As PySpark does for the function of `foreachBatch`.
        gateway = self._spark.sparkContext._gateway  # noqa: SLF001 - as above
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        relation = java_class(self._spark, f"{_STREAMING}.runtime.StreamingExecutionRelation")
        unnamed = getattr(relation, "$lessinit$greater$default$4")()
        plan = relation(self, self._attributes(self._type), self._nothing, unnamed, self._session)
        return DataFrame(self._of_rows(self._session, plan), self._spark)

    def end(self) -> None:
        """Let nobody wait any more: the query is to stop."""
        self._instants.end()

    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject:  # noqa: N802, ARG002
        """The next instant. Whoever asks may wait for it, and asks the other sources of its query afterwards."""
        last = self._instants.first() if start is None else _instant(start)
        return self._offset(self._instants.after(last))

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802
        """The row of a batch, if it has one; it is part of the plan, so no task reads it."""
        begin = self._instants.start if start.isEmpty() else _instant(start.get())
        rows = [self._row(instant)] if (instant := _instant(end)) > begin else []
        relation = java_class(self._spark, f"{_SQL}.catalyst.plans.logical.LocalRelation")
        values = java_class(self._spark, "org.apache.spark.api.python.PythonUtils").toSeq(rows)
        is_streaming = True
        plan = relation(self._attributes(self._type), values, is_streaming, self._nothing)
        return self._of_rows(self._session, plan)

    def deserializeOffset(self, text: str) -> JavaObject:  # noqa: N802
        """An offset of the log."""
        return self._offset(json.loads(text)["instant"])

    def getDefaultReadLimit(self) -> JavaObject:  # noqa: N802
        """A batch has one instant at most, whatever Spark allows."""
        return self._limit

    def reportLatestOffset(self) -> None:  # noqa: N802
        """Nobody knows the last instant."""

    def schema(self) -> JavaObject:
        """The column."""
        return self._type

    def commit(self, end: JavaObject) -> None:
        """Nothing is kept for a batch."""

    def stop(self) -> None:
        """The query has ended."""
        self._instants.close()

    def toString(self) -> str:  # noqa: N802
        """What plans and the progress of queries call it."""
        return "delayline_clock"

    def hashCode(self) -> int:  # noqa: N802
        """Spark has its sources in maps."""
        return id(self) & _MOST_HASH

    def equals(self, other: object) -> bool:
        """Each is one of its kind."""
        return other is self

    def _row(self, instant: int) -> JavaObject:
        row = java_class(self._spark, f"{_SQL}.catalyst.expressions.SpecificInternalRow")(self._type)
        row.setLong(0, instant)
        return row

    def _offset(self, instant: int) -> JavaObject:
        # Spelled as in the logs of earlier releases: Spark compares the texts.
        text = json.dumps({"instant": instant})
        return java_class(self._spark, f"{_STREAMING}.runtime.SerializedOffset")(text)

    class Java:
        """What Py4J has to know."""

        implements: ClassVar = [f"{_STREAMING}.Source", f"{_SQL}.connector.read.streaming.SupportsAdmissionControl"]


def _instant(offset: JavaObject) -> int:
    return int(json.loads(offset.json())["instant"])


def _singleton(spark: SparkSession, name: str) -> Any:  # noqa: ANN401 - a Java object
    """An object of Scala's by its full name."""
    return getattr(java_class(spark, f"{name}$"), "MODULE$")
