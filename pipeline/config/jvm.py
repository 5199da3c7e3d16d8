"""The door to the JVM: classes by their names, and the objects that PySpark keeps to itself.

Only this module touches what PySpark has under names with an underscore. `tests/unit/house/test_jvm.py` lists the
modules that come through this door, and what each of them needs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.config.lazyspark import pyspark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_BY_NAME = (
    "org.apache.spark.api.python.PythonUtils",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.functions",
)
"""Classes that PySpark asks the JVM for by name whenever it builds a column or passes a list."""


def java_class(spark: SparkSession | SparkContext, name: str) -> Any:  # noqa: ANN401 - a Java object
    """A class by its full name. Whether the JVM has it shows when it is used.

    `jvm.org.apache...` asks the JVM about each part of the name, each time, and the JVM looks for a package in all its
    jars as if it were a class: 9 per cent of its CPU time under load (decision 0032). This asks nothing.

    Args:
        spark: a session, or what all sessions share.
        name: with its package; an inner class behind a `$`.
    """
    from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]  # noqa: PLC0415 - who has a session has it

    return JavaClass(name, gateway_of(spark)._gateway_client)  # noqa: SLF001 - Py4J has no public name for it


def gateway_of(spark: SparkSession | SparkContext) -> Any:  # noqa: ANN401 - it ships no types
    """Py4J's way to the JVM."""
    return _context(spark)._gateway  # noqa: SLF001 - PySpark has no public door to its JVM


def session_of(spark: SparkSession) -> Any:  # noqa: ANN401 - a Java object
    """The session as the JVM has it."""
    return spark._jsparkSession  # noqa: SLF001 - as above


def hadoop_settings(spark: SparkSession | SparkContext) -> Any:  # noqa: ANN401 - a Java object
    """Hadoop's settings that all sessions share, which may be changed."""
    return _context(spark)._jsc.hadoopConfiguration()  # noqa: SLF001 - as above


def names_of_jvm() -> Any:  # noqa: ANN401 - a Java object
    """Classes by the short names that PySpark has imported."""
    return pyspark.SparkContext._jvm  # noqa: SLF001 - as above


def last_progress(query: StreamingQuery) -> str | None:
    """What Spark says of the last batch of a query, as JSON; None: there was none.

    PySpark asks the JVM for each of its hundred fields, which takes longer than a batch.
    """
    query_of_jvm: Any = query
    last = query_of_jvm._jsq.lastProgress()  # noqa: SLF001 - as above
    return None if last is None else str(last.json())


def answer_jvm(spark: SparkSession) -> None:
    """Let the JVM call methods of objects in this process, as it does for the function of `foreachBatch`."""
    pyspark.java_gateway.ensure_callback_server_started(gateway_of(spark))  # type: ignore[no-untyped-call]


def start_jvm() -> None:
    """Start the JVM, or find the one of spark-submit: only then is it known what that was given."""
    pyspark.SparkContext._ensure_initialized()  # noqa: SLF001 - as above


def _context(spark: SparkSession | SparkContext) -> Any:  # noqa: ANN401 - its attributes are PySpark's own
    return spark if isinstance(spark, pyspark.SparkContext) else spark.sparkContext


def keep_classes(spark: SparkSession) -> None:
    """Let PySpark find the classes that it names again and again where they are, instead of asking the JVM each time.

    The JVM looks through all its jars for a class of a short name, in one package after the other: 6 per cent of the
    time of the schedule's thread (decision 0047).
    """
    view = names_of_jvm()
    for name in _BY_NAME:
        for each in (name, name.rpartition(".")[2]):
            setattr(view, each, java_class(spark, name))
