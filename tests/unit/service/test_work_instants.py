"""The clock of dispatch: it has an instant when there is work of which no source tells, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the service needs requirements/all.lock")

from pipeline.config.wallclock import wall_ms
from pipeline.service.clock import VirtualWorkInstants, WorkInstants, advance


def test_each_batch_of_work_has_an_instant_of_its_own_by_the_wall_clock() -> None:
    """Later than the last one, whatever the wall clock says; the same one again when there is nothing to do."""
    asked, left = list[int](), [3]

    def has_work(now: int) -> bool:
        asked.append(now)
        left[0] -= 1
        return left[0] >= 0

    begun, clock = wall_ms(), WorkInstants(has_work)
    first = clock.after(clock.first())
    second = clock.after(first)
    ahead = clock.after(second + 60_000)
    assert begun <= first < second
    assert ahead == second + 60_001
    assert clock.after(ahead) == ahead
    assert all(now >= begun for now in asked)
    assert len(asked) == 4


def test_by_a_virtual_clock_work_is_done_at_the_last_instant_that_was_given(tmp_path: Path) -> None:
    """Several batches at one instant are a millisecond apart; before the first instant nothing is done."""
    path, work = str(tmp_path / "instants"), list[int]()

    def has_work(now: int) -> bool:
        work.append(now)
        return len(work) < 4

    clock = VirtualWorkInstants(path, has_work)
    assert clock.after(clock.first()) == 0
    advance(path, 1_000)
    assert [clock.after(0), clock.after(1_000)] == [1_000, 1_001]
    advance(path, 5_000)
    assert [clock.after(1_001), clock.after(5_000)] == [5_000, 5_000]
    assert work == [1_000, 1_001, 5_000, 5_001]
    clock.end()
    assert clock.after(5_000) == 5_000
