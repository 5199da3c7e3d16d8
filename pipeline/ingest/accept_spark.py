"""A batch of ingest by Spark; `rules` has the rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.session import kept
from pipeline.config.settings import Settings
from pipeline.delta.writing.numbering import columns_of, in_order
from pipeline.ingest.accept import Counts, Ledgers, Limits, Target, Ways
from pipeline.ingest.rules import MESSAGE, ORDER, POSITION, TIMES, expressions, reason_column
from pipeline.storage.gather import TEXTS
from schemas import MESSAGES


@dataclass(frozen=True)
class SparkBatch:
    """As `pipeline.ingest.accept.Batch`.

    Attributes:
        classified: the rows. Whoever writes them reads them again.
        small: the same without texts, persisted: what is sent may be far more than there is room for.
        counts: what they are.
    """

    classified: DataFrame
    small: DataFrame
    counts: Counts

    @classmethod
    @contextmanager
    def of(cls, inbox: DataFrame, limits: Limits, ways: Ways) -> Iterator["SparkBatch"]:
        """Look at inbox rows with their place of arrival; they are held until the end of the block."""
        classified = classify(inbox, limits)
        small = classified.drop(*TEXTS)
        with kept(small):
            yield cls(classified, small, _count(small, ways))

    def messages(self, target: Target, settings: Settings) -> DataFrame:
        """Rows of `messages`."""
        accepted, small = (each.where("reason IS NULL") for each in (self.classified, self.small))
        count, ledgers = self.counts.accepted, Ledgers(target.first_ledger, settings.entries_per_ledger)
        return message_rows(number(accepted, count, ledgers, settings.tasks(count), small), target)

    def rejected(self, now: int, batch_id: int, more: pa.Table) -> DataFrame:
        """Rows of `rejected_ingest`."""
        rows = self.classified.where("reason IS NOT NULL")
        rows = rows.unionByName(rows.sparkSession.createDataFrame(more), allowMissingColumns=True)
        return rejected_rows(rows, now, batch_id)


def classify(rows: DataFrame, limits: Limits) -> DataFrame:
    """Add `reason` (NULL: accepted), `published_ms`, `deliver_ms` (NULL: none asked for) and `due_ms` to inbox rows."""
    for rule in TIMES:
        rows = rows.withColumn(rule.name, rule.spark(limits))
    return rows.withColumn("reason", reason_column(limits))


def _count(classified: DataFrame, ways: Ways) -> Counts:
    """One job that materialises the batch and tells what is in it."""
    accepted, parked = F.col("reason").isNull(), F.col("due_ms") >= ways.load_until
    segments = F.collect_set(F.when(accepted & parked, F.floor(F.col("due_ms") / F.lit(ways.segment_ms))))
    express = F.count_if(accepted & (F.col("due_ms") < ways.express))
    row = classified.agg(F.count_if(accepted), F.count_if(~accepted), segments, express).collect()[0]
    return Counts(row[0], row[1], frozenset(row[2]), row[3])


def number(accepted: DataFrame, count: int, ledgers: Ledgers, tasks: int, small: DataFrame | None = None) -> DataFrame:
    """Add `ledger_id` and `entry_id`.

    Args:
        accepted: `count` classified rows.
        count: how many.
        ledgers: which ledgers they fill.
        tasks: tasks that share the work. Positions do not depend on it.
        small: the same rows without their texts, persisted; None: the rows are cheap to read.
    """
    return in_order(accepted, columns_of(ORDER), count, tasks, small).withColumns(expressions(POSITION, ledgers))


def message_rows(numbered: DataFrame, target: Target) -> DataFrame:
    """Rows of `messages`."""
    made = expressions(MESSAGE, target)
    return numbered.select(*(made[name].alias(name) if name in made else name for name in MESSAGES.schema.names))


def rejected_rows(rejected: DataFrame, now: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_ingest`."""
    instant = F.timestamp_millis(F.lit(now)).alias("rejected_at")
    return rejected.select("*", instant, F.lit(batch_id).alias("batch_id"))
