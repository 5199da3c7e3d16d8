"""`messages` by ledger and due time: the files that may hold what is asked for, and no others.

Their bounds are kept in the driver. What is asked for may be in a file that was compacted since: the newest version is
looked at with each question.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.delta.filestats import span, span_ms
from pipeline.delta.livefiles import LiveFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.hadoop import session_files
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
            first_due, last_due = span_ms(stats, "due_time")
            low, high = span(stats, "ledger_id")
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
        self._spark, self._path = spark, warehouse.path(MESSAGES)
        self._folder = session_files(spark).readable(self._path)
        self._live = LiveFiles(spark, self._path, MESSAGES, lambda file: Bounds.of_statistics(file.get("stats")))

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

    def readable_paths(self, wanted: Sequence[Bounds]) -> list[str] | None:
        """The files that `read` reads, as arrays are read; None where only Spark reads them."""
        return None if self._folder is None else [f"{self._folder}/{path}" for path in self._paths(wanted)]

    def _paths(self, wanted: Sequence[Bounds]) -> list[str]:
        """Relative to the table."""
        _, live = self._live.look()
        return [path for path, held in live.items() if any(held.meets(each) for each in wanted)]
