"""The benchmark of the page, in little: what it measures is what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from benchmarks import aims, page
from benchmarks.commanding import fill


def test_each_screen_shows_what_is_there(tmp_path: Path) -> None:
    """All that waits, and what was added; the message with the key; its history."""
    root = str(tmp_path / "warehouse")
    fill(root, 2_000)
    counts = {row["what"]: row["messages"] for row in page.measured(root, 2_000)}
    assert counts.pop("further overview") in range(3_000, 7_001, 1_000)
    assert counts == {
        "first overview": 2_000,
        "counted anew": 7_000,
        "search by key": 1,
        "history of a message": 1,
        "memory": 2_000,
    }


def looked(count: int, mb: float = 300, **seconds: float) -> dict[str, object]:
    """Results in which every aim is met at its limit, but for some figures."""
    times = {
        "first overview": 2.0, "further overview": 0.3, "search by key": 1.0, "history of a message": 0.5,
        "counted anew": 1.0,
    } | {name.replace("_", " "): value for name, value in seconds.items()}  # fmt: skip
    rows: list[dict[str, object]] = [{"what": name, "messages": 1, "seconds": each} for name, each in times.items()]
    return {"rows": [*rows, {"what": "memory", "messages": count, "mb": mb}]}


def test_each_aim_of_the_page_is_judged_by_its_figure() -> None:
    """At ten million; fewer messages have figures and no verdict."""
    assert all(line.met for line in aims.table({"page": looked(10_000_000)}))
    assert [line.met for line in aims.table({"page": looked(200_000)})] == [None] * 5
    for worse, missed in (({"further_overview": 0.31}, "further overview"), ({"mb": 301}, "memory")):
        lines = aims.table({"page": looked(10_000_000, **worse)})
        assert [line.measure for line in lines if line.met is False] == [missed]
