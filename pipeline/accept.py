"""Ingest, row by row: what is accepted, when it is due, and which position it gets.

What is accepted is decided in the JVM. Positions and rows are made there too, or in the driver when they are few.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.arrival import ARRIVAL
from pipeline.local import longs, ordered, ranks
from pipeline.numbering import NUMBER, in_order
from pipeline.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from schemas import MESSAGES


@dataclass(frozen=True)
class Limits:
    """What decides whether a row is accepted; ms and bytes. `now` is the instant of the batch."""

    now: int
    max_delay_ms: int
    max_payload_bytes: int


def classify(rows: DataFrame, limits: Limits) -> DataFrame:
    """Add `reason` (NULL: accepted), `published_ms`, `deliver_ms` (NULL: none asked for) and `due_ms` to inbox rows.

    `due_ms` is the later of delivery and publication, rounded up to a millisecond (a timestamp has microseconds), and
    not before 1970: what was due in 1900 is simply due. Times are compared as whole numbers, because timestamp
    arithmetic overflows at the far ends of the calendar and would stop the query.
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


def ledgers(count: int, entries: int) -> int:
    """How many ledgers of so many entries `count` messages fill."""
    return -(-count // entries)


def number(accepted: DataFrame, count: int, first_ledger: int, entries: int, tasks: int) -> DataFrame:
    """Add `ledger_id` and `entry_id`: dense in (topic, due, arrival) order, so that what is due together is a run.

    Args:
        accepted: `count` classified rows, persisted.
        count: how many.
        first_ledger: the ledger that the first of them gets; `ledgers` says how many are taken.
        entries: entries of a ledger.
        tasks: tasks that share the work. Positions do not depend on it.
    """
    row, whole = F.col(NUMBER), F.lit(entries)
    numbered = in_order(accepted, ("topic", "due_ms", *ARRIVAL), count, tasks)
    ledger = F.lit(first_ledger) + F.floor(row / whole) if count > entries else F.lit(first_ledger)
    return numbered.withColumns({"ledger_id": ledger, "entry_id": F.pmod(row, whole)})


def message_rows(numbered: DataFrame, now: int, load_until: int, batch_id: int) -> DataFrame:
    """Rows of `messages`; what is due from `load_until` on (ms) is parked there."""
    after = F.when(F.col("deliver_after_ms").isNotNull(), F.timestamp_millis("deliver_ms"))
    return numbered.select(
        "topic",
        "ledger_id",
        "entry_id",
        "message_key",
        "properties",
        F.coalesce("publish_time", F.timestamp_millis(F.lit(now))).alias("publish_time"),
        F.coalesce("deliver_at", after).alias("deliver_at"),
        F.timestamp_millis("due_ms").alias("due_time"),
        (F.col("due_ms") >= load_until).alias("parked"),
        F.lit(batch_id).alias("batch_id"),
        "payload",
    )


def rejected_rows(rejected: DataFrame, now: int, batch_id: int) -> DataFrame:
    """Rows of `rejected_ingest`: the reason, and the source row as it came."""
    instant = F.timestamp_millis(F.lit(now)).alias("rejected_at")
    return rejected.select("*", instant, F.lit(batch_id).alias("batch_id"))


def local_message_rows(
    accepted: pa.Table, first_ledger: int, entries: int, now: int, load_until: int, batch_id: int
) -> pa.Table:
    """Rows of `messages` in the driver: what `number` and `message_rows` make of the same classified rows."""
    arrival = (ranks(accepted, n) if n == "arrival_file" else longs(accepted, n) for n in ARRIVAL)
    rows = accepted.take(pa.array(ordered([ranks(accepted, "topic"), longs(accepted, "due_ms"), *arrival])))
    number, due = np.arange(rows.num_rows), rows.column("due_ms")
    after = pc.if_else(pc.is_valid(rows.column("deliver_after_ms")), rows.column("deliver_ms"), None)
    made = {
        "ledger_id": pa.array(first_ledger + number // entries),
        "entry_id": pa.array(number % entries),
        "publish_time": pc.coalesce(rows.column("publish_time"), _moment(pa.scalar(now))),
        "deliver_at": pc.coalesce(rows.column("deliver_at"), _moment(after)),
        "due_time": _moment(due),
        "parked": pc.greater_equal(due, load_until),
        "batch_id": pa.repeat(batch_id, rows.num_rows),
    }
    names = MESSAGES.schema.names
    return pa.Table.from_arrays([made[name] if name in made else rows.column(name) for name in names], names=names)


def _moment(ms: pa.Scalar | pa.ChunkedArray) -> pa.Scalar | pa.ChunkedArray:
    return pc.multiply(ms.cast(pa.int64()), 1_000).cast(pa.timestamp("us", "UTC"))
