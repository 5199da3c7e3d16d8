"""The benchmark of the state of settling: its baseline does the same, and its table judges what it measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="what is aimed at is measured with Spark, too")

from benchmarks import outstanding
from benchmarks.aims import _outstanding
from state import Condition


def small(workload: outstanding.Workload) -> outstanding.Workload:
    """The same in little."""
    return replace(workload, outstanding=4_000, ledger_entries=400, batches=5, released=60, acked=300, nacked=40)


@pytest.mark.parametrize("workload", outstanding.load(), ids=lambda workload: workload.name)
def test_the_dict_holds_what_the_state_holds(workload: outstanding.Workload) -> None:
    """Or the comparison would be worth nothing."""
    state, plain = outstanding.State(), outstanding.PlainDict()
    for each in (state, plain):
        outstanding.filled(each, small(workload))
        outstanding.batches(each, small(workload))
    assert state.state.counts[:2] == (len(plain.outstanding), len(plain.waiting))
    assert state.state.counts.waiting > 0
    found = [
        (ledger, entry)
        for held in state.state.held(Condition.OUTSTANDING)
        for ledger, first, last in held.positions.runs()
        for entry in range(first, last + 1)
    ]
    assert found == sorted(plain.outstanding)


def test_holes_are_read_back_as_they_were_made() -> None:
    """Half of everything is left, and comes back from its bytes."""
    workload = small(next(each for each in outstanding.load() if each.holes == "every second"))
    state = outstanding.State()
    outstanding.filled(state, workload)
    assert outstanding.holes(state, workload)["left"] == 2_000


@pytest.mark.parametrize(("batch_ms", "stored", "met"), [(1.5, 2_000_000, True), (1.6, 2_000_001, False)])
def test_time_and_bytes_are_judged(batch_ms: float, stored: int, met: bool) -> None:  # noqa: FBT001 - a parameter
    """A batch beside many outstanding against one beside few; the bytes of holes against their limit."""
    row = {"workload": "many", "messages": 100, "events": 3, "holes": "", "anywhere": False, "baselines": []}
    few = row | {"messages": 1, "ours": {"batch_ms": 1.0, "resident_mb": 1.0}}
    many = row | {"ours": {"batch_ms": batch_ms, "resident_mb": 2.0}}
    holes = row | {"holes": "random", "ours": {"stored": stored}}
    assert [line.met for line in _outstanding({"rows": [few, many, holes]})] == [None, met, met]
