"""`messages` by ledger and due time: the files that may hold what is asked for, and no others.

Their bounds are kept in the driver. What is asked for may be in a file that was compacted since: the newest version is
looked at with each question.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.delta.logs.filestats import count, span, span_ms
from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.warehouse import Warehouse
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

    def share(self, other: "Bounds") -> float:
        """The part of its due times that lies within other bounds; it has to meet them."""
        common = min(self.last_due, other.last_due) - max(self.first_due, other.first_due) + 1
        return common / (self.last_due - self.first_due + 1)

    @classmethod
    def of_statistics(cls, stats: str | None) -> "Bounds":
        """What a file may hold, by its statistics; anything when there are none."""
        try:
            first_due, last_due = span_ms(stats, "due_time")
            low, high = span(stats, "ledger_id")
        except KeyError:
            return cls()
        # Delta cuts times to milliseconds. Ours have no more, but who knows who wrote the file.
        return cls(low, high, first_due, last_due + 1)


def any_of(bounds: Iterable[Bounds]) -> Column:
    """Whether a row of `messages` is in one of them."""
    return reduce(or_, (each.inside for each in bounds), F.lit(False))  # noqa: FBT003 - a literal column


@dataclass(frozen=True)
class MessageFile:
    """A file of the log: its path relative to the table, what it holds, and how many rows; 0 where nobody knows."""

    path: str
    held: Bounds
    rows: int


class MessageLog:
    """The files of `messages`."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._warehouse, self._path = warehouse, warehouse.path(MESSAGES)
        self._folder = warehouse.files.readable(self._path)
        self._live = LiveFiles(warehouse.session, self._path, MESSAGES, _held)

    def read(self, wanted: Sequence[Bounds], spark: SparkSession | None = None) -> DataFrame:
        """The rows of `messages` as it is now, less those of files that hold nothing within any of the bounds.

        Args:
            wanted: where they are.
            spark: the session of the frame, when that is not the one of the stage.
        """
        return self.rows_of(self.files(wanted), spark)

    def rows_of(self, files: Iterable[MessageFile], spark: SparkSession | None = None) -> DataFrame:
        """All rows of some files."""
        spark, paths = spark or self._warehouse.spark, [f"{self._path}/{file.path}" for file in files]
        if not paths:
            return spark.createDataFrame([], MESSAGES.schema)
        return spark.read.schema(MESSAGES.schema).parquet(*paths)

    def readable_paths(self, files: Iterable[MessageFile]) -> list[str] | None:
        """The paths of files as arrays are read; None where only Spark reads them."""
        return None if self._folder is None else [f"{self._folder}/{file.path}" for file in files]

    def files(self, wanted: Sequence[Bounds]) -> list[MessageFile]:
        """The files that may hold something within any of the bounds, as the table is now."""
        _, live = self._live.look()
        held = ((path, *entry) for path, entry in live.items())
        return [MessageFile(*each) for each in held if any(each[1].meets(bounds) for bounds in wanted)]


def about(files: Iterable[MessageFile], wanted: Bounds) -> int:
    """About how many messages within bounds files hold, as if those of a file were spread evenly over its due times."""
    return round(sum(file.rows * file.held.share(wanted) for file in files if file.held.meets(wanted)))


def _held(file: Mapping[str, Any]) -> tuple[Bounds, int]:
    stats = file.get("stats")
    return Bounds.of_statistics(stats), count(stats) or 0
