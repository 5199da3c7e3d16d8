"""One Spark session for a whole test run, made when the first test asks for it."""

from functools import cache

from pyspark.sql import SparkSession

from pipeline.config.session import Machine, local_session
from pipeline.storage.files import sync_files

# Tests run each plan once or twice: compiling it well takes longer than running it.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


@cache
def session() -> SparkSession:
    """The session: two cores, two partitions, UTC, quiet."""
    spark = local_session("delayline-tests", Machine(cores=2, java_options=_QUICK))
    spark.sparkContext.setLogLevel("OFF")
    # No test cuts the power, and each commit would wait for the disk several times.
    sync_files(spark, on=False)
    return spark
