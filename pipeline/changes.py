"""Versions of the inbox that are no appends: what somebody updated, merged, overwrote or restored.

Streams of Delta pass over a version that took rows out, with all that it added. An append that comes along with one, an
upsert's new rows, would be lost, so each such version is looked at once, in the batch that passes it. Its rows that are
new are taken in when they can be told from those that were changed; else the version is listed in `rejected_ingest`.
Decision 0025 says why no more can be told.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.arrival import ARRIVAL, with_place
from pipeline.arrow import arrow_schema
from pipeline.deltalog import actions, exists, rows_of
from pipeline.files import Files
from pipeline.local import is_plain
from pipeline.progress import Position
from pipeline.tables import Warehouse
from schemas import INBOX

_LOG = logging.getLogger(__name__)
REASON = "not_an_append"
"""Of a row of `rejected_ingest` that tells of a whole version; its `properties` say which one, and what to do."""
_SAID = "inbox: version %(version)s (%(operation)s) is no append, %(rows)s rows are not taken in; remedy: %(remedy)s"
_AGAIN = "append the rows that are new once more, by a plain append"
_STAY = "none: a message that was taken in stays as it is; append a changed one as a new message"
_EQUAL = re.compile(r"^(?:\w+\.)?`?(\w+)`?(?:#\d+L?)?\s*=\s*(?:\w+\.)?`?(\w+)`?(?:#\d+L?)?$")
"""One comparison of a condition of MERGE, as Spark and delta-rs write it into the log."""
_KEYS = frozenset(name for name in INBOX.schema.names if name != "properties")
_HASH, _NUMBER, _TIMES = "row_hash", "row_number", "row_times"


@dataclass(frozen=True)
class Change:
    """A version that is no append, and added rows.

    Attributes:
        version: which one.
        operation: as the log has it.
        added: the actions of its added files, with `path` decoded.
        removed: the same of those that it took out.
        inserted: new rows, by its own account; None: it gives none.
        updated: the same for changed rows.
        keys: columns by which a MERGE matched rows; empty: it did so in another way.
    """

    version: int
    operation: str
    added: tuple[Mapping[str, Any], ...]
    removed: tuple[Mapping[str, Any], ...]
    inserted: int | None
    updated: int | None
    keys: tuple[str, ...]

    @classmethod
    def of(cls, version: int, told: Sequence[Mapping[str, Any]]) -> "Change | None":
        """From the actions of a version; None for an append, and for one that only took rows out."""
        info: Mapping[str, Any] = next((each["commitInfo"] for each in told if "commitInfo" in each), {})
        operation, metrics = info.get("operation", "unknown"), info.get("operationMetrics") or {}
        added, removed = (_data_files(told, kind) for kind in ("add", "remove"))
        # RESTORE brings back files that were taken in before, and may take none out.
        if not added or operation == "DELETE" or not (removed or operation == "RESTORE"):
            return None
        inserted = _number(metrics, "numTargetRowsInserted", "num_target_rows_inserted")
        updated = _number(metrics, "numTargetRowsUpdated", "num_target_rows_updated", "numUpdatedRows")
        if operation == "MERGE" and (inserted, updated) == (0, 0):
            return None
        keys = _keys((info.get("operationParameters") or {}).get("predicate")) if operation == "MERGE" else ()
        return cls(version, operation, added, removed, inserted, updated, keys)

    @property
    def may_be_told(self) -> bool:
        """Whether it says what is needed to tell its new rows from changed ones."""
        files = (*self.added, *self.removed)
        return self.operation == "MERGE" and bool(self.inserted and self.keys) and all(map(is_plain, files))

    def left_out(self, *, told: bool) -> int | None:
        """How many of its rows are not taken in; None when nobody knows."""
        if told:
            return self.updated
        if self.inserted is None and self.updated is None:
            return rows_of(self.added)
        return (self.inserted or 0) + (self.updated or 0)

    def refusal(self, *, told: bool) -> dict[str, Any] | None:
        """The row of `rejected_ingest`; None when nothing is left out."""
        rows = self.left_out(told=told)
        if rows == 0:
            return None
        remedy = _STAY if told or self.operation == "UPDATE" or self.inserted == 0 else _AGAIN
        said = {"version": self.version, "operation": self.operation, "rows": "unknown" if rows is None else rows}
        return {"reason": REASON, "properties": {name: str(each) for name, each in said.items()} | {"remedy": remedy}}


class Changes:
    """The versions of an inbox that are no appends."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._files, self._path = spark, Files(spark), warehouse.path(INBOX)

    def between(self, begin: Position, end: Position) -> list[Change]:
        """Those that a batch passes, and one in the middle of which it ends. Reads one small file for each version."""
        versions = range(begin.version, end.version + (end.index >= 0))
        known = (each for each in versions if exists(self._files, self._path, each))
        found = (Change.of(each, actions(self._files, self._path, each)) for each in known)
        return [change for change in found if change is not None]

    def can_be_told(self, change: Change) -> bool:
        """Whether the rows that it calls new are found. Reads its files."""
        if not change.may_be_told:
            return False
        try:
            return self.inserted(change).count() == change.inserted
        except PySparkException:
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
        return new.withColumn("arrival_commit", F.lit(change.version)).select(*INBOX.schema.names, *ARRIVAL)

    def _rows(self, files: Iterable[Mapping[str, Any]]) -> DataFrame:
        rows = self._spark.read.schema(INBOX.schema).parquet(*(f"{self._path}/{file['path']}" for file in files))
        return with_place(rows).withColumn("arrival_row", F.monotonically_increasing_id())


def refused(changes: Iterable[Change], told: Iterable[int]) -> pa.Table:
    """Rows of `rejected_ingest` without their batch: what is left out of versions; `told` are those that were taken."""
    known = frozenset(told)
    rows = [row for each in changes if (row := each.refusal(told=each.version in known)) is not None]
    for said in (row["properties"] for row in rows):
        _LOG.warning(_SAID, said)
    return pa.Table.from_pylist(rows, schema=arrow_schema(INBOX.schema).append(pa.field("reason", pa.string())))


def _less(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Rows without those of others: each of these takes one equal row away."""
    times = others.groupBy(_HASH).agg(F.count("*").alias(_TIMES))
    numbered = rows.withColumn(_NUMBER, F.row_number().over(Window.partitionBy(_HASH).orderBy(*ARRIVAL[1:])))
    return numbered.join(times, _HASH, "left").where(F.col(_NUMBER) > F.coalesce(_TIMES, F.lit(0)))


def _hashed(rows: DataFrame) -> DataFrame:
    told = [F.col(name) for name in INBOX.schema.names if name not in ("properties", "payload")]
    entries = F.array_sort(F.map_entries("properties")).alias("properties")
    return rows.withColumn(_HASH, F.sha2(F.to_json(F.struct(*told, entries, F.sha2("payload", 256))), 256))


def _data_files(told: Iterable[Mapping[str, Any]], kind: str) -> tuple[Mapping[str, Any], ...]:
    files = (each[kind] for each in told if kind in each)
    return tuple({**file, "path": unquote(file["path"])} for file in files if file.get("dataChange"))


def _number(metrics: Mapping[str, Any], *names: str) -> int | None:
    return next((int(metrics[name]) for name in names if name in metrics), None)


def _keys(predicate: object) -> tuple[str, ...]:
    """The columns that a condition compares with themselves, when it does nothing else; else none."""
    try:
        parts = json.loads(str(predicate))
    except ValueError:
        parts = [predicate]
    terms = " AND ".join(map(str, parts if isinstance(parts, list) else [parts]))
    found = [_EQUAL.match(term.strip()) for term in re.split(r"\s+AND\s+", re.sub(r"[()]", " ", terms))]
    names = [match[1] for match in found if match is not None and match[1] == match[2] and match[1] in _KEYS]
    return tuple(names) if len(names) == len(found) else ()
