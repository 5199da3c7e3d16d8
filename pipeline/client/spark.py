"""What a program of Spark says with a DataFrame, by one commit: deliveries are settled, messages are commanded.

Nothing here loads Spark: whoever has a DataFrame has loaded it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol

import pyarrow as pa

from pipeline.client.commanding import commands
from pipeline.client.commanding.commands import Command
from pipeline.client.consuming import acknowledging
from pipeline.client.consuming.acknowledging import SETTLED_BY

P = ParamSpec("P")


class Rows(Protocol):
    """A DataFrame of Spark."""

    def select(self, *names: str) -> Rows:
        """Some of its columns."""
        ...

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Its rows in the driver."""
        ...


def acknowledge(deliveries: Rows, root: str) -> int:
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


def negative_acknowledge(deliveries: Rows, root: str, delay_ms: int | None = None) -> int:
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


def _over(give: Callable[Concatenate[str, P], Command]) -> Callable[Concatenate[Rows, str, P], Command]:
    """A command over messages that Spark has chosen: by joins with other tables, by the payload, by the ten million.

    The columns `ledger_id` and `entry_id` of the rows come into the driver, 16 bytes a row. What is not pending, or is
    of another topic, counts for nothing. The root is a path that this process reaches without Spark.
    """

    @wraps(give)
    def given(messages: Rows, root: str, /, *args: P.args, **how: P.kwargs) -> Command:
        places = messages.select("ledger_id", "entry_id").toArrow()
        return give(root, *args, positions=places, **how)

    return given


cancel, reschedule = _over(commands.cancel), _over(commands.reschedule)
shift, release_now = _over(commands.shift), _over(commands.release_now)
