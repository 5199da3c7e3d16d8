"""One Spark session for a whole test run, made when the first test asks for it."""

from functools import cache

from pyspark.sql import SparkSession

from pipeline.session import local_session


@cache
def session() -> SparkSession:
    """The session: two cores, two partitions, UTC, quiet."""
    spark = local_session("delayline-tests", cores=2, memory="2g", partitions=2)
    spark.sparkContext.setLogLevel("OFF")
    return spark
