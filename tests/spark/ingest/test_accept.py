"""Which inbox rows are accepted, when they are due, and which positions they get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS, MINUTE_MS, Settings
from pipeline.delta.reading.arrival import ARRIVAL
from pipeline.ingest import accept_local
from pipeline.ingest.accept import Counts, Terms, ledgers
from pipeline.ingest.accept_local import INBOX_ROWS, LocalBatch
from pipeline.ingest.accept_spark import SparkBatch, classify
from pipeline.ingest.stage import Batch
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.gather import Gathered
from pipeline.subscriptions.incarnations import Subscription
from pipeline.subscriptions.records import REFUSED_MS
from pipeline.subscriptions.registry import refusals
from schemas import INBOX, MESSAGES, REJECTED_INGEST, Table
from tests.support.rows import T0, arrived, messages

SEGMENT_MS = 5 * MINUTE_MS
US = 1_000
TERMS = Terms(
    now=T0,
    max_delay_ms=10_000,
    max_payload_bytes=4,
    express=T0 + 2,
    load_until=T0 + 5,
    segment_ms=SEGMENT_MS,
    first_ledger=5,
    batch_id=8,
)
YEAR_1900 = -2_208_988_800_000


Said = tuple[int, int | None, int, str | None]
Look = Callable[[DataFrame, Terms], list[Said]]


def by_spark(rows: DataFrame, terms: Terms) -> list[Said]:
    """What acceptance says about rows, in the order of arrival."""
    said = classify(rows, terms).orderBy("arrival_row").select("published_ms", "deliver_ms", "due_ms", "reason")
    return [tuple(row) for row in said.collect()]


def in_the_driver(rows: DataFrame, terms: Terms) -> list[Said]:
    """The same by whole arrays."""
    said = accept_local.classify(in_order(rows).rows, terms).select(["published_ms", "deliver_ms", "due_ms", "reason"])
    return [tuple(row.values()) for row in said.to_pylist()]


def in_order(rows: DataFrame) -> Gathered:
    """Rows of the inbox as the driver reads them."""
    return Gathered.of(INBOX, rows.orderBy(*ARRIVAL).select(*INBOX.schema.names).toArrow().cast(INBOX_ROWS))


both_ways = pytest.mark.parametrize("look", [by_spark, in_the_driver])


@both_ways
def test_a_message_is_due_at_the_later_of_delivery_and_publication(spark: SparkSession, look: Look) -> None:
    """Without a time it is due now; a duration counts from the later of batch and publication; 1900 is simply due."""
    rows: list[dict[str, Any]] = [
        {},
        {"deliver_at": (T0 + 5) * US},
        {"deliver_after_ms": 7},
        {"deliver_after_ms": 0, "publish_time": (T0 + 3) * US},
        {"deliver_at": (T0 - 9) * US, "publish_time": (T0 - 2) * US},
        {"deliver_at": YEAR_1900 * US},
        {"deliver_at": YEAR_1900 * US, "publish_time": YEAR_1900 * US},
    ]
    assert look(arrived(spark, *rows), TERMS) == [
        (T0, None, T0, None),
        (T0, T0 + 5, T0 + 5, None),
        (T0, T0 + 7, T0 + 7, None),
        (T0 + 3, T0 + 3, T0 + 3, None),
        (T0 - 2, T0 - 9, T0 - 2, None),
        (T0, YEAR_1900, T0, None),
        (YEAR_1900, YEAR_1900, 0, None),
    ]


@both_ways
def test_microseconds_are_rounded_up(spark: SparkSession, look: Look) -> None:
    """A microsecond after a millisecond is the next millisecond: rounding down would deliver early, before 1970 too."""
    rows: list[dict[str, Any]] = [
        {"deliver_at": T0 * US + 1},
        {"deliver_at": T0 * US + 999},
        {"deliver_at": T0 * US + 1_000},
        {"publish_time": T0 * US + 1},
        {"publish_time": -1_999, "deliver_at": -1_001},
    ]
    assert look(arrived(spark, *rows), TERMS) == [
        (T0, T0 + 1, T0 + 1, None),
        (T0, T0 + 1, T0 + 1, None),
        (T0, T0 + 1, T0 + 1, None),
        (T0 + 1, None, T0 + 1, None),
        (-1, -1, 0, None),
    ]


@both_ways
@pytest.mark.parametrize(
    ("reason", "good", "bad"),
    [
        (
            "refused_by_source",
            [{}],
            [{"deliver_after_ms": REFUSED_MS, "topic": topic} for topic in ("t", None)],
        ),
        ("missing_topic", [{"topic": "t"}], [{"topic": None}, {"topic": ""}, {"topic": "  "}]),
        (
            "deliver_at_and_deliver_after",
            [{"deliver_at": T0 * US}, {"deliver_after_ms": 1}],
            [{"deliver_at": T0 * US, "deliver_after_ms": 1}],
        ),
        ("negative_delay", [{"deliver_after_ms": 0}], [{"deliver_after_ms": -1}, {"deliver_after_ms": -(2**63)}]),
        (
            "time_out_of_range",
            [{"publish_time": FIRST_INSTANT_MS * US}, {"deliver_at": FIRST_INSTANT_MS * US}],
            [
                {"deliver_at": (FIRST_INSTANT_MS - 1) * US},
                {"publish_time": (FIRST_INSTANT_MS - 1) * US},
                {"deliver_at": LAST_INSTANT_MS * US + 1},
                {"publish_time": -(2**63) + 1, "deliver_at": 2**63 - 1},
            ],
        ),
        (
            "max_delay_exceeded",
            [{"deliver_at": (T0 + 10_000) * US}, {"deliver_after_ms": 10_000}],
            [
                {"deliver_at": (T0 + 10_000) * US + 1},
                {"deliver_after_ms": 10_001},
                {"deliver_after_ms": 2**63 - 1},
                {"deliver_at": (T0 + 1) * US, "publish_time": (T0 - 10_000) * US},
            ],
        ),
        (
            "published_in_future",
            [{"publish_time": (T0 + 10_000) * US}],
            [{"publish_time": (T0 + 10_001) * US}, {"publish_time": LAST_INSTANT_MS * US}],
        ),
        ("payload_too_large", [{"payload": b"1234"}, {"payload": None}], [{"payload": b"12345"}]),
    ],
)
def test_each_rule_of_acceptance_has_its_limit(
    spark: SparkSession, look: Look, reason: str, good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    """What stands at the limit is accepted, what is one past it is refused with the reason."""
    reasons = [said[-1] for said in look(arrived(spark, *good, *bad), TERMS)]
    assert reasons == [*[None] * len(good), *[reason] * len(bad)]


@both_ways
def test_a_topic_that_is_no_text_is_refused(spark: SparkSession, look: Look) -> None:
    """Spark lets bytes pass for a text; nobody could subscribe to it, and Python cannot read it."""
    for broken in ("FF41", "EDA080", "C0AF", "F4908080"):
        rows = arrived(spark, {}).withColumn("topic", F.expr(f"CAST(X'{broken}' AS string)"))
        assert [said[-1] for said in look(rows, TERMS)] == ["topic_not_utf8"]


def batches(spark: SparkSession, rows: list[dict[str, Any]]) -> Iterator[Batch]:
    """The same rows, looked at by Spark and in the driver; all that is due from `T0` + 5 on is parked."""
    frame = arrived(spark, *rows)
    with SparkBatch.of(frame, TERMS) as batch:
        yield batch
    yield LocalBatch.of(in_order(frame), TERMS)


def written(rows: DataFrame | Iterable[pa.Table], table: Table) -> list[dict[str, Any]]:
    """Rows of a batch as they stand in their table."""
    whole = rows.select(*table.schema.names).toArrow() if isinstance(rows, DataFrame) else pa.concat_tables(rows)
    found: list[dict[str, Any]] = whole.select(table.schema.names).cast(arrow_schema(table.schema)).to_pylist()
    return found


def test_a_rejected_row_keeps_what_was_sent(spark: SparkSession) -> None:
    """The row can be corrected and sent again: nothing of it is lost. Refused lines of the registry stand beside it."""
    lines = refusals([Subscription("t", "s", -1, earliest=False)])
    sent = {"deliver_after_ms": -5, "payload": b"p", "properties": [("a", None)], "deliver_at": None}
    for batch in batches(spark, [sent, {}]):
        assert (batch.counts.accepted, batch.counts.rejected) == (1, 1)
        row, line = written(batch.rejected(lines), REJECTED_INGEST)
        assert (row["reason"], row["batch_id"], row["deliver_after_ms"]) == ("negative_delay", 8, -5)
        assert (row["topic"], row["payload"], row["deliver_at"], row["properties"]) == ("t", b"p", None, [("a", None)])
        assert row["rejected_at"] == line["rejected_at"] == datetime.fromtimestamp(T0 / 1_000, UTC)
        assert (line["reason"], line["topic"], line["batch_id"]) == ("tick_out_of_range", "t", 8)


def test_rows_of_the_log_say_when_they_are_due_and_what_is_parked(spark: SparkSession) -> None:
    """At the end of what is loaded it is parked, a millisecond before it is near; what is due at once goes express."""
    rows: list[dict[str, Any]] = [{"payload": b"a"}, {"deliver_after_ms": 4}, {"deliver_at": (T0 + 5) * US}]
    wanted = messages(
        spark,
        {"ledger_id": 5, "entry_id": 0, "payload": bytearray(b"a"), "batch_id": 8},
        {"ledger_id": 5, "entry_id": 1, "deliver_at": T0 + 4, "due_time": T0 + 4, "batch_id": 8},
        {"ledger_id": 5, "entry_id": 2, "deliver_at": T0 + 5, "due_time": T0 + 5, "parked": True, "batch_id": 8},
    )
    for batch in batches(spark, rows):
        assert batch.counts == Counts(3, 0, frozenset({(T0 + 5) // SEGMENT_MS}), express=1)
        found = written(batch.messages(Settings()), MESSAGES)
        assert found == wanted.toArrow().cast(arrow_schema(MESSAGES.schema)).to_pylist()


@pytest.mark.parametrize(("count", "taken"), [(0, 0), (1, 1), (4, 1), (5, 2), (99, 25)])
def test_a_batch_takes_the_ledgers_that_it_fills(count: int, taken: int) -> None:
    """The next batch starts behind them."""
    assert ledgers(count, 4) == taken
