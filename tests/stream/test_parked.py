"""Parked messages cost the streaming state nothing, and arrive though nothing more is sent."""

from __future__ import annotations

from pyspark.sql import SparkSession

from benchmarks.support.held import Held, held
from pipeline.config.settings import DAY_MS
from pipeline.config.sparkversion import release
from tests.support.parked import Arrived, arrived, joined_as_earliest, let_time_pass, near, parked, spread, taken_in

READS_STATE = release() >= (4, 1)
"""Spark 4.0 itself can read no state whose changes lie in files of the second format."""
COUNT, SPAN_MS, STEP_MS = 2_000, 30 * DAY_MS, 16 * DAY_MS


def test_the_state_holds_what_the_horizon_needs_and_all_arrive(spark: SparkSession, folder: str) -> None:
    """As many keys and bytes as if nothing but the near messages had been sent; `tests/soak` does it with a million.

    A subscription that joins as `earliest` while they are parked gets them all as well.
    """
    messages = spread(spark, COUNT, SPAN_MS)
    everything, soon = taken_in(spark, folder, messages), near(messages).count()
    assert parked(everything) == COUNT - soon
    if READS_STATE:
        in_state = held(everything)
        assert 0 < in_state.keys <= in_state.positions == soon
        assert in_state == held(taken_in(spark, f"{folder}-near", near(messages)))

    joined_as_earliest(everything)
    let_time_pass(everything, SPAN_MS, STEP_MS, lambda _: None)
    if READS_STATE:
        assert held(everything) == Held(0, 0, 0)
    found = arrived(everything)
    assert found == Arrived(2 * COUNT, COUNT, 0, found.latest_ms)
    assert found.latest_ms < STEP_MS + 1_000
