"""How fast and how often a message comes again, and how much a consumer may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import Backoff, OutOfRange, RetryPolicy, UnackedLimit

LATEST = 253_402_300_799_999


def test_a_nack_without_a_backoff_policy_waits_a_minute_each_time() -> None:
    """As in the reference."""
    assert [RetryPolicy().backoff.delay(count) for count in (0, 1, 50)] == [60_000] * 3


def test_the_backoff_doubles_from_ten_seconds_to_ten_minutes() -> None:
    """As in the reference."""
    delays = [Backoff().delay(count) for count in range(8)]
    assert delays == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000]


@given(st.integers(0, LATEST), st.integers(1, 1000), st.integers(0, LATEST), st.integers(0, 2**31 - 1))
def test_no_backoff_overflows_and_none_leaves_its_range(low: int, multiplier: int, more: int, count: int) -> None:
    """It is the exact power, cut at its end, for every count that a state can hold."""
    backoff = Backoff(low, multiplier, min(low + more, LATEST))
    delay = backoff.delay(count)
    assert backoff.min_ms <= delay <= backoff.max_ms
    assert delay <= backoff.delay(min(count + 1, 2**31 - 1))
    exact = low
    for _ in range(min(count, 60) if multiplier > 1 else 0):
        exact = min(exact * multiplier, backoff.max_ms)
    assert delay == exact


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("min_ms", (-1, 2, 10)),
        ("multiplier", (1, 0, 10)),
        ("multiplier", (1, 1001, 10)),
        ("max_ms", (11, 2, 10)),
        ("max_ms", (1, 2, LATEST + 1)),
    ],
)
def test_a_backoff_that_cannot_be_followed_is_refused_by_field(field: str, arguments: tuple[int, int, int]) -> None:
    """When the policy is set, not when the first message fails."""
    with pytest.raises(OutOfRange) as error:
        Backoff(*arguments)
    assert error.value.field == field


def test_no_limit_of_redeliveries_below_zero() -> None:
    """Zero is one: the first failure is the last."""
    assert RetryPolicy(max_redeliver_count=0).gives_up(0)
    with pytest.raises(OutOfRange):
        RetryPolicy(max_redeliver_count=-1)


def test_without_a_limit_of_redeliveries_nothing_is_given_up() -> None:
    """However often it fails."""
    assert not RetryPolicy().gives_up(2**31 - 1)


def test_the_unacknowledged_limit_pauses_new_deliveries_and_resumes_at_half() -> None:
    """At the limit nothing new comes; one settled message is not enough, half of them are."""
    limit = UnackedLimit(10).given(9)
    assert limit.room == 1
    limit = limit.given(1)
    assert (limit.room, limit.returned(4).room, limit.returned(5).room) == (0, 0, 5)
    assert limit.returned(4).returned(1).room == 5


def test_redeliveries_come_while_new_deliveries_pause() -> None:
    """They count, so that a consumer goes on later; and nothing refuses them."""
    limit = UnackedLimit(4).given(4).given(3)
    assert (limit.unacked, limit.room) == (7, 0)
    assert (limit.returned(4).room, limit.returned(5).room) == (0, 2)


def test_a_consumer_below_its_limit_is_not_paused_above_half() -> None:
    """The pause begins at the limit, not at half of it."""
    assert UnackedLimit(10).given(9).returned(1).room == 2


def test_no_limit_is_no_limit() -> None:
    """Zero, as in the reference."""
    assert UnackedLimit(0).given(10**9).room is None


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_small_limits_resume(limit: int) -> None:
    """Half of one is none."""
    assert UnackedLimit(limit).given(limit).returned(limit).room == limit


def test_more_than_a_consumer_holds_cannot_come_back() -> None:
    """Whoever counts something twice is told."""
    with pytest.raises(OutOfRange):
        UnackedLimit(10).given(3).returned(4)
