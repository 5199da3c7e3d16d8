"""Ingest, row by row: what is accepted, when it is due, and which position it gets.

There are two ways to take a batch, with the same rows: by whole arrays in the driver (`pipeline.ingest.accept_local`),
when it is small, and by Spark (`pipeline.ingest.accept_spark`), however large it is. `pipeline.ingest.rules` has the
rules of both.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from pipeline.config.settings import Settings
from pipeline.subscriptions.topicpolicies import NO_POLICIES, Topics


@dataclass(frozen=True)
class Limits:
    """What decides whether a row is accepted, and when it is due.

    Attributes:
        now: the instant of the batch, ms.
        max_delay_ms: a longer delay is refused.
        max_payload_bytes: a larger payload is refused.
        topics: the policies of topics.
    """

    now: int
    max_delay_ms: int
    max_payload_bytes: int
    topics: Topics = field(default=NO_POLICIES, hash=False)


@dataclass(frozen=True)
class Counts:
    """What a batch holds; `parked` are the segments (by number) of what is parked, `express` is how many go express."""

    accepted: int = 0
    rejected: int = 0
    parked: frozenset[int] = frozenset()
    express: int = 0


@dataclass(frozen=True)
class Ways:
    """Which way accepted rows take, by their due times; all in ms.

    Attributes:
        express: messages that are due before this time (ms) skip the schedule.
        load_until: what is due from here on is parked.
        segment_ms: the span of a segment.
    """

    express: int
    load_until: int
    segment_ms: int


@dataclass(frozen=True)
class Target:
    """Where the accepted rows of a batch go.

    Attributes:
        first_ledger: the ledger that the first of them gets; `ledgers` says how many are taken.
        now: the batch's instant, ms.
        load_until: what is due from here on is parked, ms.
        batch_id: the batch.
    """

    first_ledger: int
    now: int
    load_until: int
    batch_id: int


@dataclass(frozen=True)
class Ledgers:
    """The ledgers that the accepted rows of a batch fill, one after the other: the first one, and entries of each."""

    first: int
    entries: int


class Batch(Protocol):
    """The rows of a batch, looked at."""

    @property
    def counts(self) -> Counts:
        """What it holds."""
        ...

    def messages(self, target: Target, settings: Settings) -> DataFrame | Iterable[pa.Table]:
        """Rows of `messages`: dense in (topic, due, arrival) order, so that what is due together is a run."""
        ...

    def rejected(self, now: int, batch_id: int, more: pa.Table) -> DataFrame | Iterable[pa.Table]:
        """Rows of `rejected_ingest`: the reason, and the source row as it came; `more` rows have both already."""
        ...


def ledgers(count: int, entries: int) -> int:
    """How many ledgers of so many entries `count` messages fill."""
    return -(-count // entries)
