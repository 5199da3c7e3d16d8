"""The benchmark of the stages: its workload file, and what it prints."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from benchmarks.stages import SYSTEMS, T0, Trial, load, show
from pipeline.settings import Settings
from state import tick_bits


def test_the_workloads_can_be_read_and_end_at_a_bucket() -> None:
    """A release is measured at an instant at which everything is due."""
    workloads = load()
    assert {workload.measure for workload in workloads} == {"intake", "encode", "release"}
    assert len({workload.name for workload in workloads}) == len(workloads)
    for workload in workloads:
        assert workload.last_due >= T0 + workload.delay_ms + workload.spread_ms
        assert workload.last_due % (1 << tick_bits(1_000)) == 0
        assert callable(getattr(Trial, workload.measure))


def test_what_is_encoded_is_near_and_not_due() -> None:
    """Parked messages would wait in the log, and due ones would leave the state at once."""
    for workload in load():
        if workload.measure == "encode":
            assert workload.delay_ms > 1
            assert workload.delay_ms + workload.spread_ms < Settings().horizon_ms


def test_ratios_are_ours_to_each_baseline_of_the_same_run() -> None:
    """Rates are compared, as baselines are given fewer messages."""
    figures = {"messages": 10, "parked": 0, "ingest_s": 0.5, "commits": 3, "cold_s": 2.0, "warm_s": 1.0}
    rates = dict(zip(SYSTEMS, (1_000, 100, 250), strict=True))
    row = {"workload": "w", "copy_s": 0.5, "systems": {name: figures | {"per_s": rates[name]} for name in SYSTEMS}}
    text = "\n".join(show(row))
    assert "10.0x" in text
    assert "4.0x" in text
    assert "1.0x" not in text.splitlines()[3]


def test_who_does_not_have_what_is_measured_is_said_to_be_left_out() -> None:
    """Polling has no index."""
    figures = {"messages": 10, "parked": 0, "ingest_s": 0.5, "commits": 3, "cold_s": 2.0, "warm_s": 1.0, "per_s": 10}
    text = "\n".join(
        show({"workload": "w", "measure": "encode", "systems": dict.fromkeys(("delayline", "row-wise"), figures)})
    )
    assert "polling     has no index" in text
    assert "copy" not in text
