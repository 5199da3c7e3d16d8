"""A Delta table as a source: what is appended to it, and what a MERGE inserts. Deletes are no news.

A stream passes over a version that took rows out, with all that it added. The rows that a MERGE inserted are taken in
when they can be told from those that it changed, as ingest does it for `inbox` (decision 0025); the others are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.errors import BadSetting, SourcePlaceGone
from pipeline.config.sources import Source
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Checkpoint, Offset, Position
from pipeline.delta.logs.change import Change
from pipeline.delta.logs.entries import between, entry, newest, reaches_back, rows_of
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.streams.log import TableFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.door import NOTHING_YET, Place, SourceConnector
from pipeline.storage.files import Files
from pipeline.storage.hadoop import session_files
from schemas import Table
from schemas.columns import Columns
from state.units import EPOCH

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


_ALL_BYTES = 256 << 20
"""Of files that one batch takes; a file is never divided."""


class DeltaSource(SourceConnector):
    """A table."""

    position = "'in a row of the table'"

    def __init__(self, source: Source) -> None:
        self._source, self._path = source, source.address.partition(":")[2].rstrip("/")
        root, _, name = self._path.rpartition("/")
        self._warehouse, self._table = Warehouse(root), Table(name, Columns.of(), "others")
        self._files: Files | None = None

    def check(self, spark: SparkSession) -> None:
        """See `SourceConnector`."""
        self._files = session_files(spark)
        try:
            newest(self._files, self._path)
        except FileNotFoundError as error:
            raise BadSetting(self._source.field("address"), self._path, "the folder of a Delta table") from error

    def latest(self, spark: SparkSession) -> Place:
        """See `SourceConnector`."""
        return {"reservoirVersion": newest(session_files(spark), self._path) + 1, "index": EVERYTHING_BEFORE}

    def stream(self, spark: SparkSession, after: Place | None) -> DataFrame:
        """See `SourceConnector`."""
        place = Position(EPOCH, 0, EVERYTHING_BEFORE) if after is None else Position(EPOCH, *_offset(after))
        if not reaches_back(session_files(spark), self._path, place.version - 1):
            raise SourcePlaceGone(
                self._source.name, f"the log of {self._path} does not have its version {place.version}"
            )
        if after is not None:
            self._check(spark, place.version - 1, after.get("reservoirId"))
        try:
            return self._warehouse.within(spark).follow(self._table, place, self._source.max_rows, _ALL_BYTES)
        except PySparkException as error:
            raise BadSetting(self._source.field("address"), self._path, "a Delta table that Spark reads") from error

    def _check(self, spark: SparkSession, read: int, table: object) -> None:
        """Whether what was read is of this table, and what comes after it can be read with the columns of today.

        Raises:
            SourcePlaceGone: it is not, or it cannot.
        """
        head = TableLog(spark, self._path).head()
        if table not in (None, head.metadata["id"]) or head.version < read:
            raise SourcePlaceGone(self._source.name, f"{self._path} is another table than was read, or was set back")
        if not 0 <= read < head.version:
            return
        # When nobody can say what it was like then, it is read as it is now.
        with suppress(PySparkException):
            warehouse = self._warehouse.within(spark)
            now, then = (warehouse.read(self._table, each).schema for each in (None, read))
            types = {field.name: field.dataType for field in now}
            gone = [field.name for field in then if types.get(field.name) != field.dataType]
            if gone:
                text = f"the columns {', '.join(gone)} of {self._path} went or changed after version {read}"
                raise SourcePlaceGone(self._source.name, text)

    def taken(
        self,
        rows: DataFrame,
        begin: Place | None,
        end: Place,
        checkpoint: Checkpoint,  # noqa: ARG002 - the places say it
    ) -> tuple[DataFrame, Sequence[str]]:
        """See `SourceConnector`. Delta's streams pass over a version that took rows out, with all that it added."""
        spark, left_out = rows.sparkSession, list[str]()
        first = (0, EVERYTHING_BEFORE) if begin is None else _offset(begin)
        for change in changes(session_files(spark), self._path, first, _offset(end), rows.columns):
            found = inserted(spark, self._path, change)
            rows = rows if found is None else rows.unionByName(found.select(*rows.columns))
            if (count := change.left_out(separated=found is not None)) != 0:
                of = f"version {change.version} ({change.operation}) of {self._path}"
                left_out.append(f"{of} is no append, {'unknown' if count is None else count} rows are not taken in")
        return rows, left_out

    def count(self, begin: Place, end: Place) -> int | None:
        """See `SourceConnector`."""
        return self._rows(_offset(begin), _offset(end))

    def behind(self, progress: Mapping[str, Any]) -> int | str:
        """See `SourceConnector`."""
        end = progress.get("endOffset")
        if self._files is None or not isinstance(end, dict):
            return NOTHING_YET
        found = self._rows(_offset(end), (newest(self._files, self._path) + 1, EVERYTHING_BEFORE))
        return "the log of the table does not say how many rows each file has" if found is None else found

    def _rows(self, begin: Offset, end: Offset) -> int | None:
        return None if self._files is None else rows_of(between(self._files, self._path, begin, end))


def _offset(place: Mapping[str, Any]) -> Offset:
    return int(place["reservoirVersion"]), int(place["index"])
