"""Spark and the driver make the same of any batch of ingest: random rows of topics with all kinds of policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.config.settings import Settings
from pipeline.ingest.accept_local import LocalBatch
from pipeline.ingest.accept_spark import SparkBatch
from pipeline.ingest.core.terms import Terms, ledgers
from pipeline.ingest.core.uniqueness import UniqueBatch, UniqueTopic, Until
from pipeline.ingest.stage import Batch
from pipeline.storage.arrays import IntArray
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.records import REPLACES
from pipeline.subscriptions.registry import refusals
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import MESSAGES, REJECTED_INGEST
from state.keys import WaitingKeys
from state.unique import Mode
from state.units import Ms
from tests.spark.ingest.test_accept import in_order, written
from tests.support.rows import T0, arrived

MINUTE = 60_000
WINDOW = {"window": "08:00-20:00", "window_zone": "property:zone, Europe/Rome"}
POLICIES: dict[str, dict[str, Any]] = {
    "newest": {"unique": "replace"},
    "first": {"unique": "drop"},
    "put off": {"unique": "extend", "unique_max_wait_ms": 5 * MINUTE},
    "by tenant": {"unique": "drop", "unique_by": "property:tenant"},
    "by day": WINDOW,
    "spread": {**WINDOW, "window_spread_ms": 10 * MINUTE},
    "newest by day": {**WINDOW, "unique": "replace", "window_spread_ms": MINUTE},
    "put off by day": {**WINDOW, "unique": "extend", "unique_max_wait_ms": 5 * MINUTE},
}
PLAIN = ("plain", "plain-partition-1")
"""A topic without the policy: messages may ask to replace others."""
TOPICS = Topics({name: TopicPolicies(**each) for name, each in POLICIES.items()})
PROPERTIES = st.dictionaries(
    st.sampled_from(["zone", "tenant", "other", REPLACES]),
    st.sampled_from(["Europe/Rome", "Asia/Tokyo", "Mars/Olympus", "", None, "a", "b"]),
    max_size=2,
)
ROWS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([*POLICIES, *POLICIES, "first-partition-1", *PLAIN, *PLAIN, "", None]),
        "message_key": st.sampled_from(["a", "b", "c", "", None]),
        "properties": PROPERTIES.map(lambda found: list(found.items())),
        "deliver_after_ms": st.sampled_from([None, 0, 1, MINUTE, 3 * MINUTE, 600 * MINUTE, -1, 10**12]),
        "payload": st.sampled_from([None, b"", b"x", b"too long"]),
    }
)
BATCHES = st.lists(st.lists(ROWS, min_size=12, max_size=40), min_size=2, max_size=2)


@dataclass
class Side:
    """Who takes in batches, one after the other, and what waits by then."""

    waiting: dict[str, WaitingKeys] = field(default_factory=dict)

    def decide(self, now: int, rows: pa.Table, by_topic: Mapping[str, IntArray], topics: Topics) -> UniqueBatch:
        """What becomes of the rows whose keys meet."""
        found = []
        for name, numbers in by_topic.items():
            rule = topics.unique[name]
            known = self.waiting.setdefault(name, WaitingKeys(bounded=rule.mode == Mode.EXTEND))
            found.append((UniqueTopic(name, rule, known, lambda waiting: waiting.due), numbers))
        return UniqueBatch.of(rows, found, Until(now, now, b"salt"))

    def took(self, batch: Batch) -> tuple[Any, ...]:
        """Take a batch in; what it comes to."""
        messages, refused = batch.messages(Settings()), batch.rejected(refusals([]))
        found = (
            batch.counts,
            sorted(written(messages, MESSAGES), key=str),
            sorted(written(refused, REJECTED_INGEST), key=str),
        )
        if not batch.unique.parts:
            return found
        batch.ended.take_in()
        return *found, sorted(batch.ended.replaced.to_pylist(), key=str)


def test_spark_makes_of_a_batch_what_the_driver_does(spark: SparkSession) -> None:
    """Messages, refusals, what is replaced, and what waits for the next batch."""

    @settings(max_examples=2, phases=[Phase.explicit, Phase.generate])
    @given(BATCHES)
    def search(batches: list[list[dict[str, Any]]]) -> None:
        same(spark, batches)

    search()


def same(spark: SparkSession, batches: list[list[dict[str, Any]]]) -> None:
    """Let both take in the batches."""
    by_spark, here = Side(), Side()
    terms = Terms(
        now=Ms(T0), max_delay_ms=1_000 * MINUTE, max_payload_bytes=4, topics=TOPICS, express=T0 + 2, entries=8
    )
    for number, rows in enumerate(batches):
        now, sent = terms.now, {"publish_time": terms.now * 1_000}
        frame = arrived(spark, *(row | sent for row in rows))
        with SparkBatch.of(frame, terms, partial(by_spark.decide, now)) as batch:
            found = by_spark.took(batch)
        local = LocalBatch.of(in_order(frame), terms, partial(here.decide, now))
        assert found == here.took(local), number
        topics = TOPICS.with_replacing(local.terms.topics.replacing)
        first = terms.first_ledger + ledgers(local.counts.accepted, terms.entries)
        terms = replace(terms, now=Ms(now + 2 * MINUTE), express=now + 2 * MINUTE, first_ledger=first, topics=topics)
