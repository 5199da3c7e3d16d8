"""The benchmark of commands, in little: each command names what it should."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from benchmarks import commanding


def test_what_is_cancelled_is_what_the_dry_run_said_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message by its key, then those of an airline; an undo brings back what the second command named."""
    monkeypatch.setattr(commanding, "PER_FILE", 600)
    monkeypatch.setattr(commanding, "PER_LEDGER", 100)
    told = {row["what"]: row["messages"] for row in commanding.rows(1_000)}
    cancelling = ["pending", "dry run", "dry run by key", "cancel", "fold", "pending again", "commands", "undo"]
    assert list(told) == [
        *cancelling,
        "dry run of shift",
        "shift",
        "fold with shift",
        "pending shifted",
        "undo of shift",
    ]
    assert told["undo of shift"] == told["shift"] == told["dry run of shift"] == told["cancel"]
    assert told["pending shifted"] == 999
    assert told["fold with shift"] == told["shift"] + 1
    assert told["dry run by key"] == 1
    assert 20 < told["dry run"] < 80
    assert told["pending"] == 1_000
    assert told["pending again"] == 999 - told["cancel"]
    assert told["undo"] == told["cancel"]
    assert told["fold"] == told["commands"] == told["cancel"] + 1
