"""What operators, clocks and deaths do to the stages changes nothing of what comes (`tests.support.operated`)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from tests.support.operated import Operated


def test_operators_change_nothing_of_what_comes() -> None:
    """Whatever they do when, whoever stays away, whatever the clock is set to, and whatever dies."""
    examples = max(1, settings().max_examples // 16)
    run_state_machine_as_test(Operated, settings=settings(stateful_step_count=20, max_examples=examples))
