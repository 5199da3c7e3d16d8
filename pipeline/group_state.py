"""The one place that knows Spark's `GroupState`: how an index is kept in it, and when Spark wakes it.

A timeout at T fires when the watermark is strictly greater than T, while a bucket is due when its key is at most the
instant. So the alarm is set one millisecond before the bucket: it fires in the batch whose watermark is the bucket.
An update without an alarm would delete the alarm: there is one door that does both.
"""

from dataclasses import dataclass

from pyspark.sql.streaming.state import GroupState

from schemas import STATE_VERSION
from state import CorruptBytes, TimeBucketIndex


@dataclass
class Pending:
    """What is pending for one (topic, subscription, segment).

    `tick_ms` is the coarsest tick that any of its chunks was meant for: the width in which a bucket's messages lie.
    """

    tick_ms: int
    index: TimeBucketIndex


def watermark_ms(state: GroupState) -> int:
    """The instant of the batch, ms; 0 before the first tick."""
    return max(0, int(state.getCurrentWatermarkMs()))


def load(state: GroupState) -> Pending | None:
    """What a state holds; None when it holds nothing.

    Raises:
        CorruptBytes: the row or the index in it cannot be read.
    """
    if not state.exists:
        return None
    version, tick_ms, _, _, data = state.get
    if version != STATE_VERSION:
        raise CorruptBytes("state row", f"version {version}, known: {STATE_VERSION}")
    return Pending(int(tick_ms), TimeBucketIndex.from_bytes(bytes(data)))


def save(state: GroupState, pending: Pending) -> None:
    """Keep what is pending and set the alarm for its first bucket; forget the key when nothing is."""
    due = pending.index.next_due
    if due is None:
        if state.exists:
            state.remove()
        return
    state.update((STATE_VERSION, pending.tick_ms, int(due), len(pending.index), pending.index.to_bytes()))
    _wake_at(state, int(due) - 1)


def keep(state: GroupState, again_ms: int) -> None:
    """Keep a state that cannot be read as it is, and look again at an instant: a timer that fired must be set anew."""
    if state.exists:
        state.update(tuple(state.get))
        _wake_at(state, again_ms)


def _wake_at(state: GroupState, instant: int) -> None:
    """Set the alarm. Spark refuses one below the watermark, or of any type but `int`."""
    state.setTimeoutTimestamp(max(instant, watermark_ms(state), 1))
