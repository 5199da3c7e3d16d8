"""Spark's `GroupState` built in Python: what a key sees in a batch, without a JVM."""

from __future__ import annotations

from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from schemas.state import STATE_ROW

NO_TIMER = -1


def group_state(value: tuple[object, ...] | None = None, *, watermark: int = 0, timed_out: bool = False) -> GroupState:
    """The state of a key at a watermark (ms); it holds nothing without a value.

    Spark hands it over without a timer, whatever was set before: who does not set it again has none.
    """
    return GroupState(
        optionalValue=Row(*value) if value is not None else Row(),
        batchProcessingTimeMs=0,
        eventTimeWatermarkMs=watermark,
        timeoutConf=GroupStateTimeout.EventTimeTimeout,
        hasTimedOut=timed_out,
        watermarkPresent=True,
        defined=value is not None,
        updated=False,
        removed=False,
        timeoutTimestamp=NO_TIMER,
        keyAsUnsafe=b"",
        valueSchema=STATE_ROW.struct,
    )


def timer_of(state: GroupState) -> int:
    """When Spark would wake the key, ms; `NO_TIMER`: never."""
    return int(state._timeout_timestamp)


def woken(state: GroupState, watermark: int) -> GroupState | None:
    """The state as Spark hands it to the time-outs of a batch; None when it does not call the key.

    Spark calls a key whose timer is below the watermark, not at it.
    """
    if not state.exists or timer_of(state) == NO_TIMER or timer_of(state) >= watermark:
        return None
    return group_state(state.get, watermark=watermark, timed_out=True)
