"""The clock of a stage as a source of its query, asked in the driver (decision 0055)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.config.jvm import java_class
from pipeline.config.settings import Clock, VirtualClock
from pipeline.delta.streams.source import INSTANT, SQL, StreamSource
from pipeline.service.clock import (
    NOTHING,
    Instants,
    LiveInstants,
    VirtualInstants,
    VirtualWorkInstants,
    Wakes,
    WorkInstants,
    always,
    never,
    unknown,
)
from state.units import Ms

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession


class TickSource(StreamSource):
    """A source of one column, `instant` in ms, for one query; a batch has no more than one row.

    Its offset is the instant that a batch ends with, as JSON.
    """

    def __init__(self, spark: SparkSession, instants: Instants) -> None:
        super().__init__(spark, java_class(spark, f"{SQL}.types.StructType").fromDDL(INSTANT))
        self._instants = instants

    def end(self) -> None:
        """Let nobody wait any more: the query is to stop."""
        self._instants.end()

    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject:  # noqa: N802, ARG002
        """The next instant. Whoever asks may wait for it, and asks the other sources of its query afterwards."""
        last = self._instants.first() if start is None else _instant(start)
        instant = self._instants.after(last)
        if start is not None and instant == last:
            return self.kept(start)
        # Spelled as in the logs of earlier releases.
        return self.deserializeOffset(json.dumps({"instant": instant, **self._instants.note}))

    def getBatch(self, start: JavaObject, end: JavaObject) -> JavaObject:  # noqa: N802
        """The row of a batch, if it has one."""
        begin = self._instants.start if start.isEmpty() else _instant(start.get())
        rows = [self._row(instant)] if (instant := _instant(end)) > begin else []
        return self.of_rows(rows)

    def stop(self) -> None:
        """The query has ended."""
        self._instants.close()

    def toString(self) -> str:  # noqa: N802
        """What plans and the progress of queries call it."""
        return "delayline_clock"

    def _row(self, instant: int) -> JavaObject:
        row = java_class(self.spark, f"{SQL}.catalyst.expressions.SpecificInternalRow")(self.columns)
        row.setLong(0, instant)
        return row


def _instant(offset: JavaObject) -> int:
    return int(json.loads(offset.json())["instant"])


def ticks(
    spark: SparkSession,
    clock: Clock,
    path: str,
    start: int = 0,
    wakes: Wakes = NOTHING,
    is_held: Callable[[], bool] = never,
    let_go: Callable[[], int | None] = unknown,
) -> TickSource:
    """The clock as a source of a query.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        start: a new checkpoint hears of no instant up to this one (ms).
        wakes: a query that has nothing to do waits for the next instant, or for one of these.
        is_held: whether a live clock stands still for now.
        let_go: as for `LiveInstants`.
    """
    if isinstance(clock, VirtualClock):
        return TickSource(spark, VirtualInstants(path, start))
    return TickSource(spark, LiveInstants(clock, start, wakes, is_held, let_go))


def work_ticks(
    spark: SparkSession,
    clock: Clock,
    path: str,
    has_work: Callable[[Ms], bool],
    wakes: Wakes = NOTHING,
    may_have: Callable[[], bool] = always,
) -> TickSource:
    """A clock without instants, for a query that waits until there is news in some folders.

    It gives some while there is work of which no source tells.

    Args:
        spark: the session.
        clock: live or virtual.
        path: the file of the virtual clock.
        has_work: whether there is such work at a time, ms UTC.
        wakes: what ends a wait.
        may_have: whether there may come some with time alone.
    """
    if isinstance(clock, VirtualClock):
        return TickSource(spark, VirtualWorkInstants(path, has_work))
    return TickSource(spark, WorkInstants(has_work, wakes, may_have))
