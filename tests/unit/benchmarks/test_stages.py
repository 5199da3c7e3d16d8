"""The benchmark of the stages: its workload file, and what it prints."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from benchmarks.stages import T0, Figure, Trial, load, ratios, show, summary
from pipeline.config.settings import Settings
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


def test_ratios_are_ours_to_each_baseline_in_the_same_run() -> None:
    """Rates are compared, as baselines are given fewer messages; a first run, which is cold, with our first."""
    runs = {
        "delayline": [Figure(1_000, 2.0, 3, 0), Figure(1_000, 1.0, 3, 0)],
        "row-wise": [Figure(100, 2.0, 3, 0), Figure(100, 1.0, 3, 0)],
        "polling": [Figure(500, 4.0, 3, 0)],
    }
    assert ratios(runs) == {"row-wise": 10.0, "polling": 4.0}
    systems = {name: summary(found) for name, found in runs.items()}
    assert systems["polling"]["cold_s"] == 4.0
    assert "warm_s" not in systems["polling"]
    text = list(show({"workload": "w", "copy_s": 0.5, "systems": systems, "ratios": ratios(runs)}))
    assert [line.split()[-1] for line in text[2:]] == ["3", "10.0x", "4.0x"]


def test_who_does_not_have_what_is_measured_is_said_to_be_left_out() -> None:
    """Polling has no index."""
    figures = {"messages": 10, "parked": 0, "ingest_s": 0.5, "commits": 3, "cold_s": 2.0, "warm_s": 1.0, "per_s": 10}
    systems = dict.fromkeys(("delayline", "row-wise"), figures)
    text = "\n".join(show({"workload": "w", "measure": "encode", "systems": systems, "ratios": {"row-wise": 1.0}}))
    assert "polling     has no index" in text
    assert "copy" not in text
