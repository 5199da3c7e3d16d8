"""The clock of the stages: its stream of instants, and how a replay gives and holds a virtual one."""

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from pipeline.config.settings import Clock, VirtualClock
from pipeline.service.instants import (
    NOTHING,
    LiveInstants,
    VirtualInstants,
    VirtualWorkInstants,
    Wakes,
    WorkInstants,
    given,
    never,
)
from pipeline.service.ticksource import TickSource
from pipeline.storage.files import Files


def ticks(
    spark: SparkSession,
    clock: Clock,
    path: str,
    start: int = 0,
    wakes: Wakes = NOTHING,
    is_held: Callable[[], bool] = never,
) -> TickSource:
    """The clock as a source of a query.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        start: a new checkpoint hears of no instant up to this one (ms).
        wakes: a query that has nothing to do waits for the next instant, or for one of these.
        is_held: whether a live clock stands still for now.
    """
    if isinstance(clock, VirtualClock):
        return TickSource(spark, VirtualInstants(path, start))
    return TickSource(spark, LiveInstants(clock, start, wakes, is_held))


def work_ticks(
    spark: SparkSession, clock: Clock, path: str, has_work: Callable[[int], bool], wakes: Wakes = NOTHING
) -> TickSource:
    """A clock without instants, for a query that waits until there is news in some folders.

    It gives some while there is work of which no source tells.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        has_work: whether there is such work at a time, ms UTC.
        wakes: what ends a wait.
    """
    if isinstance(clock, VirtualClock):
        return TickSource(spark, VirtualWorkInstants(path, has_work))
    return TickSource(spark, WorkInstants(has_work, wakes))


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
