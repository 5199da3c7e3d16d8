"""Killed once, after one of the steps, started again: the result is the same, row for row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stream.test_kills import FIRST, LATER, same_as_unkilled, script
from tests.support.spark import session
from tests.support.stream import play


@pytest.mark.parametrize("step", FIRST)
def test_a_kill_while_messages_are_taken_in_changes_nothing(tmp_path: Path, step: str) -> None:
    """The process dies right after the step and comes back with other settings."""
    same_as_unkilled(play(session(), str(tmp_path / "warehouse"), script(first=[step]), stores=2))


@pytest.mark.parametrize("step", LATER)
def test_a_kill_while_parked_messages_are_loaded_changes_nothing(tmp_path: Path, step: str) -> None:
    """The process dies right after the step and comes back with other settings."""
    same_as_unkilled(play(session(), str(tmp_path / "warehouse"), script(later=[step]), stores=2))
