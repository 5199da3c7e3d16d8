"""Killed once, after one of the steps, started again: the result is the same, row for row."""

from __future__ import annotations

import pytest

from tests.stream.test_kills import FIRST, LATER, same_as_unkilled, script
from tests.support.worlds import on_two_stores


@pytest.mark.parametrize("step", FIRST)
def test_a_kill_while_messages_are_taken_in_changes_nothing(step: str) -> None:
    """The process dies right after the step and comes back with other settings."""
    same_as_unkilled(on_two_stores(script(first=[step])), on_two_stores)


@pytest.mark.parametrize("step", LATER)
def test_a_kill_while_parked_messages_are_loaded_changes_nothing(step: str) -> None:
    """The process dies right after the step and comes back with other settings."""
    same_as_unkilled(on_two_stores(script(later=[step])), on_two_stores)
