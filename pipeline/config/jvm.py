"""Classes of the JVM by their names."""

from typing import Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


def java_class(spark: SparkSession, name: str) -> Any:  # noqa: ANN401 - a Java object
    """A class by its full name. Whether the JVM has it shows when it is used.

    `jvm.org.apache...` asks the JVM about each part of the name, each time, and the JVM looks for a package in all its
    jars as if it were a class: 9 per cent of its CPU time under load (decision 0032). This asks nothing.

    Args:
        spark: a session.
        name: with its package; an inner class behind a `$`.
    """
    return JavaClass(name, spark.sparkContext._gateway._gateway_client)  # type: ignore[union-attr]  # noqa: SLF001 - PySpark has no public door to its JVM
