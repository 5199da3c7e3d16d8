"""Layout: many small files become a few, and messages that are due together lie together.

Rows stay as they are and no row is news to a reader: such commits change no data. They conflict with no append, so they
are made beside the stages; whoever reads an older version goes on reading its files, which stay for a while.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipeline.deltajvm import TableLog
from pipeline.deltalog import commits, newest
from pipeline.files import Files
from pipeline.footers import span_ms
from pipeline.tables import Warehouse
from schemas import MESSAGES, Table

_MIB = 1 << 20
OPTIMIZE = {
    # Larger files are left alone: their rows were sorted by due time when they were written, and stay together.
    "spark.databricks.delta.optimize.minFileSize": str(16 * _MIB),
    "spark.databricks.delta.optimize.maxFileSize": str(64 * _MIB),
    # Pages within a file are skipped too, so rows are sorted in it, and exactly.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
    "spark.databricks.io.skipping.mdc.addNoise": "false",
}
_OPENED = 4
"""Clustering waits until a release would open more files than that."""

_LEAVE_IN_ORDER = ("CREATE TABLE", "OPTIMIZE")

Span = tuple[int, int]
Merged = tuple[int, int]
"""How many files became how many; both 0 when there was nothing to do."""


def is_new(spark: SparkSession, warehouse: Warehouse, table: Table) -> bool:
    """Whether anything was written to a table since it was made or laid out. One look at its log."""
    files, path = Files(spark), warehouse.path(table)
    last = next(commits(files, path, newest(files, path)))
    return not any(each["commitInfo"].get("operation") in _LEAVE_IN_ORDER for each in last if "commitInfo" in each)


def compact(spark: SparkSession, warehouse: Warehouse, table: Table) -> Merged:
    """Merge small files (under 16 MiB) into files of up to 64 MiB; `spark` has the settings `OPTIMIZE`."""
    return _counts(DeltaTable.forPath(spark, warehouse.path(table)).optimize().executeCompaction())


def cluster(spark: SparkSession, warehouse: Warehouse, most_bytes: int) -> Merged:
    """Sort `messages` anew by due time, when that pays; `spark` has the settings `OPTIMIZE`.

    Delta sorts the whole table or nothing. So it is done when a release would open more than half of the files: each
    byte is then written again when the table has about doubled, and not with each round. Messages that are due soon
    after they came lie together by themselves, and are never sorted.

    Args:
        spark: a session with Delta.
        warehouse: whose `messages`.
        most_bytes: a larger table is left as it is.
    """
    _, files = TableLog(spark, warehouse.path(MESSAGES)).files()
    spans = [span for span in map(_span, files) if span is not None]
    if sum(file["size"] for file in files) > most_bytes or not scattered(spans):
        return 0, 0
    return _counts(DeltaTable.forPath(spark, warehouse.path(MESSAGES)).optimize().executeZOrderBy("due_time"))


def scattered(spans: Sequence[Span]) -> bool:
    """Whether at the begin of a span, on average, more than half of all spans overlap, and more than a few."""
    if len(spans) <= _OPENED:
        return False
    first, last = (np.array(column) for column in zip(*spans, strict=True))
    # At the begin of a span overlap those that have begun, less those that have ended.
    begun = np.searchsorted(np.sort(first), first, side="right")
    ended = np.searchsorted(np.sort(last), first, side="left")
    return bool((begun - ended).mean() > max(_OPENED, len(spans) / 2))


def _span(file: Mapping[str, Any]) -> Span | None:
    """First and last due time in a file of `messages`, ms UTC; None when its statistics do not say."""
    try:
        return span_ms(file["stats"] or "{}", "due_time")
    except KeyError:
        return None


def _counts(told: DataFrame) -> Merged:
    row = told.first()
    metrics = None if row is None else row["metrics"]
    return (0, 0) if metrics is None else (metrics["numFilesRemoved"], metrics["numFilesAdded"])
