"""What settle follows of a line of the registry."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.settle.registry import Line
from pipeline.subscriptions.policies import Policies


def test_a_policy_that_cannot_be_followed_changes_no_other_one_and_is_told() -> None:
    """With other slots all leases would begin anew, and without its bound a message would come again for ever."""
    right = Policies(ack=True, slots=64, max_redeliveries=3)
    assert Line.of_row("shared", right.as_map()) == Line("shared", right)
    line = Line.of_row("no type", right.as_map() | {"max_rate": "fast"})
    assert (line.type, line.policies) == ("shared", right)
    assert line.wrong is not None
    assert "max_rate" in line.wrong
