"""What a batch of settle takes: whatever was refused or acknowledged, its release is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="settle needs requirements/all.lock")

from pipeline.settle.stage import Settle
from schemas import COMMANDS, CONSUMER_EVENTS, REDELIVERY, REJECTED_DISPATCH


def test_what_was_refused_was_released_in_this_batch_or_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be open for ever: the refusal is read, then the release. Others commit between any two looks."""
    versions = dict.fromkeys((REDELIVERY.name, REJECTED_DISPATCH.name, CONSUMER_EVENTS.name, COMMANDS.name), 0)

    def look(_: object, path: str, __: int) -> int:
        found = versions[path.rpartition("/")[2]]
        # A position is released, dispatch refuses it at once, and somebody acknowledges it.
        versions.update({name: version + 1 for name, version in versions.items()})
        return found

    monkeypatch.setattr("pipeline.settle.plan.newest", look)
    monkeypatch.setattr("pipeline.settle.stage.newest", lambda *_: 0)
    settle: Any = object.__new__(Settle)
    settle._last, settle._written, settle._opened, settle._follows = None, [], {}, False
    settle._days = SimpleNamespace(version=lambda _: -1)
    settle._moves = SimpleNamespace(any=False)
    settle._registry = SimpleNamespace(
        version=lambda: 1, at=lambda _: SimpleNamespace(acknowledging={("t", "s"): None}, topics=None)
    )
    settle._presence = SimpleNamespace(marker=lambda _: 1)
    settle._files, settle._warehouse = None, SimpleNamespace(path=lambda _: "", root="")
    plan = settle._plan(1_000, patient=False)
    assert plan.begin.refused < plan.refused < plan.released
    assert plan.begin.events < plan.events < plan.released
    # What was left out because of a command is read, then the command, then what was released by then.
    assert plan.refused < plan.commands < plan.released
