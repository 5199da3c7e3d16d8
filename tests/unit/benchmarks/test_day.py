"""The benchmark of a long run: its workload file, its verdict, and what it prints. No Spark runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")
pytest.importorskip("deltalake", reason="the tables are made by delta-rs")

from benchmarks.day import COUNTED, FILES, INSTANT, T0, extent, load, show, verdict
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from schemas import TABLES


def a_round(instant: int, count: int) -> dict[str, Any]:
    """What there is after a round of maintenance."""
    sizes = {name: {"inbox": count, "messages": count} for name in COUNTED}
    return {"instant": instant, "seconds": 2.5, "deleted": {"inbox": 7}, "extent": sizes, "memory_mb": {"JVM": 900}}


@pytest.mark.parametrize("full", [False, True])
def test_the_workloads_can_be_read_and_leave_something_to_compare(full: bool) -> None:  # noqa: FBT001 - a parameter
    """Rounds before and after half of the time, and quarters of more than an instant."""
    for workload in load(full=full):
        assert workload.instants // workload.every >= 4
        assert (workload.instants - workload.warm) // 4 > 1
        assert workload.retain_ms > workload.step_ms
        assert workload.last > T0 + (workload.instants - 1) * workload.step_ms + workload.delay_ms
        assert workload.upkeep.retain_log_ms == 0


def test_the_end_is_compared_with_the_begin() -> None:
    """Times by quarters, less the cold ones; sizes, which go up and down, by the most in each half."""
    seconds = [50.0, 50.0, 1.0, 1.2, 1.1, 9.0, 9.0, 9.0, 2.0, 2.0, 2.0, 2.0]
    row = {"seconds": seconds, "rounds": [a_round(3 * number, count) for number, count in enumerate((10, 5, 6, 2), 1)]}
    result = verdict(row, 2)
    assert result["drift"][INSTANT] == [1.1, 2.0]
    assert result["drift"][FILES] == [20, 12]
    assert result["drift"]["memory, MB"] == [900, 900]
    assert result["cold_s"] == 50


def test_files_are_those_that_belong_to_a_table(tmp_path: Path) -> None:
    """What lies beside them on the disk is not counted."""
    root = str(tmp_path)
    create_all(root)
    subscribe(root, Subscription("t", "s"))
    (tmp_path / "subscriptions" / "nobody's.parquet").touch()
    found = extent(root)
    assert (found[FILES]["subscriptions"], found[FILES]["inbox"]) == (1, 0)
    assert (found["log entries"]["subscriptions"], found["log entries"]["inbox"]) == (2, 1)
    assert {name: set(paths) for name, paths in found.items()} == {
        name: {each.name for each in TABLES} for name in COUNTED
    }


def test_a_run_is_told_round_by_round_with_its_parameters() -> None:
    """A figure without its parameters is worth nothing."""
    workload = load(full=False)[0]
    row = {"seconds": [1.0] * workload.instants, "rounds": [a_round(workload.every * n, 5) for n in (1, 2, 3)]}
    text = "\n".join(show(row | verdict(row, 2) | {"workload": workload.name, "parameters": vars(workload)}))
    for words in (
        f"messages {workload.messages}",
        "files at the end: inbox 5, messages 5",
        "of first quarter and last",
    ):
        assert words in text
    assert next(line for line in text.splitlines() if line.split()[:1] == [str(2 * workload.every)]).split()[1:6] == [
        "1.000", "2.5", "7", "900", "10",
    ]  # fmt: skip
