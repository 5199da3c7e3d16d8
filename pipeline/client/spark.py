"""Settling in `foreachBatch` of Spark: rows of `deliveries` as a DataFrame, settled in one commit.

Nothing here loads Spark: whoever has a DataFrame has loaded it.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from pipeline.client.consuming import acknowledging
from pipeline.client.consuming.acknowledging import SETTLED_BY


class DeliveriesFrame(Protocol):
    """Rows of `deliveries`: a DataFrame of Spark."""

    def select(self, *names: str) -> DeliveriesFrame:
        """Some of its columns."""
        ...

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Its rows in the driver."""
        ...


def acknowledge(deliveries: DeliveriesFrame, root: str) -> int:
    """Say that deliveries are done with, in one commit; to say it twice changes nothing. Gives how many.

    The columns `SETTLED_BY` of the rows come into the driver: some 50 bytes a row. Spark may repeat the batch.

    Args:
        deliveries: rows of the table `deliveries`, of one subscription or of several.
        root: the warehouse, by a path that this process reaches without Spark.

    Raises:
        InvalidMessage: a column is NULL somewhere.
        NoWarehouse: the folder has no such table.
        StillConflicting: other writers were faster every time; nothing was said.
    """
    return acknowledging.acknowledge(root, deliveries.select(*SETTLED_BY).toArrow())


def negative_acknowledge(deliveries: DeliveriesFrame, root: str, delay_ms: int | None = None) -> int:
    """Say that deliveries failed, in one commit: they come again. A delivery fails once. Gives how many.

    Args:
        deliveries: as in `acknowledge`.
        root: the same.
        delay_ms: after so long they come again; None: after the backoff of the subscription.

    Raises:
        InvalidMessage: a column is NULL somewhere.
        InvalidConfiguration: the delay is negative.
        NoWarehouse: the folder has no such table.
        StillConflicting: other writers were faster every time; nothing was said.
    """
    return acknowledging.negative_acknowledge(root, deliveries.select(*SETTLED_BY).toArrow(), delay_ms)
