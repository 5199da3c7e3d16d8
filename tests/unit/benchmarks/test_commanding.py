"""The benchmark of commands, in little: each command names what it should."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from benchmarks import aims, commanding


def test_what_is_cancelled_is_what_the_dry_run_said_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message by its key, then those of an airline; an undo brings back what the second command named."""
    monkeypatch.setattr(commanding, "PER_FILE", 600)
    monkeypatch.setattr(commanding, "PER_LEDGER", 100)
    counts = {row["what"]: row["messages"] for row in commanding.rows(1_000)}
    assert list(counts) == [
        "pending",
        "dry run",
        "dry run by key",
        "cancel by key",
        "cancel",
        "fold",
        "pending again",
        "commands",
        "undo",
        "dry run of shift",
        "shift",
        "fold with shift",
        "pending shifted",
        "undo of shift",
    ]
    assert counts["undo of shift"] == counts["shift"] == counts["dry run of shift"] == counts["cancel"]
    assert counts["pending shifted"] == 999
    assert counts["fold with shift"] == counts["shift"] + 1
    assert counts["dry run by key"] == counts["cancel by key"] == 1
    assert 20 < counts["dry run"] < 80
    assert counts["pending"] == 1_000
    assert counts["pending again"] == 999 - counts["cancel"]
    assert counts["undo"] == counts["cancel"]
    assert counts["fold"] == counts["commands"] == counts["cancel"] + 1


def commanded(count: int, **seconds: float) -> dict[str, object]:
    """Results in which every aim is met at its limit, but for some figures."""
    times = {
        "pending": 0.0, "dry run": 3.0, "dry run by key": 3.0, "cancel by key": 3.0, "cancel": 10.0, "undo": 10.0,
        "dry run of shift": 3.0, "shift": 4.0, "put in the index": 6.0, "undo of shift": 10.0,
    } | {name.replace("_", " "): value for name, value in seconds.items()}  # fmt: skip
    return {"rows": [{"what": name, "messages": count, "seconds": value} for name, value in times.items()]}


@pytest.mark.parametrize(
    ("worse", "missed"),
    [
        ({"cancel_by_key": 3.1}, "cancel by key"),
        ({"cancel": 10.1}, "cancel"),
        ({"put_in_the_index": 6.1}, "shift"),
        ({"undo_of_shift": 10.1}, "undo of shift"),
    ],
)
def test_each_aim_of_commands_is_judged_by_its_figure(worse: dict[str, float], missed: str) -> None:
    """At ten million; what is put in the index counts for its command. Fewer messages have figures and no verdict."""
    assert all(line.met for line in aims.table({"commanding": commanded(10_000_000)}))
    assert [line.met for line in aims.table({"commanding": commanded(200_000)})] == [None] * 8
    lines = aims.table({"commanding": commanded(10_000_000, **worse)})
    assert [line.measure for line in lines if line.met is False] == [missed]
