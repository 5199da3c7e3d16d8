"""Versions of a table that are no appends: what somebody updated, merged, overwrote or restored.

A stream passes over a version that took rows out, with all that it added. The rows that a MERGE inserted are taken in
when they can be told from those that it changed, as ingest does it for `inbox` (decision 0025); the others are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta.logs.change import Change
from pipeline.delta.logs.entries import entry
from pipeline.delta.offsets import Offset
from pipeline.delta.streams.files import TableFiles
from pipeline.storage.files import Files

_HASH, _NUMBER, _TIMES = "delayline_hash", "delayline_number", "delayline_times"


def changes(files: Files, path: str, begin: Offset, end: Offset, columns: Collection[str]) -> list[Change]:
    """Those that a batch passes. Reads one small file for each version."""
    entries = ((version, entry(files, path, version) or ()) for version in range(begin[0], end[0] + (end[1] >= 0)))
    found = (Change.of(version, actions, columns) for version, actions in entries)
    return [change for change in found if change is not None]


def inserted(spark: SparkSession, path: str, change: Change) -> DataFrame | None:
    """The rows that a MERGE inserted; None: they cannot be told from those that it changed. Reads its files.

    What it wrote, less what it took out, is new or changed. A changed row has the keys of one that went; no new row has
    the keys of a row that was there, or it would have matched it.
    """
    if not change.is_separable:
        return None
    try:
        table = TableFiles(spark, path)
        added, removed = (_hashed(table.frame(_adds(each))) for each in (change.added, change.removed))
        fresh, gone = _less(added, removed), _less(removed, added)
        new = fresh.join(gone.select(*change.keys).distinct(), list(change.keys), "left_anti")
        new = new.drop(_HASH, _NUMBER, _TIMES)
        return new if new.count() == change.inserted else None
    except PySparkException:
        # A file may be gone, or has values that no text can be made of.
        return None


def _adds(files: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"modificationTime": 0, "size": 0, "partitionValues": {}, **file, "dataChange": True} for file in files]


def _hashed(rows: DataFrame) -> DataFrame:
    return rows.withColumn(_HASH, F.sha2(F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns))), 256))


def _less(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Rows without those of others: each of these takes one equal row away."""
    times = others.groupBy(_HASH).agg(F.count("*").alias(_TIMES))
    numbered = rows.withColumn(_NUMBER, F.row_number().over(Window.partitionBy(_HASH).orderBy(_HASH)))
    return numbered.join(times, _HASH, "left").where(F.col(_NUMBER) > F.coalesce(_TIMES, F.lit(0)))
