"""Messages spread over weeks: what the streaming state holds of them, and how they all arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import HOUR_MS, MINUTE_MS, Settings
from pipeline.delta.warehouse import Warehouse
from pipeline.service.replay import ReplayClock, replay
from schemas import DELIVERIES, INBOX, MESSAGES

T0 = 1_700_000_000_123
HORIZON_MS, SEGMENT_MS, TICK_MS = HOUR_MS, 5 * MINUTE_MS, 1_000
LOADED_MS = -(-(T0 + HORIZON_MS) // SEGMENT_MS) * SEGMENT_MS
"""What is due before this instant is kept in the state at `T0`: the horizon, up to the end of a segment."""


@dataclass(frozen=True)
class Arrived:
    """What the deliveries come to, over all subscriptions; `latest_ms` is the longest time from due to released."""

    rows: int
    messages: int
    early: int
    latest_ms: int


def spread(spark: SparkSession, count: int, span_ms: int) -> DataFrame:
    """Messages of 100 bytes, all published at `T0`, due at pseudo-random times in the span (ms) after it."""
    due = F.lit(T0 + 1) + F.pmod(F.xxhash64("id"), F.lit(span_ms))
    payload = F.lpad(F.col("id").cast("string"), 100, "0").cast("binary")
    given = {"topic": F.lit("t"), "publish_time": F.timestamp_millis(F.lit(T0)), "deliver_at": F.timestamp_millis(due)}
    columns = {**given, "payload": payload}
    fields = INBOX.schema.fields
    kinds = (columns.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in fields)
    return spark.range(0, count, 1, 4).select(*kinds)


def near(messages: DataFrame) -> DataFrame:
    """The messages that are due within the horizon."""
    return messages.where(F.col("deliver_at") < F.timestamp_millis(F.lit(LOADED_MS)))


def taken_in(spark: SparkSession, folder: str, messages: DataFrame) -> Warehouse:
    """A warehouse with one subscription that has taken the messages in, at `T0`."""
    warehouse = Warehouse(folder, spark)
    create_all(folder, SEGMENT_MS)
    subscribe(folder, Subscription("t", "s", tick_ms=TICK_MS))
    replay(warehouse, messages, ReplayClock(T0, T0, 1), settings=Settings(horizon_ms=HORIZON_MS))
    return warehouse


def joined_as_earliest(warehouse: Warehouse) -> None:
    """Another subscription wants what is parked already, too."""
    subscribe(warehouse.root, Subscription("t", "late", tick_ms=TICK_MS, start="earliest"))


def let_time_pass(warehouse: Warehouse, span_ms: int, step_ms: int, on_instant: Callable[[int], None]) -> None:
    """Move the clock from `T0` past the span, and send nothing."""
    silence = warehouse.spark.createDataFrame([], INBOX.schema)
    course = ReplayClock(T0, T0 + span_ms + TICK_MS, step_ms)
    replay(warehouse, silence, course, settings=Settings(horizon_ms=HORIZON_MS), on_instant=on_instant)


def arrived(warehouse: Warehouse) -> Arrived:
    """What the deliveries say. A message is told apart by its payload."""
    late = F.unix_millis("released_at") - F.unix_millis("deliver_at")
    wanted = (F.count("*"), F.count_distinct("payload"), F.count_if(late < 0), F.max(late))
    return Arrived(*warehouse.read(DELIVERIES).agg(*wanted).collect()[0])


def parked(warehouse: Warehouse) -> int:
    """How many messages lie in the log as parked."""
    return warehouse.read(MESSAGES).where("parked").count()
