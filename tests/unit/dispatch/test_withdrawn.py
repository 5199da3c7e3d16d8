"""Positions that are left out of runs, or held again: they are cut out of any runs, and named in few words."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dispatch.core.runs import without
from pipeline.dispatch.core.withdrawn import Withdrawn, named
from tests.unit.dispatch.test_guarding import places, runs

Run = tuple[int, int]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=12), st.randoms(use_true_random=False))
def test_positions_are_taken_out_of_runs_whatever_runs_they_are_of(parts: list[Run], random: object) -> None:
    """Some runs go as a whole, some in part, some not at all."""
    rows = runs(*(("s", first, first + more) for first, more in parts))
    every = [(run, entry) for run, (first, more) in enumerate(parts) for entry in range(first, first + more + 1)]
    out = [each for each in every if random.random() < 0.5]  # type: ignore[attr-defined]
    random.shuffle(out)  # type: ignore[attr-defined]
    columns = [np.array([each[n] for each in out], np.int64) for n in (0, 1)]
    left, gone = without(rows, *columns)
    assert (left.schema, gone.schema) == (rows.schema, rows.schema)
    assert entries(gone) == sorted(entry for _, entry in out)
    assert entries(left) == sorted(entry for each in every if each not in out for entry in each[1:])


def entries(rows: pa.Table) -> list[int]:
    """All entries of runs."""
    return sorted(entry for _, first, last in places(rows) for entry in range(first, last + 1))


def test_messages_that_follow_each_other_are_named_as_one_run() -> None:
    """A batch that held twenty thousand of them again had 0.9 MB in the log, and the next one as much again."""
    each = runs(*(("s", entry, entry) for entry in (3, 4, 5, 9)), ("other", 4, 4))
    note = named(each)
    assert sorted(note) == [
        ["t", "other", 1, 0, 0, 7, 4, 4],
        ["t", "s", 1, 0, 0, 7, 3, 5],
        ["t", "s", 1, 0, 0, 7, 9, 9],
    ]
    again = runs(("s", 0, 10), ("other", 3, 4))
    left, gone = Withdrawn().and_undecided(note).split_withdrawn(again)
    assert places(gone) == [("other", 4, 4), ("s", 3, 5), ("s", 9, 9)]
    assert places(left) == [("other", 3, 3), ("s", 0, 2), ("s", 6, 8), ("s", 10, 10)]
    assert named(None) == named(each.slice(0, 0)) == []
