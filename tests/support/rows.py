"""Small DataFrames for tests of functions from DataFrame to DataFrame; times are given as whole numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipeline.delta.reading.arrival import ARRIVAL
from pipeline.storage.arrays import arrow_schema
from schemas import INBOX, MESSAGES, REDELIVERY

T0 = 1_700_000_000_000

_LONGS = ("deliver_after_ms", "sequence_id", "arrival_commit", "arrival_block", "arrival_row")
_TIMES = ("publish_time", "deliver_at")
_ARRIVED = pa.schema(
    [("topic", pa.string()), ("message_key", pa.string()), ("properties", pa.map_(pa.string(), pa.string()))]
    + [(name, pa.timestamp("us", "UTC")) for name in _TIMES]
    + [("payload", pa.binary()), ("producer_name", pa.string()), ("arrival_file", pa.string())]
    + [(name, pa.int64()) for name in _LONGS]
)


def arrived(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Inbox rows with their place of arrival, in the order given; `publish_time` and `deliver_at` in microseconds."""
    place = {"arrival_commit": 0, "arrival_file": "f", "arrival_block": 0}
    full = [
        {name: ({"topic": "t", **place, "arrival_row": number} | row).get(name) for name in _ARRIVED.names}
        for number, row in enumerate(rows)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(full, schema=_ARRIVED))
    return frame.select(*INBOX.schema.names, *ARRIVAL)


def rows_of(spark: SparkSession, schema: StructType, *rows: dict[str, Any]) -> DataFrame:
    """Rows of a table; times in ms, what is not given is NULL."""
    return spark.createDataFrame(arrow_of(schema, *rows))


def arrow_of(schema: StructType, *rows: dict[str, Any]) -> pa.Table:
    """The same as Arrow, which Spark takes as it is: to look at such rows needs no job."""
    kinds = arrow_schema(schema)
    return pa.Table.from_arrays([_column(kind, [row.get(kind.name) for row in rows]) for kind in kinds], schema=kinds)


def _column(kind: pa.Field, values: list[Any]) -> pa.Array:
    if not pa.types.is_timestamp(kind.type):
        return pa.array(values, kind.type)
    return pa.array([None if each is None else each * 1_000 for each in values], pa.int64()).cast(kind.type)


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of `messages`, in ledger 0 at `T0` when nothing else is said."""
    return spark.createDataFrame(arrow_messages(*rows))


def arrow_messages(*rows: dict[str, Any]) -> pa.Table:
    """The same as Arrow."""
    base = {"topic": "t", "ledger_id": 0, "publish_time": T0, "due_time": T0, "parked": False, "batch_id": 0}
    return arrow_of(MESSAGES.schema, *(base | row for row in rows))


def runs(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of `redelivery`; `due_time` also stands for `message_due`, and `first_entry` for `last_entry`."""
    base = {
        "topic": "t", "subscription": "s", "life": 1, "ledger_id": 0, "due_time": T0, "tick_ms": 1, "released_at": T0,
        "redelivery_count": 0, "cause": "due", "batch_id": 0,
    }  # fmt: skip
    full = [base | row for row in rows]
    said = [{"message_due": row["due_time"], "last_entry": row["first_entry"], **row} for row in full]
    return rows_of(spark, REDELIVERY.schema, *said)
