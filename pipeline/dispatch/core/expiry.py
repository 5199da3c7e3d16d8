"""What has expired: it was due longer ago than its subscription's `ttl_ms`, so nobody gets it any more (decision 0060).

A run counts from its due time, and a message that comes again because it failed from the due time of its message. What
a command gave another due time counts from that, and from each time at which it comes again after it. So does what
failed where the topic has a window: it may have had to wait for the next opening for longer than it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.dispatch.core.holding import LONG_AGO, coded, due_until
from pipeline.dispatch.core.runs import with_reason, without
from pipeline.storage.arrays import IntArray, longs, rounds
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.lines import NO_POLICIES, Topics
from schemas import EXPIRED

LookUp = Callable[[pa.Table], Iterable[pa.Table]]
"""The messages of runs, piece by piece, in the columns `pipeline.dispatch.release.LOOKED_UP`."""


def split_expired(
    runs: pa.Table, until: Mapping[Name, int], look_up: LookUp, topics: Topics = NO_POLICIES
) -> tuple[pa.Table, pa.Table]:
    """Runs less what has expired, and that, with the column `reason`; runs are cut where that is needed.

    Args:
        runs: rows of `redelivery`.
        until: what is due until then has expired, ms UTC, of those subscriptions for which messages do.
        look_up: asked only for messages that failed before.
        topics: says which topics have windows.
    """
    bound = due_until(runs, until)
    late = longs(runs, "due_time") <= bound
    counts = longs(runs, "redelivery_count")
    failed = (counts > 0) & (rounds(runs) == counts) & ~late & (bound > LONG_AGO) & ~_have_window(runs, topics)
    left, gone = runs.filter(pa.array(~late & ~failed)), with_reason(runs.filter(pa.array(late)), EXPIRED)
    if not failed.any():
        return left, gone
    some = runs.filter(pa.array(failed))
    run, entry = _old(look_up(some), bound[failed])
    stays, goes = without(some, run, entry)
    return pa.concat_tables([left, stays]).combine_chunks(), pa.concat_tables([gone, with_reason(goes, EXPIRED)])


def _have_window(runs: pa.Table, topics: Topics) -> npt.NDArray[np.bool_]:
    if not topics.windows or not runs.num_rows:
        return np.zeros(runs.num_rows, np.bool_)
    code, names = coded(runs)
    return np.array([topics.of(topic).opening is not None for topic, _ in names])[code]


def _old(messages: Iterable[pa.Table], bound: IntArray) -> tuple[IntArray, IntArray]:
    """Run and entry of messages that were due until the bounds of their runs."""
    found = [np.empty((2, 0), np.int64)]
    for piece in messages:
        run, entry = longs(piece, "run"), longs(piece, "entry_id")
        found.append(np.stack([run, entry])[:, longs(piece, "due_time") <= bound[run]])
    run, entry = np.concatenate(found, axis=1)
    return run, entry
