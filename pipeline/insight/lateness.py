"""How late deliveries were, and how many there were, by the rows of `publications`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.client.clock import is_virtual
from pipeline.delta.deltars import arrow_of, instant, open_table
from pipeline.storage.arrays import IntArray, longs
from schemas import PUBLICATIONS

_ROWS = """
    SELECT arrow_cast(committed_at, 'Int64') / 1000 AS at, count, arrow_cast(first_due, 'Int64') / 1000 AS due
    FROM t WHERE committed_at >= {since} AND committed_at <= {until}
"""


@dataclass(frozen=True)
class Lateness:
    """How late the deliveries of a span of time were.

    A part of a batch becomes visible at once, and is as late here as its first message: no message was later than told.
    Under a virtual clock that is the step from one instant to the next, which says nothing of a delivery. So it is not
    told then.

    Attributes:
        since: where the span begins, ms UTC.
        count: deliveries in it.
        p50_ms: half of them were at most so late; None: there were none, or the clock is virtual.
        p99_ms: 99 of 100 were at most so late.
        worst_ms: none was later.
        rate: deliveries a second.
        is_virtual: whether the clock is.
    """

    since: int
    count: int = 0
    p50_ms: int | None = None
    p99_ms: int | None = None
    worst_ms: int | None = None
    rate: float = 0
    is_virtual: bool = False


def lateness(root: str, now_ms: int, span_ms: int) -> Lateness:
    """How late the deliveries were that became visible within a span before a time.

    Args:
        root: the warehouse.
        now_ms: the end of the span, ms UTC.
        span_ms: how long it is.

    Raises:
        NoWarehouse: the folder lacks the table.
    """
    since = now_ms - span_ms
    rows = arrow_of(_ROWS.format(since=instant(since), until=instant(now_ms)), t=open_table(root, PUBLICATIONS))
    virtual, counts = is_virtual(root), longs(rows, "count")
    if not len(counts):
        return Lateness(since, is_virtual=virtual)
    rate = float(counts.sum()) * 1_000 / span_ms
    if virtual:
        return Lateness(since, int(counts.sum()), rate=rate, is_virtual=True)
    late = np.maximum(0, longs(rows, "at") - longs(rows, "due"))
    order = np.argsort(late)
    below, late = np.cumsum(counts[order]), late[order]
    return Lateness(
        since,
        int(below[-1]),
        _quantile(late, below, 0.5),
        _quantile(late, below, 0.99),
        int(late[-1]),
        rate,
    )


def _quantile(late: IntArray, below: IntArray, share: float) -> int:
    """The least lateness that a share of deliveries does not exceed.

    Args:
        late: ascending, ms, shape (n,).
        below: how many deliveries are at most so late, shape (n,).
        share: of them.
    """
    return int(late[np.searchsorted(below, share * below[-1])])
