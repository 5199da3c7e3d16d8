"""Classes of the JVM by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.config.lazyspark import pyspark

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


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

    context: Any = spark if isinstance(spark, pyspark.SparkContext) else spark.sparkContext
    return JavaClass(name, context._gateway._gateway_client)  # noqa: SLF001 - PySpark has no public door to its JVM


def keep_classes(spark: SparkSession) -> None:
    """Let PySpark find the classes that it names again and again where they are, instead of asking the JVM each time.

    The JVM looks through all its jars for a class of a short name, in one package after the other: 6 per cent of the
    time of the schedule's thread (decision 0047).
    """
    view: Any = spark.sparkContext._jvm  # noqa: SLF001 - as above
    for name in _BY_NAME:
        for each in (name, name.rpartition(".")[2]):
            setattr(view, each, java_class(spark, name))
