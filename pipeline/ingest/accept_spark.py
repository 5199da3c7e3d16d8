"""A batch of ingest by Spark: it joins, sorts, numbers and writes; what is decided is asked of the core, on executors.

Only small columns leave the JVM. A text may be large, so its length is measured and its bytes are looked at there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate
from operator import and_, or_
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.arrowudf import arrow_column
from pipeline.config.lazyspark import F
from pipeline.config.session import kept
from pipeline.config.settings import Settings
from pipeline.delta.reading.arrival import ARRIVAL, numbered_by_arrival
from pipeline.delta.writing.numbering import NUMBER, in_order
from pipeline.ingest.core.rules import BOUND, DUPLICATE, LATEST, MESSAGE, REPLACING, ROW, UNKNOWN_ZONE, ZONE, verdicts
from pipeline.ingest.core.terms import Counts, Terms
from pipeline.ingest.core.uniqueness import (
    KEY,
    NO_KEYS,
    Decide,
    EndedBatch,
    UniqueBatch,
    asking,
    key_names,
    unique_rows,
)
from pipeline.ingest.keyless import KEYLESS
from pipeline.ingest.texts import refused_texts, short_topics, wrong_text
from pipeline.storage.arrays import longs, ordered, ranks
from pipeline.storage.texts import PAYLOAD_BYTES, WRONG_TEXT
from pipeline.subscriptions.records import REPLACES
from pipeline.subscriptions.windows import ZONE_BYTES
from schemas import MESSAGES, OLDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ORDER = ("topic", "due_ms", *ARRIVAL)
"""The order in which accepted rows are numbered, as `core.rules.in_order`."""
_VERDICT = "verdict"
"""The column with what the core says of a row."""
_ASKED = {"topic": "string", "publish_time": "timestamp", "deliver_at": "timestamp", "deliver_after_ms": "bigint"}
"""The columns that the core is asked with, beside what is measured."""
_TIMES = ("publish_time", "deliver_at", "due_time", "put_off_from", "latest_due")
_OF_KEYS = {BOUND: "bigint", LATEST: "bigint", DUPLICATE: "boolean"}
"""What was decided of rows whose keys may meet; NULL for others."""
_FEW_TOPICS = 16
"""Of so many topics one is looked for in a batch."""
_ANSWERED = {"reason": "string", "due_ms": "bigint", UNKNOWN_ZONE: "boolean", REPLACING: "boolean"}
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
    unique: UniqueBatch = NO_KEYS

    @classmethod
    @contextmanager
    def of(cls, inbox: DataFrame, terms: Terms, decide: Decide | None = None) -> Iterator[SparkBatch]:
        """Look at inbox rows with their place of arrival; they are held until the end of the block.

        `decide` is asked where keys may meet.
        """
        classified = classify(inbox, terms)
        unique = NO_KEYS if decide is None else _unique(classified, terms, decide)
        if unique.parts:
            made = _made(classified.sparkSession, unique)
            classified = classify(classified.drop(_VERDICT, "reason", "due_ms").join(made, ROW, "left"), terms)
        number = [ROW] if unique.parts else []
        said = [f"{_VERDICT}.{name}" for name in ("parked", UNKNOWN_ZONE, REPLACING)]
        small = classified.select(*ORDER, *number, "reason", *said)
        with kept(small):
            counts, names = _count(small, terms)
            more = asking(names, terms.topics) if decide is not None else set()
            if not more:
                yield cls(terms, classified, small, counts, unique)
        if more:
            with cls.of(inbox, replace(terms, topics=terms.topics.with_replacing(more)), decide) as batch:
                yield batch

    def messages(self, settings: Settings) -> DataFrame:
        """Rows of `messages`: dense in the order of `ORDER`."""
        accepted, small = (each.where("reason IS NULL") for each in (self.classified, self.small))
        count = self.counts.accepted
        return message_rows(in_order(accepted, ORDER, count, settings.tasks(count), small), self.terms)

    @cached_property
    def ended(self) -> EndedBatch:
        """What it comes to for those whose keys meet."""
        accepted = self.small.where("reason IS NULL")
        found = _of_unique(accepted, self.terms).select("topic", ROW, "due_ms").toArrow()
        counts = {row["topic"]: row["count"] for row in accepted.groupBy("topic").count().collect()}
        rows, due, topic = longs(found, ROW), longs(found, "due_ms"), ranks(found, "topic")
        order = ordered([topic, due, rows])
        # The rows of a topic stand together, behind those of the topics before it.
        names = sorted(set(found.column("topic").to_pylist()))
        before = dict(
            zip(sorted(counts), accumulate((counts[name] for name in sorted(counts)), initial=0), strict=False)
        )
        firsts, starts = (
            np.array([before[name] for name in names], np.int64),
            np.unique(topic[order], return_index=True)[1],
        )
        places, times = (np.full(int(rows.max(initial=-1)) + 1, -1) for _ in range(2))
        places[rows[order]] = np.arange(len(rows)) + (firsts - starts)[topic[order]]
        times[rows] = due
        return self.unique.ended(times.__getitem__, places.__getitem__, self.terms)

    def rejected(self, more: pa.Table) -> DataFrame:
        """Rows of `rejected_ingest`; `more` rows have a reason already."""
        rows, older = self.classified.where("reason IS NOT NULL"), dict.fromkeys(OLDER, F.lit(None).cast("bigint"))
        others = arrow_frame(rows.sparkSession, more).withColumns(older)
        if self.unique.parts:
            refused = self.unique.refused
            table = pa.table({ROW: refused, **self.ended.older(refused)})
            rows = rows.join(arrow_frame(rows.sparkSession, table), ROW, "left")
        else:
            rows = rows.withColumns(older)
        rows = rows.select(*more.column_names, *OLDER).unionByName(others)
        return rejected_rows(rows, self.terms.now, self.terms.batch_id)


def classify(rows: DataFrame, terms: Terms) -> DataFrame:
    """Add `reason` (NULL: accepted), `due_ms` and `verdict`, which has the columns of `core.rules.MESSAGE`."""
    rows = short_topics(rows)
    if ROW not in rows.columns and _is_numbered(rows, terms):
        rows = numbered_by_arrival(rows, ROW)
    number = F.col(ROW) if ROW in rows.columns else F.lit(0).cast("bigint")
    rows = rows.withColumn(_VERDICT, _verdict(terms, number, [each for each in _OF_KEYS if each in rows.columns]))
    return rows.select("*", f"{_VERDICT}.reason", f"{_VERDICT}.due_ms")


def _is_numbered(rows: DataFrame, terms: Terms) -> bool:
    """Whether a row may be of a topic with a spread, or one on which keys may meet: the place of no other one counts.

    Of few such topics rows are looked for until there is one. Readers of Parquet pass over what has none.
    """
    policies = terms.topics.policies.items()
    spread = {topic for topic, each in policies if each.opening is not None and each.opening.spread_ms}
    wanted = spread | _unique_topics(terms)
    if not 0 < len(wanted) <= _FEW_TOPICS:
        return bool(wanted)
    return not rows.where(_is_of(wanted)).isEmpty()


def _unique_topics(terms: Terms) -> set[str]:
    return set(terms.topics.unique)


def _is_of(topics: Iterable[str]) -> Column:
    """Whether a row may be of some topics: the partitions of a topic have its policies."""
    return reduce(or_, (F.col("topic").startswith(each) for each in topics))


def _of_unique(rows: DataFrame, terms: Terms) -> DataFrame:
    """Rows that may be of topics on which keys may meet."""
    wanted = _unique_topics(terms)
    return rows.where(_is_of(wanted)) if len(wanted) <= _FEW_TOPICS else rows


def _unique(classified: DataFrame, terms: Terms, decide: Decide) -> UniqueBatch:
    """What becomes of rows that nothing else refuses, where keys may meet."""
    if ROW not in classified.columns or not terms.topics.unique:
        return NO_KEYS
    columns = {"published_ms": F.expr(f"(unix_micros({_VERDICT}.publish_time) + 999) div 1000")}
    for name in sorted(key_names(terms.topics)):
        text = F.element_at("properties", F.lit(name)) if name else F.col("message_key")
        # As `keyless.unique_keys`.
        marks = (F.element_at("properties", F.lit(each)).isNull() for each in KEYLESS)
        columns[KEY + name] = F.when(reduce(and_, marks), text).cast("binary")
    rows = _of_unique(classified.where("reason IS NULL"), terms)
    found = rows.select("topic", ROW, "due_ms", *(each.alias(name) for name, each in columns.items())).toArrow()
    found = found.sort_by(ROW)
    topics = unique_rows(found, terms.topics)
    return decide(found, topics, terms.topics) if topics else NO_KEYS


def _made(session: SparkSession, unique: UniqueBatch) -> DataFrame:
    """What is said of rows, by their numbers."""
    rows = unique.rows
    columns = unique.columns(int(rows.max(initial=-1)) + 1)
    return arrow_frame(session, pa.table({ROW: rows, **{n: each.take(rows) for n, each in columns.items()}}))


def _verdict(terms: Terms, row: Column, of_keys: Sequence[str] = ()) -> Column:
    """What the core says of a row, by its number, and by what was decided of its key.

    As a value of its own, beside the others: those do not leave the JVM.

    No argument is a list or a map: for every row Spark measures the batch that it makes for Python, and of such columns
    it then reads all that are in the batch already.
    """
    asked = {name: (F.col(name), kind) for name, kind in _ASKED.items()}
    asked[PAYLOAD_BYTES] = F.octet_length("payload").cast("bigint"), "bigint"
    asked[WRONG_TEXT] = wrong_text(), "string"
    # Given back as it is: so properties need not wait beside the rows of which Python is asked.
    asked[REPLACING] = F.element_at("properties", F.lit(REPLACES)).isNotNull(), "boolean"
    windows = terms.topics.windows
    if windows:
        asked[ROW] = row, "bigint"
    for name in sorted({each.zone.property for each in windows if each.zone.property is not None}):
        zone = F.element_at("properties", F.lit(name)).cast("binary")
        asked[ZONE + name] = F.substring(zone, 1, ZONE_BYTES + 1), "binary"
    asked |= {name: (F.col(name), kind) for name, kind in _OF_KEYS.items() if name in of_keys}
    names = list(asked)

    # Spark reads in the annotations that a value is for each row.
    def of_rows(*columns: pa.Array) -> pa.Array:
        return verdicts(pa.table(list(columns), names=names), terms)

    return arrow_column(of_rows, list(asked.values()), _ANSWERED)


def _count(small: DataFrame, terms: Terms) -> tuple[Counts, list[str]]:
    """One job that materialises the batch and tells what is in it; another one if something is rejected.

    Also the topics of which accepted messages ask to replace others.
    """
    accepted = F.col("reason").isNull()
    segment = F.when(accepted & F.col("parked"), F.floor(F.col("due_ms") / F.lit(terms.segment_ms)))
    express = F.count_if(accepted & (F.col("due_ms") < terms.express))
    sums = F.count_if(accepted), F.count_if(~accepted), F.collect_set(segment), express
    names = F.collect_set(F.when(accepted & F.col(REPLACING), F.col("topic")))
    row = small.agg(*sums, F.count_if(accepted & F.col(UNKNOWN_ZONE)), names).collect()[0]
    reasons = small.where(~accepted).groupBy("reason").count().collect() if row[1] else []
    return Counts(row[0], {each[0]: each[1] for each in reasons}, frozenset(row[2]), row[3], row[4]), row[5]


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
