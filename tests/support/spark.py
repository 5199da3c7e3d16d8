"""One Spark session for a whole test run, made when the first test asks for it."""

from functools import cache

from pyspark.sql import SparkSession

from pipeline.session import COST, local_session

_OPTIONS = "spark.driver.extraJavaOptions"
# Tests run each plan once or twice: compiling it well takes longer than running it.
_QUICK = {_OPTIONS: f"{COST[_OPTIONS]} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@cache
def session() -> SparkSession:
    """The session: two cores, two partitions, UTC, quiet."""
    spark = local_session("delayline-tests", cores=2, memory="2g", partitions=2, extra=_QUICK)
    spark.sparkContext.setLogLevel("OFF")
    return spark
