"""Space of what is cancelled beside what is delivered: what is judged how. No Spark runs."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the benchmark needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the benchmark needs requirements/all.lock")

from benchmarks import aims, space


def spaced(**after: int) -> dict[str, Any]:
    """Results in which what is cancelled leaves as much as what is delivered, but for some tables."""

    def phase(**sizes: int) -> dict[str, dict[str, int]]:
        return {name: {"rows": 9, "files": 3, "bytes": size} for name, size in sizes.items()}

    begin, end = phase(messages=1_000, segments=100, index=50), phase(messages=500, segments=10, index=5)
    rows = []
    for kind in space.KINDS:
        last = end | phase(**after) if kind == space.CANCELLED else end
        phases = {space.BEFORE: begin, space.DECIDED: begin, space.AFTER: last}
        rows.append({"kind": kind, "messages": 1_000, "phases": phases})
    return {"rows": rows}


@pytest.mark.parametrize(
    ("worse", "missed"),
    [
        ({"messages": 570}, {"messages", "all together"}),
        ({"segments": 12}, {"segments"}),
        ({"index": 6}, {"index"}),
        ({"commands": 60}, {"all together"}),
    ],
)
def test_what_is_cancelled_is_compared_with_what_is_delivered(worse: dict[str, int], missed: set[str]) -> None:
    """Table by table, and all together."""
    assert all(line.met for line in aims.table({"space": spaced()}))
    assert {line.measure for line in aims.table({"space": spaced(**worse)}) if line.met is False} == missed


def test_a_run_is_told_table_by_table() -> None:
    """Rows, files and bytes of each phase; the index has bytes alone."""
    (head, _, *lines) = space.show(spaced(commands=60)["rows"][0])
    assert head == "1,000 messages, half of them cancelled"
    assert [line.split() for line in lines] == [
        ["messages", "9", "3", "1,000", "9", "3", "1,000", "9", "3", "500"],
        ["segments", "9", "3", "100", "9", "3", "100", "9", "3", "10"],
        ["index", "9", "3", "50", "9", "3", "50", "9", "3", "5"],
        ["commands", "0", "0", "0", "0", "0", "0", "9", "3", "60"],
    ]
