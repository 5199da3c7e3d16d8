"""Which inbox rows are accepted, when they are due, and which positions they get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.settings import MINUTE_MS, Settings
from pipeline.delta.reading.arrival import ARRIVAL
from pipeline.ingest.accept_local import INBOX_ROWS, LocalBatch
from pipeline.ingest.accept_spark import SparkBatch
from pipeline.ingest.core.terms import Counts, Terms
from pipeline.ingest.stage import Batch
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.gather import Gathered
from pipeline.subscriptions.incarnations import Subscription
from pipeline.subscriptions.registry import refusals
from schemas import INBOX, MESSAGES, REJECTED_INGEST, Table
from state.units import Ms
from tests.support.rows import T0, arrived, messages

SEGMENT_MS = 5 * MINUTE_MS
US = 1_000
TERMS = Terms(
    now=Ms(T0),
    max_delay_ms=10_000,
    max_payload_bytes=4,
    express=T0 + 2,
    load_until=T0 + 5,
    segment_ms=SEGMENT_MS,
    first_ledger=5,
    batch_id=8,
)


def in_order(rows: DataFrame) -> Gathered:
    """Rows of the inbox as the driver reads them."""
    return Gathered.of(INBOX, rows.orderBy(*ARRIVAL).select(*INBOX.schema.names).toArrow().cast(INBOX_ROWS))


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
        assert (batch.counts.accepted, batch.counts.reasons) == (1, {"negative_delay": 1})
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
        assert batch.counts == Counts(3, {}, frozenset({(T0 + 5) // SEGMENT_MS}), express=1)
        found = written(batch.messages(Settings()), MESSAGES)
        assert found == wanted.toArrow().cast(arrow_schema(MESSAGES.schema)).to_pylist()
