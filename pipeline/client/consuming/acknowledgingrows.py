"""Acknowledging rows of `deliveries` without a consumer: for `foreachBatch` of Spark, and whoever reads the table.

Who reads the table by itself needs no lease: it settles what it has worked on, by the columns `SETTLED_BY` of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.checks import checked_columns, checked_delay
from pipeline.client.clock import clock_of
from pipeline.client.tables.events import EventRows, runs_of
from pipeline.delta.deltars import append
from pipeline.storage.arrays import longs
from schemas import CONSUMER_EVENTS
from state.positions import Positions

SETTLED_BY = ["topic", "subscription", "life", "ledger_id", "entry_id", "redelivery_count"]
"""The columns of `deliveries` that name a delivery."""
_NAMED = SETTLED_BY[:3]
_NAME, _SESSION = "table", 0
Flags = npt.NDArray[np.bool_]


def acknowledge(root: str, deliveries: pa.Table) -> int:
    """Say that deliveries are done with, in one commit; to say it twice changes nothing. Gives how many.

    In a stream of Spark: `delayline.acknowledge("DIR", batch.select(*delayline.SETTLED_BY).toArrow())`.

    Args:
        root: the warehouse.
        deliveries: rows with the columns `SETTLED_BY`; others are not looked at.

    Raises:
        InvalidMessage: a column is missing, or NULL somewhere.
        NoWarehouse: the folder has no such table.
        StillConflicting: other writers were faster every time; nothing was said.
    """
    now = clock_of(root).wall()
    return _say(root, deliveries, lambda event_rows, count, positions: event_rows.acks(positions, now, count))


def negative_acknowledge(root: str, deliveries: pa.Table, delay_ms: int | timedelta | None = None) -> int:
    """Say that deliveries failed, in one commit: they come again. A delivery fails once. Gives how many.

    Args:
        root: the warehouse.
        deliveries: as in `acknowledge`.
        delay_ms: after so long they come again, ms or a `timedelta`, and at once if that has passed; None: after the
            backoff of the subscription.

    Raises:
        InvalidMessage: a column is missing, or NULL somewhere.
        InvalidConfiguration: the delay is none, or too long.
        NoWarehouse: the folder has no such table.
        StillConflicting: other writers were faster every time; nothing was said.
    """
    after_ms = None if delay_ms is None else checked_delay("delay_ms", delay_ms)
    now = clock_of(root).wall()
    return _say(
        root, deliveries, lambda event_rows, count, positions: event_rows.nacks(positions, count, after_ms, "nack", now)
    )


def _say(root: str, deliveries: pa.Table, what: Callable[[EventRows, int, Positions], pa.Table]) -> int:
    rows = checked_columns(deliveries, SETTLED_BY)
    said = [what(event_rows, count, positions) for event_rows, count, positions in _parts(rows)]
    if said:
        append(root, CONSUMER_EVENTS, pa.concat_tables(said))
    return int(deliveries.num_rows)


def _parts(rows: pa.Table) -> Iterator[tuple[EventRows, int, Positions]]:
    """Positions of each incarnation and redelivery count."""
    for name in rows.group_by([*_NAMED, "redelivery_count"]).aggregate([]).to_pylist():
        flags = np.logical_and.reduce([_equals(rows, column, value) for column, value in name.items()])
        ledgers, entries = (longs(rows, column)[flags] for column in ("ledger_id", "entry_id"))
        key = name["topic"], name["subscription"], name["life"]
        yield EventRows(key, _NAME, _SESSION), name["redelivery_count"], runs_of(ledgers, entries)


def _equals(rows: pa.Table, column: str, value: object) -> Flags:
    found: Flags = pc.equal(rows.column(column), pa.scalar(value)).to_numpy()
    return found
