"""What the schedule of a warehouse under test has instead of Spark's `GroupState`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="it is compared with Spark's own")

from pyspark.sql.streaming.state import GroupState

from pipeline.testing.keystate import KeyState
from tests.support.groupstates import NO_TIMER, group_state, timer_of

State = KeyState | GroupState
CALLS: dict[str, Callable[[State, int], object]] = {
    "exists": lambda state, _: state.exists,
    "get": lambda state, _: state.get,
    "timed out": lambda state, _: state.hasTimedOut,
    "watermark": lambda state, _: state.getCurrentWatermarkMs(),
    "update": lambda state, number: state.update((2, number, 1, b"")),
    "remove": lambda state, _: state.remove(),
    "alarm": lambda state, number: state.setTimeoutTimestamp(number),
}


def answers(state: State, calls: list[tuple[str, int]]) -> list[object]:
    """What a state says to calls, one after the other."""

    def answer(name: str, number: int) -> object:
        try:
            return CALLS[name](state, number)
        except ValueError:
            return "refused"

    return [answer(*call) for call in calls]


@given(
    st.sampled_from([None, (2, 5, 1, b"x")]),
    st.integers(-1, 9),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(sorted(CALLS)), st.integers(-1, 9))),
)
def test_it_is_as_spark_has_it(value: Any, watermark: int, timed_out: bool, calls: list[tuple[str, int]]) -> None:  # noqa: ANN401, FBT001 - drawn
    """The function of the schedule cannot tell them apart, whatever it does; and a batch begins without an alarm."""
    ours, sparks = KeyState(value, watermark, timed_out=timed_out), group_state(value, watermark=watermark)
    sparks._has_timed_out = timed_out
    assert answers(ours, calls) == answers(sparks, calls)
    assert (ours.exists, NO_TIMER if ours.alarm is None else ours.alarm) == (sparks.exists, timer_of(sparks))
