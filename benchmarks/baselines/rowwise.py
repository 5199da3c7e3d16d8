"""The obvious application: one state blob per subscription, a nested dict, one row at a time, plain writes."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.baselines.plain import append, deliver, launch, start_ingest
from pipeline.config.options import Options
from pipeline.delta.warehouse import Warehouse
from pipeline.service.clock import ticks
from pipeline.service.run import Stage
from schemas import MESSAGES, REDELIVERY, SUBSCRIPTIONS

STAGES = ("ingest", "schedule", "dispatch")
_RELEASED = "topic string, subscription string, ledger_id bigint, entry_id bigint, due_ms bigint, instant bigint"
_COLUMNS = [field.split()[0] for field in _RELEASED.split(", ")]

Nested = dict[int, dict[int, set[int]]]


def start(warehouse: Warehouse, stage: str, options: Options) -> Stage:
    """Start one of the stages."""
    return {"ingest": start_ingest, "schedule": _start_schedule, "dispatch": _start_dispatch}[stage](warehouse, options)


def track(key: tuple[str, str], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Put each row into the nested dict, take out what is due, pickle the rest."""
    nested: Nested = pickle.loads(state.get[0]) if state.exists else {}  # noqa: S301 - the state is our own
    now = max(0, int(state.getCurrentWatermarkMs()))
    if not state.hasTimedOut:
        for frame in frames:
            for _, row in frame.iterrows():
                nested.setdefault(int(row["due_ms"]), {}).setdefault(int(row["ledger_id"]), set()).add(
                    int(row["entry_id"])
                )
    released = []
    for due in sorted(time for time in nested if time <= now):
        for ledger, entries in sorted(nested.pop(due).items()):
            released += [(*key, ledger, entry, due, now) for entry in sorted(entries)]
    if nested:
        state.update((pickle.dumps(nested),))
        state.setTimeoutTimestamp(max(min(nested) - 1, now, 1))
    elif state.exists:
        state.remove()
    yield pd.DataFrame(released, columns=_COLUMNS)


def _start_schedule(warehouse: Warehouse, options: Options) -> Stage:
    listeners = warehouse.read(SUBSCRIPTIONS).where("active").select("topic", "subscription")
    positions = warehouse.follow(MESSAGES, 0, options.settings.max_files).join(listeners, "topic")
    due = F.unix_millis("due_time").alias("due_ms")
    rows = positions.select(
        "topic", "subscription", "ledger_id", "entry_id", due, F.lit(None).cast("timestamp").alias("et")
    )
    clock = ticks(warehouse.spark, options.clock, warehouse.instants("schedule")).stream()
    instants = clock.select(F.timestamp_millis("instant").alias("et"))
    both = rows.unionByName(instants, allowMissingColumns=True).withWatermark("et", "0 seconds").where("et IS NULL")
    released = both.groupBy("topic", "subscription").applyInPandasWithState(
        track, _RELEASED, "pending binary", "append", GroupStateTimeout.EventTimeTimeout
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        time, entry = F.timestamp_millis("due_ms"), F.col("entry_id")
        columns = {"first_entry": entry, "last_entry": entry, "due_time": time, "message_due": time}
        constants = {
            "life": F.lit(1),
            "tick_ms": F.lit(1),
            "redelivery_count": F.lit(0),
            "cause": F.lit("due"),
            "batch_id": F.lit(batch_id),
        }
        released_at = {"released_at": F.timestamp_millis("instant")}
        append(batch.withColumns(columns | constants | released_at), warehouse, REDELIVERY)

    return launch(warehouse, "schedule", released, write, options)


def _start_dispatch(warehouse: Warehouse, options: Options) -> Stage:
    def write(batch: DataFrame, batch_id: int) -> None:
        messages = warehouse.read(MESSAGES).drop("batch_id", "due_time")
        due = batch.select(
            "topic", "subscription", "ledger_id", F.col("first_entry").alias("entry_id"), "due_time", "released_at"
        )
        instant = due.agg(F.unix_millis(F.max("released_at"))).collect()[0][0]
        deliver(
            due.drop("released_at").join(messages, ["topic", "ledger_id", "entry_id"]),
            warehouse,
            instant or 0,
            batch_id,
        )

    return launch(warehouse, "dispatch", warehouse.follow(REDELIVERY, 0, options.settings.max_files), write, options)
