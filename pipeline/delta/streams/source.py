"""Sources of Spark's streams with methods in Python, which the JVM asks in this process (decision 0055).

A source as PySpark offers it (`pyspark.sql.datasource`) has a process of its own for each query, and starts others
while a query is planned; each of them imports PySpark and PyArrow first. This is what Delta's streams are to Spark, a
`Source`, with methods in Python, like the function of `foreachBatch`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from pipeline.config.jvm import answer_jvm, java_class, session_of
from pipeline.config.lazyspark import pyspark
from pipeline.config.sparkversion import spark_line

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

SQL = "org.apache.spark.sql"
_STREAMING = f"{SQL}.execution.streaming"
_MOST_HASH = (1 << 31) - 1
_KEPT = 16
"""Spark asks a source for less than that before it uses an answer."""
INSTANT = "instant bigint"
"""The column of a clock."""


class StreamSource(ABC):
    """A source for one query. Names and signatures are Spark's; its offsets are texts of JSON.

    What a method answers is `kept`. Py4J tells the JVM the number of an object, and a thread beside it tells the JVM
    to forget what Python has no reference to any more: if that one is faster, Spark gets NULL, and its query ends.
    """

    def __init__(self, spark: SparkSession, columns: JavaObject) -> None:
        """Answer Spark with rows of these columns, a `StructType` of the JVM."""
        self.spark = spark
        self.session = session_of(spark)
        self.nothing = java_class(spark, "scala.Option").empty()
        self._limit = java_class(spark, f"{SQL}.connector.read.streaming.ReadLimit").allAvailable()
        self._of_rows = singleton(spark, f"{SQL}.classic.Dataset").ofRows
        self._answers = deque[object](maxlen=_KEPT)
        self.answer_with(columns)

    def answer_with(self, columns: JavaObject) -> None:
        """Answer with rows of other columns from here on; before the query starts."""
        self.columns = columns
        self.attributes = singleton(self.spark, f"{SQL}.catalyst.types.DataTypeUtils").toAttributes(columns)

    def stream(self) -> DataFrame:
        """The rows as a stream, for one query."""
        answer_jvm(self.spark)
        line = spark_line()
        relation = java_class(self.spark, f"{line.runtime}.StreamingExecutionRelation")
        unnamed = [getattr(relation, "$lessinit$greater$default$4")()] if line.names_sources else []
        plan = relation(self, self.attributes, self.nothing, *unnamed, self.session)
        return pyspark.sql.DataFrame(self.of_plan(plan), self.spark)

    def kept(self, answer: JavaObject) -> JavaObject:
        """An answer to Spark, which stays until the JVM has it."""
        self._answers.append(answer)
        return answer

    def of_plan(self, plan: JavaObject) -> JavaObject:
        """A `Dataset` of a logical plan."""
        return self._of_rows(self.session, plan)

    def of_rows(self, rows: list[JavaObject]) -> JavaObject:
        """A `Dataset` of rows that are part of its plan: no task reads them."""
        relation = java_class(self.spark, f"{SQL}.catalyst.plans.logical.LocalRelation")
        streaming = True
        return self.kept(self.of_plan(relation(self.attributes, of_list(self.spark, rows), streaming, self.nothing)))

    @abstractmethod
    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject | None:  # noqa: N802
        """Up to where the next batch takes; what it is given: there is nothing new. None as `start`: the first one."""

    @abstractmethod
    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802
        """The rows of a batch, as a streaming `Dataset`; `start` is an `Option`."""

    def deserializeOffset(self, text: str) -> JavaObject:  # noqa: N802
        """An offset of the log, or one to be: Spark compares the texts."""
        return self.kept(java_class(self.spark, f"{spark_line().runtime}.SerializedOffset")(text))

    def getDefaultReadLimit(self) -> JavaObject:  # noqa: N802
        """A batch is as large as the source makes it, whatever Spark allows."""
        return self._limit

    def reportLatestOffset(self) -> None:  # noqa: N802, B027 - there is nothing to tell
        """Nobody knows the last one."""

    def schema(self) -> JavaObject:
        """The columns."""
        return self.columns

    def commit(self, end: JavaObject) -> None:  # noqa: B027 - most keep nothing
        """Nothing is kept for a batch."""

    def stop(self) -> None:  # noqa: B027 - most hold nothing
        """The query has ended."""

    @abstractmethod
    def toString(self) -> str:  # noqa: N802
        """What plans and the progress of queries call it."""

    def hashCode(self) -> int:  # noqa: N802
        """Spark has its sources in maps."""
        return id(self) & _MOST_HASH

    def equals(self, other: object) -> bool:
        """Each is one of its kind."""
        return other is self

    class Java:
        """What Py4J has to know."""

        implements: ClassVar = [f"{_STREAMING}.Source", f"{SQL}.connector.read.streaming.SupportsAdmissionControl"]


def of_list(spark: SparkSession, values: list[JavaObject]) -> JavaObject:
    """A list as a `Seq`."""
    return java_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(values)


def singleton(spark: SparkSession, name: str) -> Any:  # noqa: ANN401 - a Java object
    """An object of Scala's by its full name."""
    return getattr(java_class(spark, f"{name}$"), "MODULE$")
