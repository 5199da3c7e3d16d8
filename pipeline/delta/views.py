"""Views over the tables of a warehouse: what was refused, what guards left out, and how late deliveries were."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

import schemas
from pipeline.delta.warehouse import Warehouse


def rejected(warehouse: Warehouse) -> DataFrame:
    """Everything that any stage refused: stage, reason, rejected_at, batch_id, topic, and the source row as JSON.

    What dispatch left out because a command withdrew it was not refused.
    """
    parts = [
        warehouse.read(table)
        .where(F.col("reason") != schemas.CANCELLED)
        .select(F.lit(table.writer).alias("stage"), "reason", "rejected_at", "batch_id", "topic", _source_row(table))
        for table in schemas.REJECTED
    ]
    return reduce(DataFrame.unionByName, parts)


def suppressed(warehouse: Warehouse) -> DataFrame:
    """What did not meet the guard of its subscription, and so was not delivered, with its key and when that was.

    `guard_version` is the version of `subscriptions` that has the guard, `table_versions` says which versions of its
    tables were read.
    """
    names = ("topic", "subscription", "life", "ledger_id", "entry_id", "redelivery_count", "message_key", "due_time")
    rows = warehouse.read(schemas.REJECTED_DISPATCH).where(F.col("reason") == schemas.SUPPRESSED)
    return rows.select(*names, F.col("rejected_at").alias("suppressed_at"), "guard_version", "table_versions")


def lateness(warehouse: Warehouse) -> DataFrame:
    """How late every delivery became visible: its columns less the message, `committed_at` and `late_ms`.

    `late_ms` counts from the bucket (`due_time`), so a coarse tick, which somebody asked for, is not lateness. It is
    never negative. `committed_at` is noted a moment after the commit, and after a restart when the process died between
    the two, so lateness is overstated rather than understated; it is NULL until it is noted. A new checkpoint counts
    batches from 0 again: of several publications of one number the one counts that is nearest to the release.
    """
    due = F.col("due_time")
    commits = F.struct("committed_at", "first_due", "last_due")
    noted = warehouse.read(schemas.PUBLICATIONS).groupBy("batch_id").agg(F.collect_list(commits).alias("commits"))

    def fits(commit: Column) -> Column:
        return due.between(commit["first_due"], commit["last_due"]) & (commit["committed_at"] >= due)

    def distance(commit: Column) -> Column:
        off = F.abs(F.unix_micros(commit["committed_at"]) - F.unix_micros("released_at"))
        return F.struct(off.alias("off"), commit["committed_at"].alias("committed_at"))

    nearest = F.array_min(F.transform(F.filter("commits", fits), distance))["committed_at"]
    deliveries = warehouse.read(schemas.DELIVERIES).drop("message_key", "properties", "payload")
    shown = deliveries.join(F.broadcast(noted), "batch_id", "left").withColumn("committed_at", nearest).drop("commits")
    return shown.withColumn("late_ms", F.unix_millis("committed_at") - F.unix_millis(due))


def _source_row(table: schemas.Table) -> Column:
    columns = [name for name in table.columns.names if name not in ("reason", "rejected_at", "batch_id")]
    return F.to_json(F.struct(*columns)).alias("source")
