"""`messages` by ledger and due time: the files that may hold what is asked for, and no others.

Delta plans a scan from the state of its log, which is a job or two for every new version; ingest makes a version with
each batch. Here the files and their bounds are kept in the driver, and each new version is read once. What is asked
for may be in a file that was compacted since: the newest version is looked at with each question.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline import deltalog
from pipeline.appends import check_features
from pipeline.deltajvm import TableLog
from pipeline.files import Files
from pipeline.footers import span_ms
from pipeline.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.tables import Warehouse
from schemas import MESSAGES

_LAST_LEDGER = (1 << 63) - 1


@dataclass(frozen=True)
class Bounds:
    """Some of the log, or what a file holds of it; both ends are included, times in ms."""

    first_ledger: int = 0
    last_ledger: int = _LAST_LEDGER
    first_due: int = FIRST_INSTANT_MS
    last_due: int = LAST_INSTANT_MS

    @property
    def inside(self) -> Column:
        """Whether a row of `messages` is in it, as literals that readers of Parquet prune by."""
        due = F.col("due_time").between(*(F.timestamp_millis(F.lit(ms)) for ms in (self.first_due, self.last_due)))
        return F.col("ledger_id").between(self.first_ledger, self.last_ledger) & due

    def meets(self, other: "Bounds") -> bool:
        """Whether a row may be in both."""
        ledgers = self.first_ledger <= other.last_ledger and other.first_ledger <= self.last_ledger
        return ledgers and self.first_due <= other.last_due and other.first_due <= self.last_due

    @classmethod
    def of_statistics(cls, stats: str | None) -> "Bounds":
        """What a file may hold, by its statistics; anything when there are none."""
        try:
            first_due, last_due = span_ms(stats or "{}", "due_time")
            low, high = (json.loads(stats or "{}")[name]["ledger_id"] for name in ("minValues", "maxValues"))
        except KeyError:
            return cls()
        # Delta cuts times to milliseconds. Ours have no more, but who knows who wrote the file.
        return cls(low, high, first_due, last_due + 1)


def any_of(bounds: Iterable[Bounds]) -> Column:
    """Whether a row of `messages` is in one of them."""
    return reduce(or_, (each.inside for each in bounds), F.lit(False))  # noqa: FBT003 - a literal column


class MessageLog:
    """The files of `messages`."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._path, self._files = spark, warehouse.path(MESSAGES), Files(spark)
        self._folder = self._files.local(self._path)
        self._log: TableLog | None = None
        self._version = -1
        self._held: dict[str, Bounds] = {}

    def read(self, wanted: Sequence[Bounds], spark: SparkSession | None = None) -> DataFrame:
        """The rows of `messages` as it is now, less those of files that hold nothing within any of the bounds.

        Args:
            wanted: where they are.
            spark: the session of the frame, when that is not the one of the stage.
        """
        spark = spark or self._spark
        paths = self._paths(wanted)
        if not paths:
            return spark.createDataFrame([], MESSAGES.schema)
        return spark.read.schema(MESSAGES.schema).parquet(*(f"{self._path}/{path}" for path in paths))

    def local_paths(self, wanted: Sequence[Bounds]) -> list[str] | None:
        """The files that `read` reads; None when they are not on this machine."""
        return None if self._folder is None else [f"{self._folder}/{path}" for path in self._paths(wanted)]

    @property
    def local(self) -> bool:
        """Whether the files are on this machine."""
        return self._folder is not None

    def _paths(self, wanted: Sequence[Bounds]) -> list[str]:
        """Relative to the table."""
        self._look()
        return [path for path, held in self._held.items() if any(held.meets(each) for each in wanted)]

    def _look(self) -> None:
        """Take in the versions since the last look; all files, by one job, the first time and after a long pause."""
        if self._log is None:
            self._log = TableLog(self._spark, self._path)
        if self._version < 0 or not deltalog.reaches_back(self._files, self._path, self._version):
            check_features(MESSAGES.name, self._log.head())
            self._version, live = self._log.files()
            self._held = {unquote(each["path"]): Bounds.of_statistics(each["stats"]) for each in live}
        newest = deltalog.newest(self._files, self._path, self._version)
        for version in range(self._version + 1, newest + 1):
            actions = deltalog.actions(self._files, self._path, version)
            if deltalog.changes_table(actions):
                check_features(MESSAGES.name, self._log.head())
            # A version may take a file out and put it in again; the order of its actions says nothing.
            for action in sorted(actions, key=lambda each: "add" in each):
                self._apply(action)
        self._version = newest

    def _apply(self, action: Mapping[str, Any]) -> None:
        if "remove" in action:
            self._held.pop(unquote(action["remove"]["path"]), None)
        elif "add" in action:
            self._held[unquote(action["add"]["path"])] = Bounds.of_statistics(action["add"].get("stats"))
