"""The checks of the outage test can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")
pytest.importorskip("deltalake", reason="the tables are made by delta-rs")

from pipeline.config.settings import DAY_MS
from tests.support.outage import SLICE, T0, descents, faults, slices

GOOD = {
    "ledger_id": [1, 1, 2], "entry_id": [5, 6, 0], "released_at": [20, 20, 20], "due_time": [10, 10, 20],
    "deliver_at": [8, 9, 11],
}  # fmt: skip


def found(**changes: list[int]) -> dict[str, int]:
    """Faults of three deliveries."""
    return faults({name: np.array(values) for name, values in (GOOD | changes).items()}, 3)


def test_deliveries_without_a_fault_have_none() -> None:
    """In the order of bucket, exact time, ledger, entry."""
    assert set(found().values()) == {0}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"entry_id": [5, 5, 0]}, {"twice": 1}),
        ({"released_at": [20, 20, 19]}, {"early": 1}),
        ({"deliver_at": [8, 9, 21]}, {"early": 1}),
        ({"due_time": [10, 9, 20]}, {"out of order": 1}),
        ({"deliver_at": [8, 7, 11]}, {"out of order": 1}),
        ({"deliver_at": [8, 8, 11], "entry_id": [6, 5, 0]}, {"out of order": 1}),
    ],
)
def test_each_fault_is_found(changes: dict[str, Any], fault: dict[str, int]) -> None:
    """And told as what it is."""
    assert {name: count for name, count in found(**changes).items() if count} == fault


def test_a_delivery_that_is_not_there_is_missing() -> None:
    """By its count."""
    assert faults({name: np.array(values[:2]) for name, values in GOOD.items()}, 3)["missing"] == 1


def test_nothing_is_in_order() -> None:
    """And one row, too."""
    assert descents([np.array([], np.int64)]) == descents([np.array([1])]) == 0


def test_messages_are_due_within_the_day_of_the_outage() -> None:
    """And a slice is no larger than it may be."""
    (rows,) = slices(1_000)
    due = rows.column("deliver_at").cast("int64").to_numpy()
    assert T0 * 1_000 < due.min() <= due.max() <= (T0 + DAY_MS) * 1_000
    assert len(set(rows.column("payload").to_pylist())) == 1_000
    assert SLICE >= 1_000
