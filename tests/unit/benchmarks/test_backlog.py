"""The benchmark of messages that wait: its workload file, and what it prints. No Spark runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from benchmarks.backlog import (
    LOAD,
    SEGMENT_MS,
    STATE,
    T0,
    TICK_MS,
    TIMES,
    cold_and_warm,
    growth,
    load,
    show,
)  # fmt: skip
from state import tick_bits


def size(count: int, **figures: float) -> dict[str, Any]:
    """What one number of messages gave."""
    plain = {**dict.fromkeys(TIMES, 1.0), "JVM, MB": 500, STATE: 10}
    measured = {"figures": plain | figures, "cold": dict.fromkeys(TIMES, 9.0), "state": {"keys": 13, "positions": 140}}
    return {"messages": count, "filled": {"per_s": 70_000, "rounds": 0, "sorted_s": 0.4}} | measured


@pytest.mark.parametrize("full", [False, True])
def test_the_workloads_can_be_read_and_keep_their_parts_apart(full: bool) -> None:  # noqa: FBT001 - a parameter
    """A load in the steady part would be counted as an instant, a message due beside its bucket would be missing."""
    for workload in load(full=full):
        assert workload.instants * workload.step_ms < SEGMENT_MS
        assert workload.warm < workload.instants
        assert T0 % SEGMENT_MS == workload.loads_from % SEGMENT_MS == 0
        due = [workload.due(number) for number in range(workload.releases)]
        assert all(each % (1 << tick_bits(TICK_MS)) == 0 for each in due)
        assert workload.releases_from < due[0] <= due[-1] < workload.releases_from + SEGMENT_MS
        assert list(workload.sizes) == sorted(workload.sizes)
        assert min(workload.loads, workload.releases) > 1


def test_the_first_instant_is_cold_and_the_median_of_the_last_is_warm() -> None:
    """Those between are neither."""
    assert cold_and_warm([9.0, 5.0, 1.0, 3.0, 2.0], 3) == (9.0, 2.0)


def test_growth_is_from_the_fewest_messages_to_the_worst_figure() -> None:
    """What shrinks has not grown."""
    row = {"sizes": [size(1), size(10, **{LOAD: 3.0}), size(100, **{LOAD: 2.0, STATE: 5})]}
    assert growth(row)[LOAD] == 3
    assert growth(row)[STATE] == 1


def test_sizes_stand_side_by_side_with_the_parameters() -> None:
    """A figure without its parameters is worth nothing."""
    workload = replace(load(full=False)[0], steady=123)
    sizes = [size(1_000), size(2_000, **{LOAD: 1.25})]
    text = "\n".join(show({"workload": workload.name, "parameters": vars(workload), "sizes": sizes}))
    for words in ("steady 123", "1,000         2,000", "1.25    1.25x", "cold", "positions in the state"):
        assert words in text
