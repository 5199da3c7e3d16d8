"""What both baselines share: an ingest that numbers rows and appends them, and the plumbing of a stage."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField

from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.reading.arrival import ARRIVAL, in_order_of_arrival, with_place
from pipeline.delta.warehouse import Warehouse
from pipeline.ingest.accept_spark import classify, rejected_rows
from pipeline.ingest.core.terms import Terms
from pipeline.service.clock import TickSource, ticks
from pipeline.service.run import Stage
from pipeline.storage.locks import StageLock
from schemas import DELIVERIES, INBOX, MESSAGES, REJECTED_INGEST, Table

Body = Callable[[DataFrame, int], None]
_PAUSE = "500 milliseconds"
"""Between two batches on the wall clock: an application that looks all the time would take a core for that."""


def append(rows: DataFrame, warehouse: Warehouse, table: Table) -> None:
    """A plain append, in the columns of the table; of those that may be NULL, rows need not have any."""

    def column(field: StructField) -> Column:
        left_out = field.nullable and field.name not in rows.columns
        return (F.lit(None) if left_out else F.col(field.name)).cast(field.dataType).alias(field.name)

    columns = [column(field) for field in table.schema.fields]
    rows.select(*columns).write.format("delta").mode("append").save(warehouse.path(table))


def launch(
    warehouse: Warehouse,
    stage: str,
    rows: DataFrame,
    body: Body,
    options: Options,
    clock: TickSource | None = None,
) -> Stage:
    """Start a query as a stage; `clock` is what it asks first, when that is a clock."""
    lock = StageLock(stage, f"{warehouse.root}/_checkpoints")
    lock.take()
    writer = rows.writeStream.queryName(f"baseline-{stage}").foreachBatch(body).outputMode("append")
    writer = writer.option("checkpointLocation", warehouse.checkpoint(stage))
    live = isinstance(options.clock, LiveClock)
    pause = _PAUSE if options.trigger is None and live else options.trigger
    query: StreamingQuery = (writer if pause is None else writer.trigger(processingTime=pause)).start()
    return Stage(stage, query, lock, clock=clock)


def start_ingest(warehouse: Warehouse, options: Options) -> Stage:
    """Accept by the same rules as ours, one ledger a batch, entries in order of due time."""
    checkpoint = Checkpoint(warehouse.files, warehouse.checkpoint("ingest"))
    settings = options.settings

    def take(rows: DataFrame, batch_id: int) -> None:
        now = checkpoint.position(batch_id).instant
        inbox = in_order_of_arrival(rows.where("instant IS NULL").drop("instant"), {}).select(
            *INBOX.schema.names, *ARRIVAL
        )
        seen = classify(inbox, Terms(now, settings.max_delay_ms, settings.max_payload_bytes)).cache()
        append(_messages(seen.where("reason IS NULL"), now, batch_id), warehouse, MESSAGES)
        append(rejected_rows(seen.where("reason IS NOT NULL"), now, batch_id), warehouse, REJECTED_INGEST)
        seen.unpersist()

    clock = ticks(warehouse.spark, options.clock, warehouse.instants("ingest"))
    inbox = with_place(warehouse.follow(INBOX, 0, settings.max_files, settings.max_bytes))
    rows = clock.stream().unionByName(inbox.withColumn("instant", F.lit(None).cast("bigint")), allowMissingColumns=True)
    return launch(warehouse, "ingest", rows, take, options, clock)


def _messages(accepted: DataFrame, now: int, batch_id: int) -> DataFrame:
    numbered = accepted.coalesce(1).sortWithinPartitions("topic", "due_ms", *ARRIVAL)
    return numbered.withColumns(
        {
            "ledger_id": F.lit(batch_id),
            "entry_id": F.monotonically_increasing_id(),
            "deliver_at": F.col("verdict.deliver_at"),
            "publish_time": F.col("verdict.publish_time"),
            "due_time": F.timestamp_millis(F.greatest("due_ms", F.lit(now))),
            "parked": F.lit(False),  # noqa: FBT003 - a literal column
            "batch_id": F.lit(batch_id),
        }
    )


def deliver(due: DataFrame, warehouse: Warehouse, instant: int, batch_id: int) -> None:
    """Append messages with their subscription to `deliveries`, in the stated order."""
    exact = F.coalesce("deliver_at", "due_time")
    ordered = due.coalesce(1).sortWithinPartitions(exact, "ledger_id", "entry_id", "topic", "subscription")
    rows = ordered.withColumns(
        {
            "released_at": F.timestamp_millis(F.lit(instant)),
            "life": F.lit(1),
            "redelivery_count": F.lit(0),
            "cause": F.lit("due"),
            "batch_id": F.lit(batch_id),
            "sequence": F.monotonically_increasing_id() + 1,
        }
    )
    append(rows, warehouse, DELIVERIES)
