"""Encoded positions that need not wait in the state: rows of `redelivery` at once, for each subscription.

What the schedule would answer when such a chunk comes, because its clock is past it already; but what is due now does
not wait for the end of its bucket (decision 0075).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.settings import LAST_INSTANT_MS
from pipeline.worker.encode import together
from pipeline.worker.release import pack
from pipeline.worker.unpack import RUN, SAME, Unpacker
from state import TimeBucketIndex, bucket_width, tick_bits, trim_up

CAUSE = "express"
"""What `redelivery` and `deliveries` say of such a position."""
NOW = "now"
"""The kind of rows whose positions were due already when they came. They do not wait for the end of their bucket."""
_ANSWER = pa.schema(
    [
        *((name, RUN.field(name).type if name in RUN.names else pa.int64()) for name in SAME),
        ("runs", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Express:
    """Rows of `segments` to rows of `redelivery`.

    Attributes:
        until: what these positions are due before, ms; they are released at this instant, or at their bucket's if that
            is later.
        batch: which batch of ingest it is.
        now: when the batch was taken, ms: positions of `NOW` are due then, or at the end of their buckets if that is
            sooner.
        scheduled: when the last batch was taken that went to the schedule as a whole, ms. What of it was due at once
            is due at the end of its bucket, so no position of `NOW` is due before that bucket's end.
        longest_wait_ms: that holds for subscriptions whose buckets are not longer.
    """

    until: int
    batch: int
    now: int = 0
    scheduled: int = 0
    longest_wait_ms: int = 0

    def __call__(self, segments: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `pipeline.worker.encode.ROW` in, for `mapInArrow`."""
        return Unpacker(self.batch)(self._answers(segments))

    def _answers(self, segments: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answers = (answer for rows in segments for row in rows.to_pylist() for answer in self._released(row))
        return together(answers, _ANSWER)

    def _released(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """An answer for each listener: those of one tick get the same positions at the same buckets."""
        listeners = sorted(row["subscriptions"], key=_tick)
        for tick_ms, alike in groupby(listeners, key=_tick):
            index = TimeBucketIndex(tick_ms)
            index.append_chunk(row["chunk"])
            runs = index.pop_due_runs(LAST_INSTANT_MS)
            if row["kind"] == NOW:
                runs = replace(runs, due=np.minimum(runs.due, self._earliest(tick_ms))).sorted()
            values = {"tick_ms": tick_ms, "instant": max(self.until, int(runs.due.max())), "runs": pack(runs)}
            values |= {"redelivery_count": row["redelivery_count"] or 0, "round": row["round"]}
            values |= {"cause": row["cause"] or CAUSE}
            for each in alike:
                yield {"topic": row["topic"], "subscription": each["name"], "life": each["life"], **values}

    def _earliest(self, tick_ms: int) -> int:
        """When a position of `NOW` is due if its bucket does not end before: ms."""
        if bucket_width(tick_ms) > self.longest_wait_ms:
            return self.now
        return max(self.now, int(trim_up(self.scheduled, tick_bits(tick_ms))))


def _tick(listener: dict[str, Any]) -> int:
    tick: int = listener["tick_ms"]
    return tick
