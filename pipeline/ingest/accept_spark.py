"""A batch of ingest by Spark; see `pipeline.ingest.accept` for the rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS, Settings
from pipeline.delta.arrival import ARRIVAL
from pipeline.delta.numbering import NUMBER, in_order
from pipeline.ingest.accept import Counts, Limits, Target
from pipeline.storage.gather import TEXTS


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
    def of(cls, inbox: DataFrame, limits: Limits, load_until: int, segment_ms: int) -> Iterator["SparkBatch"]:
        """Look at inbox rows with their place of arrival; they are held until the end of the block."""
        classified = classify(inbox, limits)
        small = classified.drop(*TEXTS).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield cls(classified, small, _count(small, load_until, segment_ms))
        finally:
            small.unpersist()

    def messages(self, target: Target, settings: Settings) -> DataFrame:
        """Rows of `messages`."""
        accepted, small = (each.where("reason IS NULL") for each in (self.classified, self.small))
        count = self.counts.accepted
        entries, tasks = settings.entries_per_ledger, settings.tasks(count)
        return message_rows(number(accepted, count, target.first_ledger, entries, tasks, small), target)

    def rejected(self, now: int, batch_id: int, more: pa.Table) -> DataFrame:
        """Rows of `rejected_ingest`."""
        rows = self.classified.where("reason IS NOT NULL")
        rows = rows.unionByName(rows.sparkSession.createDataFrame(more), allowMissingColumns=True)
        return rejected_rows(rows, now, batch_id)


def classify(rows: DataFrame, limits: Limits) -> DataFrame:
    """Add `reason` (NULL: accepted), `published_ms`, `deliver_ms` (NULL: none asked for) and `due_ms` to inbox rows.

    Times are compared as whole numbers, because timestamp arithmetic overflows at the far ends of the calendar and
    would stop the query.
    """
    now, after = F.lit(limits.now), F.col("deliver_after_ms")
    published = F.coalesce(_ceil_ms("publish_time"), now)
    # The clock may be a step behind the producer's: a delay never ends before it would by the producer's clock.
    delayed = F.when(after.between(0, LAST_INSTANT_MS), F.greatest(now, published) + after)
    deliver = F.coalesce(_ceil_ms("deliver_at"), delayed)
    timed = rows.select("*", published.alias("published_ms"), deliver.alias("deliver_ms"))
    due = F.greatest("deliver_ms", "published_ms", F.lit(0))
    return timed.select("*", due.alias("due_ms"), _reason(limits).alias("reason"))


def _ceil_ms(column: str) -> Column:
    return F.unix_millis(column) + F.when(F.pmod(F.unix_micros(column), F.lit(1_000)) > 0, 1).otherwise(0)


def _reason(limits: Limits) -> Column:
    after, published, deliver = F.col("deliver_after_ms"), F.col("published_ms"), F.col("deliver_ms")
    late = F.greatest(published, deliver)
    rules = (
        ("topic_not_utf8", ~F.is_valid_utf8("topic")),
        ("missing_topic", F.col("topic").isNull() | (F.trim("topic") == "")),
        ("deliver_at_and_deliver_after", F.col("deliver_at").isNotNull() & after.isNotNull()),
        ("negative_delay", after < 0),
        ("time_out_of_range", (F.least(published, deliver) < FIRST_INSTANT_MS) | (late > LAST_INSTANT_MS)),
        ("max_delay_exceeded", F.coalesce(after, late - published) > limits.max_delay_ms),
        ("published_in_future", published - F.lit(limits.now) > limits.max_delay_ms),
        ("payload_too_large", F.octet_length("payload") > limits.max_payload_bytes),
    )
    return F.coalesce(*(F.when(broken, F.lit(name)) for name, broken in rules))


def _count(classified: DataFrame, load_until: int, segment_ms: int) -> Counts:
    """One job that materialises the batch and tells what is in it."""
    accepted, parked = F.col("reason").isNull(), F.col("due_ms") >= load_until
    segments = F.collect_set(F.when(accepted & parked, F.floor(F.col("due_ms") / F.lit(segment_ms))))
    row = classified.agg(F.count_if(accepted), F.count_if(~accepted), segments).collect()[0]
    return Counts(row[0], row[1], frozenset(row[2]))


def number(
    accepted: DataFrame, count: int, first_ledger: int, entries: int, tasks: int, small: DataFrame | None = None
) -> DataFrame:
    """Add `ledger_id` and `entry_id`.

    Args:
        accepted: `count` classified rows.
        count: how many.
        first_ledger: the ledger that the first of them gets.
        entries: entries of a ledger.
        tasks: tasks that share the work. Positions do not depend on it.
        small: the same rows without their texts, persisted; None: the rows are cheap to read.
    """
    row, whole = F.col(NUMBER), F.lit(entries)
    numbered = in_order(accepted, ("topic", "due_ms", *ARRIVAL), count, tasks, small)
    ledger = F.lit(first_ledger) + F.floor(row / whole) if count > entries else F.lit(first_ledger)
    return numbered.withColumns({"ledger_id": ledger, "entry_id": F.pmod(row, whole)})


def message_rows(numbered: DataFrame, target: Target) -> DataFrame:
    """Rows of `messages`."""
    after = F.when(F.col("deliver_after_ms").isNotNull(), F.timestamp_millis("deliver_ms"))
    return numbered.select(
        "topic",
        "ledger_id",
        "entry_id",
        "message_key",
        "properties",
        F.coalesce("publish_time", F.timestamp_millis(F.lit(target.now))).alias("publish_time"),
        F.coalesce("deliver_at", after).alias("deliver_at"),
        F.timestamp_millis("due_ms").alias("due_time"),
        (F.col("due_ms") >= target.load_until).alias("parked"),
        F.lit(target.batch_id).alias("batch_id"),
        "payload",
    )


def rejected_rows(rejected: DataFrame, now: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_ingest`."""
    instant = F.timestamp_millis(F.lit(now)).alias("rejected_at")
    return rejected.select("*", instant, F.lit(batch_id).alias("batch_id"))
