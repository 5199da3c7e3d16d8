"""Runs that anybody may name are cut to what may be open, and nothing else comes of them than of the whole runs."""

from __future__ import annotations

import copy

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from state import Ack, Outstanding, Positions, Released
from state.positionset import PositionSet
from state.runs import MAX_ENTRY
from state.settling import Ignored, Reason
from state.units import Ms

runs = st.lists(st.tuples(st.sampled_from((0, 1, 15, 16, 40)), st.integers(0, 9), st.integers(0, 9)), max_size=5)


def positions(runs: list[tuple[int, int, int]]) -> Positions:
    """Runs, whichever end comes first."""
    return Positions.of_runs([(ledger, min(ends), max(ends)) for ledger, *ends in runs])


@given(released=runs, acknowledged=runs, said=runs)
def test_cut_runs_have_the_effect_of_the_whole_ones(
    released: list[tuple[int, int, int]], acknowledged: list[tuple[int, int, int]], said: list[tuple[int, int, int]]
) -> None:
    """A consumer that names too much settles what it names, and is told of what was never delivered."""
    opened = Outstanding()
    opened.handle(Released(positions(released), 0, 1), Ack(positions(acknowledged)), now=Ms(1))
    other, whole = copy.deepcopy(opened), positions(said)
    near, behind = opened.within(whole)
    opened.handle(Ack(near), now=Ms(2))
    effects = other.handle(Ack(whole), now=Ms(2))
    assert opened.snapshot() == other.snapshot()
    never = [e.positions for e in effects if isinstance(e, Ignored) and e.reason == Reason.NEVER_DELIVERED]
    both = [PositionSet.of(each) for each in (behind, *never)]
    assert not len(PositionSet.union(both) - both[0])
    assert len(both[0]) == sum(len(each) for each in both[1:])


def test_a_hundred_thousand_wide_runs_cost_what_is_open() -> None:
    """As bitmaps they would take half a terabyte."""
    opened = Outstanding()
    opened.handle(Released(Positions.of_runs([(7, 3, 5)]), 0, 1), now=Ms(1))
    count = 100_000
    near, behind = opened.within(
        Positions.of(np.arange(count), np.zeros(count, np.int64), np.full(count, MAX_ENTRY, np.int64))
    )
    assert near.runs() == [(7, 0, 5)]
    assert behind.runs()[:2] == [(7, 6, MAX_ENTRY), (8, 0, MAX_ENTRY)]
    assert len(behind) == count - 7
