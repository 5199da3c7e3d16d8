"""What the state of the schedule keeps, as Spark says it of the last batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pipeline.config.jvm import last_progress
from pipeline.service.watch.progress import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_COUNTS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
"""Without it Spark says of every state that it has no rows."""


class KeptRows:
    """Says whether a query keeps rows in its state."""

    def __init__(self, spark: SparkSession) -> None:
        """Nothing is known before there is a query to `follow`."""
        self._counts = str(spark.conf.get(_COUNTS, "true")).lower() == "true"
        self._query: StreamingQuery | None = None

    def follow(self, query: StreamingQuery) -> None:
        """Ask this query from now on."""
        self._query = query

    def let_go(self) -> int | None:
        """Before which version of its source everything is let go; None: it keeps something, or nobody knows.

        Ask between two batches: then the last one is done for good.
        """
        text = None if self._query is None or not self._counts else last_progress(self._query)
        batch = None if text is None else parse(json.loads(text))
        return batch.version if batch is not None and batch.state_rows == 0 else None
