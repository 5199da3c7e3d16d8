"""What the streaming state of the schedule holds."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.delta.warehouse import Warehouse


@dataclass(frozen=True)
class Held:
    """What the state of the schedule holds: keys, positions, and bytes of their indexes."""

    keys: int
    positions: int
    size: int


def held(warehouse: Warehouse) -> Held:
    """What lies in the state stores of the schedule."""
    rows = warehouse.spark.read.format("statestore").load(warehouse.checkpoint("schedule"))
    state = F.col("value.groupState")
    sums = [F.count("*"), F.coalesce(F.sum(state["count"]), F.lit(0)), F.sum(F.octet_length(state["indexes"]))]
    keys, positions, size = rows.agg(*sums).collect()[0]
    return Held(keys, positions, size or 0)
