"""Commands, a pause and a rate beside live load: what is judged how, and how lateness is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the benchmark needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the benchmark needs requirements/all.lock")

from benchmarks import aims
from benchmarks.control import Seen
from pipeline.client.create import create_all
from pipeline.delta.deltars import open_table
from schemas import DELIVERIES
from tests.support.client import delivery_row, message_row, put

LATE = {"count": 9, "p50_s": 0.5, "p99_s": 1.0, "max_s": 3.0}
CLOSE = {
    "by_key_s": 3.0, "by_key_applied": 1, "sent": 20, "named": 20, "applied": 15, "too_late": 5, "came": 5, "taken": 4,
    "taken_came": 4,
}  # fmt: skip


def control(**changes: object) -> dict[str, Any]:
    """Results in which every aim is met at its limit, but for some figures."""
    seconds = {"dry run": 3.0, "cancel": 10.0, "undo of cancel": 10.0, "shift": 10.0, "undo of shift": 10.0, "named": 9}
    figures: dict[str, dict[str, Any]] = {
        "commands": {"commands_s": seconds, "close": CLOSE},
        "pause": {"drained_s": 20.0, "disordered": 0, "resident_mb": [1_000, 1_256, 1_100]},
        "rate": {"rate": 10_000, "took_s": 102.0, "said_off_s": -1.0, "disordered": 0},
    }
    same = {"messages": 1_000_000, "load": 1_000, "late": {"at once": LATE}, "at once before": LATE}
    rows = [{"kind": kind, **same, **own} for kind, own in figures.items()]
    return {"rows": [row | {name: value for name, value in changes.items() if name in row} for row in rows]}


@pytest.mark.parametrize(
    ("figure", "worse", "missed"),
    [
        ("late", {"at once": LATE | {"p99_s": 1.01}}, {"commands", "pause", "rate"}),
        ("late", {"at once": LATE | {"count": 0}}, {"commands", "pause", "rate"}),
        ("commands_s", {"dry run": 3.1, "named": 9}, {"commands"}),
        ("commands_s", {"shift": 10.1, "named": 9}, {"commands"}),
        ("close", CLOSE | {"by_key_s": 3.1}, {"commands"}),
        ("close", CLOSE | {"by_key_applied": 0}, {"commands"}),
        ("close", CLOSE | {"too_late": 4}, {"commands"}),
        ("close", CLOSE | {"came": 6}, {"commands"}),
        ("close", CLOSE | {"taken_came": 3}, {"commands"}),
        ("disordered", 1, {"pause", "rate"}),
        ("resident_mb", [1_000, 1_257, 1_000], {"pause"}),
        ("took_s", 97.9, {"rate"}),
        ("said_off_s", 1.1, {"rate"}),
    ],
)
def test_each_aim_of_control_is_judged_by_its_figure(figure: str, worse: object, missed: set[str]) -> None:
    """All are met at their limits; one figure past its limit is not."""
    assert all(line.met for line in aims.table({"control": control()}))
    lines = aims.table({"control": control(**{figure: worse})})
    assert {line.workload.removeprefix("control, ") for line in lines if line.met is False} == missed


def test_lateness_is_counted_from_the_due_time_to_the_commit_and_by_topic(tmp_path: Path) -> None:
    """What was due when it was sent is counted by itself, and from then."""
    root = str(tmp_path)
    create_all(root)
    rows = [message_row(1, 0, 5_000, "t0", 5_000), message_row(1, 1, 9_000, "t0"), message_row(1, 2, 7_000, "big")]
    put(root, DELIVERIES, *(delivery_row(row) for row in rows))
    found = Seen.of(root, "t0")
    made = open_table(root, DELIVERIES).history(1)[0]["timestamp"]
    assert sorted(found.due.tolist()) == [5_000, 9_024]
    assert [found.late(0, 10_000, at_once=once)["p99_s"] for once in (True, False)] == [
        round((made - due) / 1_000, 2) for due in (5_000, 9_024)
    ]
    assert found.late(0, 5_000, at_once=True)["count"] == 0
