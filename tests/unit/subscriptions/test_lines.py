"""Lines of the registry, as the stages and the client read them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from pipeline.subscriptions.lines import RegistryLine, counted
from pipeline.subscriptions.policies import Policies


def line(**columns: Any) -> RegistryLine:  # noqa: ANN401 - columns
    """A line of the registry."""
    usual = {"topic": "t", "subscription": "s", "type": "shared", "start": "latest", "tick_ms": 1_000, "policies": None}
    return RegistryLine.of_row(usual | columns)


def test_a_policy_that_cannot_be_followed_changes_no_other_one_and_is_told() -> None:
    """With other slots all leases would begin anew, and without its bound a message would come again for ever."""
    right = Policies(ack=True, slots=64, max_redeliveries=3)
    clear = line(policies=right.as_map())
    assert (clear.type, clear.policies, clear.wrong, clear.acknowledges) == ("shared", right, None, True)
    wrong = line(type="no type", policies=right.as_map() | {"max_rate": "fast"})
    assert (wrong.type, wrong.policies) == ("shared", right)
    assert wrong.wrong is not None
    assert "max_rate" in wrong.wrong


@pytest.mark.parametrize(
    ("counts", "other"),
    [
        ({"tick_ms": 1}, {"tick_ms": 2}),
        ({"tick_ms": 2}, {"tick_ms": 0}),
        ({"tick_ms": 2}, {"tick_ms": None}),
        ({"start": "2@0:0"}, {"start": "1@5:0"}),
        ({"start": "1@5:0"}, {"start": "earliest"}),
        ({"start": "latest"}, {"start": "9999999999999999999@0:0"}),
        ({"start": "earliest"}, {"start": "latest"}),
        ({"type": "shared"}, {"type": "exclusive"}),
        ({"policies": {"ack": "true"}}, {"policies": None}),
        ({"policies": {"ack": "true"}}, {"policies": {"ack": None}}),
    ],
)
def test_of_two_lines_of_one_subscription_one_counts_however_they_lie(
    counts: dict[str, Any], other: dict[str, Any]
) -> None:
    """One by which nobody can join does not stand in the way of one by which somebody can."""
    lines = [line(**counts), line(**other), line(subscription="another")]
    for order in permutations(lines):
        assert counted(order) == {("t", "s"): lines[0], ("t", "another"): lines[2]}


def test_rows_of_strangers_are_lines() -> None:
    """NULL is in any column that they leave out."""
    nothing = RegistryLine.of_row(dict.fromkeys(("topic", "subscription", "type", "start", "tick_ms", "policies")))
    assert (nothing.named, nothing.type, nothing.subscription.fits, nothing.acknowledges) == (
        ("", ""),
        "shared",
        False,
        False,
    )
