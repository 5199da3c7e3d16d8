"""A million messages over a month: what the streaming state holds of them, and how they all arrive."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

from benchmarks.support.held import Held, held
from pipeline.config.settings import DAY_MS
from tests.support.parked import Arrived, arrived, joined_as_earliest, let_time_pass, near, parked, spread, taken_in
from tests.support.spark import session

COUNT, SPAN_MS, STEP_MS = 1_000_000, 30 * DAY_MS, DAY_MS


def test_a_million_over_a_month_costs_the_state_an_hour_of_them_and_all_arrive(tmp_path: Path) -> None:
    """No more keys and bytes than the messages within the horizon would cost alone.

    A subscription that joins as `earliest` while they are parked gets them all as well, each once.
    """
    spark, begun = session(), time.monotonic()
    messages = spread(spark, COUNT, SPAN_MS)
    everything = taken_in(spark, str(tmp_path / "everything"), messages)
    print(f"{COUNT:,} over 30 days taken in within {time.monotonic() - begun:.0f} s, Spark's warm-up included")
    in_state = held(everything)
    print(f"state: {in_state}, parked: {parked(everything):,}")
    alone = held(taken_in(spark, str(tmp_path / "near"), near(messages)))
    print(f"state with the messages within the horizon alone: {alone}")
    assert in_state == alone
    assert in_state.positions == near(messages).count()

    joined_as_earliest(everything)
    course = [time.monotonic()]
    let_time_pass(everything, SPAN_MS, STEP_MS, lambda _: course.append(time.monotonic()))
    taken = [round(after - before, 1) for before, after in pairwise(course)]
    print(f"seconds per instant, a day each: {taken}, {sum(taken):.0f} in all")
    found = arrived(everything)
    print(f"{found}, state in the end: {held(everything)}")
    assert found == Arrived(2 * COUNT, COUNT, 0, found.latest_ms)
    assert found.latest_ms < STEP_MS + 1_000
    assert held(everything) == Held(0, 0, 0)
