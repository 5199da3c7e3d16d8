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
from pipeline.ingest.accept import Counts, Terms
from pipeline.ingest.rules import MESSAGE, ORDER, TIMES, expressions, reason_column
from pipeline.ingest.texts import refused_texts, short_topics
from pipeline.storage.gather import TEXTS
from schemas import MESSAGES


@dataclass(frozen=True)
class SparkBatch:
    """The rows of a batch, looked at.

    Attributes:
        terms: what decides about them.
        classified: the rows. Whoever writes them reads them again.
        small: the same without texts, persisted: what is sent may be far more than there is room for.
        counts: what they are.
    """

    terms: Terms
    classified: DataFrame
    small: DataFrame
    counts: Counts

    @classmethod
    @contextmanager
    def of(cls, inbox: DataFrame, terms: Terms) -> Iterator["SparkBatch"]:
        """Look at inbox rows with their place of arrival; they are held until the end of the block."""
        classified = classify(inbox, terms)
        small = classified.drop(*TEXTS)
        with kept(small):
            yield cls(terms, classified, small, _count(small, terms))

    def messages(self, settings: Settings) -> DataFrame:
        """Rows of `messages`: dense in the order of `rules.ORDER`."""
        accepted, small = (each.where("reason IS NULL") for each in (self.classified, self.small))
        count = self.counts.accepted
        numbered = in_order(accepted, columns_of(ORDER), count, settings.tasks(count), small)
        return message_rows(numbered, self.terms)

    def rejected(self, more: pa.Table) -> DataFrame:
        """Rows of `rejected_ingest`; `more` rows have a reason already."""
        rows = self.classified.where("reason IS NOT NULL")
        rows = rows.unionByName(rows.sparkSession.createDataFrame(more), allowMissingColumns=True)
        return rejected_rows(rows, self.terms.now, self.terms.batch_id)


def classify(rows: DataFrame, terms: Terms) -> DataFrame:
    """Add `reason` (NULL: accepted), `published_ms`, `deliver_ms` (NULL: none asked for) and `due_ms` to inbox rows."""
    rows = short_topics(rows)
    for rule in TIMES:
        rows = rows.withColumn(rule.name, rule.spark(terms))
    return rows.withColumn("reason", reason_column(terms))


def _count(classified: DataFrame, terms: Terms) -> Counts:
    """One job that materialises the batch and tells what is in it."""
    accepted, parked = F.col("reason").isNull(), F.col("due_ms") >= terms.load_until
    segments = F.collect_set(F.when(accepted & parked, F.floor(F.col("due_ms") / F.lit(terms.segment_ms))))
    express = F.count_if(accepted & (F.col("due_ms") < terms.express))
    row = classified.agg(F.count_if(accepted), F.count_if(~accepted), segments, express).collect()[0]
    return Counts(row[0], row[1], frozenset(row[2]), row[3])


def message_rows(numbered: DataFrame, terms: Terms) -> DataFrame:
    """Rows of `messages` from classified rows with their numbers."""
    made = expressions(MESSAGE, terms)
    return numbered.select(*(made[name].alias(name) if name in made else name for name in MESSAGES.schema.names))


def rejected_rows(rejected: DataFrame, now: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_ingest`."""
    instant = F.timestamp_millis(F.lit(now)).alias("rejected_at")
    return refused_texts(rejected).select("*", instant, F.lit(batch_id).alias("batch_id"))
