"""The core of delayline: positions of messages by due time, and what consumers have not settled, in pure Python.

`TimeBucketIndex` and its chunks say which positions are due, `Outstanding` what becomes of those that were released,
`LeaseReplay` and `LeaseMember` which consumer works on which of them.

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
from state.cells import Cell, Condition
from state.chunk import ChunkInfo, describe_chunk, encode_chunk
from state.cursor_bytes import Counts
from state.errors import CorruptBytes, DelaylineError, IncompatibleChunk, InvalidArgument, OutOfRange
from state.group import IndexGroup
from state.index import TimeBucketIndex
from state.lease_bytes import pack_leases, unpack_leases
from state.lease_timing import LeaseTiming
from state.leases import LeaseKind, LeaseReplay, LeaseRow
from state.member import LeaseMember
from state.outstanding import Cursor, Held, Outstanding
from state.positions import Positions
from state.retry import Backoff, RetryPolicy, UnackedLimit
from state.runs import Due, Runs
from state.settling import (
    Ack,
    Cancel,
    Cause,
    Clear,
    Cleared,
    Closed,
    DeadLetter,
    Effect,
    Event,
    Ignored,
    LeftOut,
    Move,
    Moved,
    Nack,
    Reason,
    Released,
    Retry,
    Undeliverable,
)
from state.slots import (
    SubscriptionType,
    slot_of_key,
    slot_of_position,
    slot_of_round,
    slots_of_keys,
    slots_of_positions,
    slots_of_rounds,
)
from state.timers import MessageTimers
from state.trackers import DelayedDeliveryTracker, HeapTracker, Position, TimeBucketTracker

__all__ = [
    "Ack",
    "Backoff",
    "Cancel",
    "Cause",
    "Cell",
    "ChunkInfo",
    "Clear",
    "Cleared",
    "Closed",
    "Condition",
    "CorruptBytes",
    "Counts",
    "Cursor",
    "DeadLetter",
    "DelayedDeliveryTracker",
    "DelaylineError",
    "Due",
    "DueRule",
    "Effect",
    "Event",
    "HeapTracker",
    "Held",
    "Ignored",
    "IncompatibleChunk",
    "IndexGroup",
    "InvalidArgument",
    "LeaseKind",
    "LeaseMember",
    "LeaseReplay",
    "LeaseRow",
    "LeaseTiming",
    "LeftOut",
    "MessageTimers",
    "Move",
    "Moved",
    "Nack",
    "OutOfRange",
    "Outstanding",
    "Position",
    "Positions",
    "Reason",
    "Released",
    "Retry",
    "RetryPolicy",
    "Runs",
    "SubscriptionType",
    "TimeBucketIndex",
    "TimeBucketTracker",
    "UnackedLimit",
    "Undeliverable",
    "bucket_width",
    "describe_chunk",
    "encode_chunk",
    "pack_leases",
    "proportional_deliver_at",
    "proportional_tick",
    "segment_start",
    "slot_of_key",
    "slot_of_position",
    "slot_of_round",
    "slots_of_keys",
    "slots_of_positions",
    "slots_of_rounds",
    "tick_bits",
    "trim_down",
    "trim_up",
    "unpack_leases",
]
