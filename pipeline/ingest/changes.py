"""Versions of the inbox that are no appends: what somebody updated, merged, overwrote or restored.

Streams of Delta pass over a version that took rows out, with all that it added. An append that comes along with one, an
upsert's new rows, would be lost, so each such version is looked at once, in the batch that passes it. Its rows that are
new are taken in when they can be told from those that were changed; else the version is listed in `rejected_ingest`.
Decision 0025 says why no more can be told.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.config.lazyspark import F, pyspark, raised
from pipeline.delta.checkpoints import Position
from pipeline.delta.logs.change import Change
from pipeline.delta.logs.entries import between, entry, uri_name, within
from pipeline.delta.reading.arrival import ARRIVAL, file_commits, in_order_of_arrival, with_place
from pipeline.delta.reading.strangers import LeftOut, broken, left_out, unfolding
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import arrow_schema
from schemas import INBOX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_SAID = "inbox: version %(version)s (%(operation)s) is no append, %(rows)s rows are not taken in; remedy: %(remedy)s"
_AGAIN = "append the rows of the file once more, by a plain append of a file in the folder of the table"
_HASH, _NUMBER, _TIMES = "row_hash", "row_number", "row_times"


class Changes:
    """The versions of an inbox that are no appends."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse, self._files, self._path = warehouse, warehouse.files, warehouse.path(INBOX)

    def between(self, begin: Position, end: Position) -> tuple[list[Change], list[LeftOut]]:
        """Those that a batch passes, and one in the middle of which it ends; and files that it must not open.

        Reads one small file for each version.
        """
        changes, files = list[Change](), list[dict[str, Any]]()
        for version in range(begin.version, end.version + (end.index >= 0)):
            actions = entry(self._files, self._path, version) or ()
            if (change := Change.of(version, actions)) is not None:
                changes.append(change)
            else:
                files += within(actions, version, begin.offset, end.offset)
        return changes, left_out(self._files, self._path, files)

    def broken(self, begin: Position, end: Position, plan: Collection[LeftOut]) -> list[LeftOut]:
        """Files of a batch that cannot be read, less those that a plan leaves out. Reads all of each.

        Raises:
            OSError: the store does not answer.
        """
        return broken(self._files, self._path, INBOX, self._added(begin, end, plan))

    def unfolding(self, begin: Position, end: Position, plan: Collection[LeftOut], most: int) -> list[LeftOut]:
        """Files of a batch that come to more than so many bytes, and to far more than their size."""
        return unfolding(self._files, self._path, INBOX, self._added(begin, end, plan), most)

    def _added(self, begin: Position, end: Position, plan: Collection[LeftOut]) -> list[Mapping[str, Any]]:
        known = {each.place for each in plan}
        found = between(self._files, self._path, begin.offset, end.offset) or ()
        return [each for each in found if (each["version"], each["path"]) not in known]

    def separates(self, change: Change) -> bool:
        """Whether the rows that it calls new are found. Reads its files."""
        files = ({**each, "version": change.version} for each in (*change.added, *change.removed))
        if not change.is_separable or left_out(self._files, self._path, files):
            return False
        try:
            return self.inserted(change).count() == change.inserted
        except raised("PySparkException"):
            _LOG.warning("inbox: files of version %d were not read", change.version, exc_info=True)
            return False

    def inserted(self, change: Change) -> DataFrame:
        """The rows that a MERGE inserted, with their place of arrival.

        What it wrote, less what it took out, is new or changed. A changed row has the keys of one that went; no new row
        has the keys of a row that was there, or it would have matched it.
        """
        added, removed = (_hashed(self._rows(each)) for each in (change.added, change.removed))
        fresh, gone = _less(added, removed), _less(removed, added)
        new = fresh.join(gone.select(*change.keys).distinct(), list(change.keys), "left_anti")
        return new.withColumn("arrival_commit", F.lit(change.version)).select(*INBOX.columns.names, *ARRIVAL)

    def _rows(self, files: Iterable[Mapping[str, Any]]) -> DataFrame:
        rows = self._warehouse.spark.read.schema(INBOX.schema).parquet(
            *(f"{self._path}/{file['path']}" for file in files)
        )
        return with_place(rows).withColumn("arrival_row", F.monotonically_increasing_id())


def in_order_of_inbox(
    warehouse: Warehouse, inbox: DataFrame, begin: Position, end: Position, changes: Iterable[Change]
) -> DataFrame:
    """The rows of a batch with their place of arrival, less those of versions that are no appends."""
    commits = file_commits(warehouse.spark, warehouse.path(INBOX), begin, end)
    without = [uri_name(file["path"]) for change in changes for file in change.added]
    if without:
        inbox = inbox.where(~F.col("arrival_file").isin(without))
    return in_order_of_arrival(inbox, commits).select(*INBOX.columns.names, *ARRIVAL)


def refused(changes: Iterable[Change], separated: Iterable[int], files: Iterable[LeftOut] = ()) -> pa.Table:
    """Rows of `rejected_ingest` without their batch.

    Args:
        changes: versions that are no appends.
        separated: those of them whose new rows were taken.
        files: what was left out of versions that are appends.
    """
    known = frozenset(separated)
    rows = [row for each in changes if (row := each.refusal(separated=each.version in known)) is not None]
    for said in (row["properties"] for row in rows):
        _LOG.warning(_SAID, said)
    for each in files:
        _LOG.warning("%s: version %d: %r is left out: %s", INBOX.name, each.version, each.path, each.text)
        said = {"version": str(each.version), "file": _text(each.path), "problem": each.text, "remedy": _AGAIN}
        rows.append({"reason": each.reason, "properties": said})
    return pa.Table.from_pylist(rows, schema=arrow_schema(INBOX.columns).append(pa.field("reason", pa.string())))


def _text(path: str) -> str:
    """A path as a text; entries of a log may hold what is none."""
    return path.encode(errors="backslashreplace").decode()


def _less(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Rows without those of others: each of these takes one equal row away."""
    times = others.groupBy(_HASH).agg(F.count("*").alias(_TIMES))
    numbered = rows.withColumn(
        _NUMBER, F.row_number().over(pyspark.sql.Window.partitionBy(_HASH).orderBy(*ARRIVAL[1:]))
    )
    return numbered.join(times, _HASH, "left").where(F.col(_NUMBER) > F.coalesce(_TIMES, F.lit(0)))


def _hashed(rows: DataFrame) -> DataFrame:
    columns = [F.col(name) for name in INBOX.columns.names if name not in ("properties", "payload")]
    entries = F.array_sort(F.map_entries("properties")).alias("properties")
    return rows.withColumn(_HASH, F.sha2(F.to_json(F.struct(*columns, entries, F.sha2("payload", 256))), 256))
