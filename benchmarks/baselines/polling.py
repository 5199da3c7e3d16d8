"""Poll the table by due time: no tracker, no state; what was delivered before is found by an anti-join."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.baselines.plain import deliver, launch, start_ingest
from pipeline.config.options import Options
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.warehouse import Warehouse
from pipeline.service.clock import ticks
from pipeline.service.run import Stage
from schemas import DELIVERIES, MESSAGES, SUBSCRIPTIONS

STAGES = ("ingest", "poll")
_POSITION = ["topic", "subscription", "ledger_id", "entry_id"]


def start(warehouse: Warehouse, stage: str, options: Options) -> Stage:
    """Start one of the stages."""
    if stage == "ingest":
        return start_ingest(warehouse, options)
    checkpoint = Checkpoint(warehouse.files, warehouse.checkpoint(stage))

    def poll(_ticks: DataFrame, batch_id: int) -> None:
        instant = checkpoint.position(batch_id).instant
        listeners = warehouse.read(SUBSCRIPTIONS).where("active").select("topic", "subscription")
        messages = warehouse.read(MESSAGES).where(F.col("due_time") <= F.timestamp_millis(F.lit(instant)))
        done = warehouse.read(DELIVERIES).select(*_POSITION)
        due = messages.drop("batch_id").join(listeners, "topic").join(done, _POSITION, "left_anti")
        deliver(due, warehouse, instant, batch_id)

    clock = ticks(warehouse.spark, options.clock, warehouse.instants(stage))
    return launch(warehouse, stage, clock.stream(), poll, options, clock)
