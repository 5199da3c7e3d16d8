"""Which stages `delayline rebuild` and its main for spark-submit reach, and what they say. No Spark runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the command needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from jobs import rebuild as submitted
from jobs.commands import rebuild as command
from pipeline.config.errors import StageRunning
from pipeline.config.stages import SETTLE, STAGES
from pipeline.delta.checkpoints import Origin
from tests.support.client import new_warehouse
from tests.support.invoked import invoke

NOW = 2_000_000_000_000
REBUILT = [f"stage {stage} goes on from version 7; start it again" for stage in STAGES]


class Session:
    """Nobody's."""

    def stop(self) -> None:
        """It is not there."""


class Reached:
    """The stages that were reached, in order, each with the latest time of its clock; settle may run."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.settle_runs = False

    def rebuild(self, _warehouse: Any, stage: str, _options: Any, *, latest: int | None) -> Origin:  # noqa: ANN401 - they are not looked at
        """In the place of the rebuild of a stage."""
        self.stages.append((stage, latest))
        return Origin(version=7)

    def reset_settle(self, _warehouse: Any, latest: int) -> None:  # noqa: ANN401 - the same
        """In the place of what settle gets."""
        if self.settle_runs:
            raise StageRunning(SETTLE, "somebody")
        self.stages.append((SETTLE, latest))


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Reached:
    """Nothing is rebuilt but in the list."""
    made = Reached()
    monkeypatch.setattr(command, "rebuild", made.rebuild)
    monkeypatch.setattr(command, "reset_settle", made.reset_settle)
    monkeypatch.setattr(command, "check_store", lambda *_: None)
    monkeypatch.setattr(command, "wall_ms", lambda: NOW)
    monkeypatch.setattr(command, "session", lambda *_: nullcontext(Session()))
    monkeypatch.setattr(submitted, "tool_session", lambda *_: Session())
    return made


Said = Callable[..., tuple[int, list[str]]]
"""Gives the exit status and the lines."""


@pytest.fixture(params=["typed", "submitted"])
def said(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Said:
    """What the command says, or the main."""
    root = str(tmp_path)
    new_warehouse(root)

    def typed(*words: str) -> tuple[int, list[str]]:
        result = invoke(["rebuild", *words, "--warehouse", root])
        return result.exit_code, result.stdout.splitlines()

    def main(*words: str) -> tuple[int, list[str]]:
        status = submitted.main([*words, "--warehouse", root])
        return status, capsys.readouterr().out.splitlines()

    return typed if request.param == "typed" else main


def test_the_clock_of_settle_is_reset_with_those_of_all_stages(reached: Reached, said: Said) -> None:
    """It refuses to start, as the others do; and it is told with a line, as they are."""
    status, lines = said("--stage", "all", "--reset-clock")
    assert status == 0
    assert reached.stages == [(stage, NOW) for stage in (SETTLE, *STAGES)]
    assert lines == ["stage settle goes on at the present time; start it again", *REBUILT]


def test_settle_is_left_alone_when_no_clock_is_reset(reached: Reached, said: Said) -> None:
    """It needs no rebuild."""
    assert said("--stage", "all") == (0, REBUILT)
    assert reached.stages == [(stage, None) for stage in STAGES]


def test_one_stage_alone_is_rebuilt_without_settle(reached: Reached, said: Said) -> None:
    """Its clock is the only one that was asked for."""
    assert said("--stage", "schedule", "--reset-clock") == (0, [REBUILT[1]])
    assert reached.stages == [("schedule", NOW)]


def test_no_stage_is_rebuilt_when_settle_runs(reached: Reached, said: Said) -> None:
    """All are to be stopped first; who forgot one has changed nothing yet."""
    reached.settle_runs = True
    status, lines = said("--stage", "all", "--reset-clock")
    assert status > 0
    assert lines == []
    assert reached.stages == []
