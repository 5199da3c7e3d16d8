"""The index core of delayline: positions of messages by due time, in pure Python (numpy, pyroaring, pyarrow).

No Spark, no pandas, no I/O, no wall clock: time is an argument, an integer of milliseconds since the epoch, UTC.
"""

from state.buckets import (
    DueRule,
    bucket_width,
    proportional_deliver_at,
    proportional_tick,
    segment_start,
    tick_bits,
    trim_down,
    trim_up,
)
from state.chunk import ChunkInfo, describe_chunk, encode_chunk
from state.errors import CorruptBytes, DelaylineError, IncompatibleChunk, InvalidArgument, OutOfRange
from state.group import IndexGroup
from state.index import TimeBucketIndex
from state.runs import Due, Runs
from state.trackers import DelayedDeliveryTracker, HeapTracker, Position, TimeBucketTracker

__all__ = [
    "ChunkInfo",
    "CorruptBytes",
    "DelayedDeliveryTracker",
    "DelaylineError",
    "Due",
    "DueRule",
    "HeapTracker",
    "IncompatibleChunk",
    "IndexGroup",
    "InvalidArgument",
    "OutOfRange",
    "Position",
    "Runs",
    "TimeBucketIndex",
    "TimeBucketTracker",
    "bucket_width",
    "describe_chunk",
    "encode_chunk",
    "proportional_deliver_at",
    "proportional_tick",
    "segment_start",
    "tick_bits",
    "trim_down",
    "trim_up",
]
