"""A batch of ingest by Spark: it joins, sorts, numbers and writes; what is decided is asked of the core, on executors.

Only small columns leave the JVM. A text may be large, so its length is measured and its bytes are looked at there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.config.arrowudf import arrow_column
from pipeline.config.lazyspark import F
from pipeline.config.session import kept
from pipeline.config.settings import Settings
from pipeline.delta.reading.arrival import ARRIVAL, numbered_by_arrival
from pipeline.delta.writing.numbering import NUMBER, in_order
from pipeline.ingest.core.rules import MESSAGE, ROW, UNKNOWN_ZONE, ZONE, verdicts
from pipeline.ingest.core.terms import Counts, Terms
from pipeline.ingest.texts import refused_texts, short_topics, wrong_text
from pipeline.storage.texts import PAYLOAD_BYTES, WRONG_TEXT
from pipeline.subscriptions.windows import ZONE_BYTES
from schemas import MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER = ("topic", "due_ms", *ARRIVAL)
"""The order in which accepted rows are numbered, as `core.rules.in_order`."""
_VERDICT = "verdict"
"""The column with what the core says of a row."""
_ASKED = {"topic": "string", "publish_time": "timestamp", "deliver_at": "timestamp", "deliver_after_ms": "bigint"}
"""The columns that the core is asked with, beside what is measured."""
_TIMES = ("publish_time", "deliver_at", "due_time", "put_off_from")
_FEW_TOPICS = 16
"""Of so many topics one is looked for in a batch."""
_ANSWERED = {"reason": "string", "due_ms": "bigint", UNKNOWN_ZONE: "boolean"}
_ANSWERED |= dict.fromkeys(_TIMES, "timestamp") | {"parked": "boolean"}


@dataclass(frozen=True)
class SparkBatch:
    """The rows of a batch, looked at.

    Attributes:
        terms: what decides about them.
        classified: the rows. Whoever writes them reads them again.
        small: what orders and counts them, persisted: what is sent may be far more than there is room for.
        counts: what they are.
    """

    terms: Terms
    classified: DataFrame
    small: DataFrame
    counts: Counts

    @classmethod
    @contextmanager
    def of(cls, inbox: DataFrame, terms: Terms) -> Iterator[SparkBatch]:
        """Look at inbox rows with their place of arrival; they are held until the end of the block."""
        classified = classify(inbox, terms)
        small = classified.select(*ORDER, "reason", f"{_VERDICT}.parked", f"{_VERDICT}.{UNKNOWN_ZONE}")
        with kept(small):
            yield cls(terms, classified, small, _count(small, terms))

    def messages(self, settings: Settings) -> DataFrame:
        """Rows of `messages`: dense in the order of `ORDER`."""
        accepted, small = (each.where("reason IS NULL") for each in (self.classified, self.small))
        count = self.counts.accepted
        return message_rows(in_order(accepted, ORDER, count, settings.tasks(count), small), self.terms)

    def rejected(self, more: pa.Table) -> DataFrame:
        """Rows of `rejected_ingest`; `more` rows have a reason already."""
        rows = self.classified.where("reason IS NOT NULL").select(*more.column_names)
        rows = rows.unionByName(rows.sparkSession.createDataFrame(more))
        return rejected_rows(rows, self.terms.now, self.terms.batch_id)


def classify(rows: DataFrame, terms: Terms) -> DataFrame:
    """Add `reason` (NULL: accepted), `due_ms` and `verdict`, which has the columns of `core.rules.MESSAGE`."""
    numbered = _has_spread(rows, terms)
    rows = numbered_by_arrival(short_topics(rows), ROW) if numbered else short_topics(rows)
    rows = rows.withColumn(_VERDICT, _verdict(terms, F.col(ROW) if numbered else F.lit(0).cast("bigint")))
    return rows.select("*", f"{_VERDICT}.reason", f"{_VERDICT}.due_ms")


def _has_spread(rows: DataFrame, terms: Terms) -> bool:
    """Whether a row may be of a topic with a spread: the place of no other one counts.

    Of few such topics rows are looked for until there is one. Readers of Parquet pass over what has none.
    """
    policies = terms.topics.policies.items()
    spread = [topic for topic, each in policies if each.opening is not None and each.opening.spread_ms]
    if not 0 < len(spread) <= _FEW_TOPICS:
        return bool(spread)
    # The partitions of a topic have its policies.
    return not rows.where(reduce(or_, (F.col("topic").startswith(each) for each in spread))).isEmpty()


def _verdict(terms: Terms, row: Column) -> Column:
    """What the core says of a row, by its number. As a value of its own, beside the others: those do not leave the JVM.

    No argument is a list or a map: for every row Spark measures the batch that it makes for Python, and of such columns
    it then reads all that are in the batch already.
    """
    asked = {name: (F.col(name), kind) for name, kind in _ASKED.items()}
    asked[PAYLOAD_BYTES] = F.octet_length("payload").cast("bigint"), "bigint"
    asked[WRONG_TEXT] = wrong_text(), "string"
    windows = terms.topics.windows
    if windows:
        asked[ROW] = row, "bigint"
    for name in sorted({each.zone.property for each in windows if each.zone.property is not None}):
        zone = F.element_at("properties", F.lit(name)).cast("binary")
        asked[ZONE + name] = F.substring(zone, 1, ZONE_BYTES + 1), "binary"
    names = list(asked)

    # Spark reads in the annotations that a value is for each row.
    def of_rows(*columns: pa.Array) -> pa.Array:
        return verdicts(pa.table(list(columns), names=names), terms)

    return arrow_column(of_rows, list(asked.values()), _ANSWERED)


def _count(small: DataFrame, terms: Terms) -> Counts:
    """One job that materialises the batch and tells what is in it; another one if something is rejected."""
    accepted = F.col("reason").isNull()
    segment = F.when(accepted & F.col("parked"), F.floor(F.col("due_ms") / F.lit(terms.segment_ms)))
    express = F.count_if(accepted & (F.col("due_ms") < terms.express))
    sums = F.count_if(accepted), F.count_if(~accepted), F.collect_set(segment), express
    row = small.agg(*sums, F.count_if(accepted & F.col(UNKNOWN_ZONE))).collect()[0]
    reasons = small.where(~accepted).groupBy("reason").count().collect() if row[1] else []
    return Counts(row[0], {each[0]: each[1] for each in reasons}, frozenset(row[2]), row[3], row[4])


def message_rows(numbered: DataFrame, terms: Terms) -> DataFrame:
    """Rows of `messages` from classified rows with their numbers."""
    made = {name: F.col(f"{_VERDICT}.{name}") for name in MESSAGE} | {
        "ledger_id": F.lit(terms.first_ledger) + F.call_function("div", F.col(NUMBER), F.lit(terms.entries)),
        "entry_id": F.pmod(NUMBER, F.lit(terms.entries)),
        "batch_id": F.lit(terms.batch_id),
    }
    return numbered.select(*(made[name].alias(name) if name in made else name for name in MESSAGES.columns.names))


def rejected_rows(rejected: DataFrame, now: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_ingest`."""
    instant = F.timestamp_millis(F.lit(now)).alias("rejected_at")
    return refused_texts(rejected).select("*", instant, F.lit(batch_id).alias("batch_id"))
