"""What has expired: it was due longer ago than its subscription's `ttl_ms`, so nobody gets it any more (decision 0060).

A run counts from its due time, and a message that comes again because it failed from the due time of its message. What
a command gave another due time counts from that, and from each time at which it comes again after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyroaring import BitMap

from pipeline.dispatch.holding import LONG_AGO, due_until
from pipeline.dispatch.withdrawn import Cut, because
from pipeline.storage.arrays import IntArray, longs, rounds
from pipeline.subscriptions.incarnations import Name
from schemas import EXPIRED

LookUp = Callable[[pa.Table], pa.Table]
"""The messages of runs, in the columns `pipeline.dispatch.release.LOOKED_UP`."""


def parted(runs: pa.Table, until: Mapping[Name, int], look_up: LookUp) -> tuple[pa.Table, pa.Table]:
    """Runs less what has expired, and that, with the column `reason`; runs are cut where that is needed.

    Args:
        runs: rows of `redelivery`.
        until: what is due until then has expired, ms UTC, of those subscriptions for which messages do.
        look_up: asked only for messages that failed before.
    """
    bound = due_until(runs, until)
    late = longs(runs, "due_time") <= bound
    counts = longs(runs, "redelivery_count")
    failed = (counts > 0) & (rounds(runs) == counts) & ~late & (bound > LONG_AGO)
    left, gone = runs.filter(pa.array(~late & ~failed)), because(runs.filter(pa.array(late)), EXPIRED)
    if not failed.any():
        return left, gone
    some = runs.filter(pa.array(failed))
    stays, goes = _by_message(some, look_up(some), bound[failed])
    return pa.concat_tables([left, stays]).combine_chunks(), pa.concat_tables([gone, because(goes, EXPIRED)])


def _by_message(runs: pa.Table, messages: pa.Table, bound: IntArray) -> tuple[pa.Table, pa.Table]:
    """What stays and what has expired of runs, by the due times of their messages."""
    run, entry = longs(messages, "run"), longs(messages, "entry_id")
    old = longs(messages, "due_time") <= bound[run]
    stays, goes = Cut(), Cut()
    ends = zip(*(longs(runs, name).tolist() for name in ("first_entry", "last_entry")), strict=True)
    for number, (first, last) in enumerate(ends):
        own, gone = BitMap(range(first, last + 1)), BitMap(entry[old & (run == number)])
        goes.add(number, gone)
        stays.add(number, own - gone)
    return stays.of(runs), goes.of(runs)
