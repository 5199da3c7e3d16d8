"""The clock of the stages: its stream of instants, and how a replay gives and holds a virtual one."""

import json
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import Clock, VirtualClock
from pipeline.storage.files import Files
from pipeline.worker.instants import InstantSource, given


def ticks(spark: SparkSession, clock: Clock, path: str, start: int = 0, watched: Sequence[str] = ()) -> DataFrame:
    """The clock as a stream of one column, `instant` in ms.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        start: a new checkpoint hears of no instant up to this one (ms).
        watched: folders of this machine; a query that has nothing to do waits until something in them changes.
    """
    spark.dataSource.register(InstantSource)
    reader = spark.readStream.format(InstantSource.name()).option("start", start)
    if isinstance(clock, VirtualClock):
        return reader.option("path", path).load()
    reader = reader.option("watched", json.dumps(list(watched)))
    for field in ("lookahead_ms", "max_step_ms", "max_jump_ms", "resolution_ms"):
        reader = reader.option(field, getattr(clock, field))
    return reader.load()


def woken(spark: SparkSession, rows: DataFrame, watched: Sequence[str]) -> DataFrame:
    """A stream that asks its source only when something in watched folders of this machine has changed.

    A clock without instants comes first: Spark asks the sources in this order, and who waits has not asked the other.
    """
    spark.dataSource.register(InstantSource)
    nothing = spark.readStream.format(InstantSource.name()).option("watched", json.dumps(list(watched))).load()
    columns = (F.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema)
    return nothing.select(*columns).unionByName(rows)


def advance(path: str, instant: int) -> None:
    """Give the virtual clock its next instant, in ms. One that is not later than the last changes nothing."""
    earlier = given(path)
    if earlier and instant <= earlier[-1]:
        return
    Files().write(path, "".join(f"{each}\n" for each in [*earlier, instant]), lasting=False)


def hold(path: str) -> str:
    """Let readers of a virtual clock wait from their next question on, until `release`; give the hold's name."""
    name = str(time.monotonic_ns())
    Files().write(f"{path}.hold", name, lasting=False)
    return name


def is_held(path: str, name: str) -> bool:
    """Whether a reader waits because of this hold: its query is between two batches and asks no source meanwhile."""
    return Files().text_if_there(f"{path}.waiting") == name


def release(path: str) -> None:
    """Let readers go on; nothing happens when they were not held."""
    Files().delete(f"{path}.hold")
