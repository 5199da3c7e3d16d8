"""Instants as a source of Spark's streams (decision 0055)."""

import json

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.config.jvm import java_class
from pipeline.delta.streams.source import INSTANT, SQL, StreamSource
from pipeline.service.instants import Instants


class TickSource(StreamSource):
    """A source of one column, `instant` in ms, for one query; a batch has no more than one row.

    Its offset is the instant that a batch ends with, as JSON.
    """

    def __init__(self, spark: SparkSession, instants: Instants) -> None:
        """Answer Spark with these."""
        super().__init__(spark, java_class(spark, f"{SQL}.types.StructType").fromDDL(INSTANT))
        self._instants = instants

    def end(self) -> None:
        """Let nobody wait any more: the query is to stop."""
        self._instants.end()

    def latestOffset(self, start: JavaObject | None, limit: JavaObject) -> JavaObject:  # noqa: N802, ARG002
        """The next instant. Whoever asks may wait for it, and asks the other sources of its query afterwards."""
        last = self._instants.first() if start is None else _instant(start)
        # Spelled as in the logs of earlier releases.
        return self.deserializeOffset(json.dumps({"instant": self._instants.after(last)}))

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
