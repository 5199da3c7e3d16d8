"""The benchmark of the stages: its workload file, and what it prints."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from benchmarks.stages import SYSTEMS, T0, load, show
from state import tick_bits


def test_the_workloads_can_be_read_and_end_at_a_bucket() -> None:
    """A release is measured at an instant at which everything is due."""
    workloads = load()
    assert {workload.measure for workload in workloads} == {"intake", "release"}
    assert len({workload.name for workload in workloads}) == len(workloads)
    for workload in workloads:
        assert workload.last_due >= T0 + workload.delay_ms + workload.spread_ms
        assert workload.last_due % (1 << tick_bits(1_000)) == 0


def test_ratios_are_ours_to_each_baseline_of_the_same_run() -> None:
    """Rates are compared, as baselines are given fewer messages."""
    figures = {"messages": 10, "commits": 3, "cold_s": 2.0, "warm_s": 1.0}
    rates = dict(zip(SYSTEMS, (1_000, 100, 250), strict=True))
    row = {"workload": "w", "copy_s": 0.5, "systems": {name: figures | {"per_s": rates[name]} for name in SYSTEMS}}
    text = "\n".join(show(row))
    assert "10.0x" in text
    assert "4.0x" in text
    assert "1.0x" not in text.splitlines()[3]
