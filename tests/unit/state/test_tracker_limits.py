"""The contract of the trackers, continued: what each refuses, and its limits; run against both."""

from __future__ import annotations

import pytest

from state import HeapTracker, OutOfRange, TimeBucketTracker
from tests.support.tracker_examples import (
    LAST_ENTRY,
    LAST_LEDGER,
    LAST_MS,
    STRICT,
    TOLERANT,
    MakeTracker,
    five_at_ten_to_fifty,
)

# ---- errors


@pytest.mark.parametrize("strict", [STRICT, TOLERANT])
@pytest.mark.parametrize(
    ("field_name", "value", "high"),
    [
        ("ledger_id", -1, LAST_LEDGER),
        ("ledger_id", LAST_LEDGER + 1, LAST_LEDGER),
        ("entry_id", -1, LAST_ENTRY),
        ("entry_id", LAST_ENTRY + 1, LAST_ENTRY),
        ("deliver_at", -1, LAST_MS),
        ("deliver_at", LAST_MS + 1, LAST_MS),
    ],
)
def test_a_message_outside_a_range_is_refused_with_field_value_and_range(
    make_tracker: MakeTracker, field_name: str, value: int, high: int, *, strict: bool
) -> None:
    """The error says which argument, what it was and what it may be, and nothing is tracked."""
    tracker = make_tracker(1, strict)
    message = {"ledger_id": 1, "entry_id": 1, "deliver_at": 10} | {field_name: value}
    with pytest.raises(OutOfRange) as caught:
        tracker.add_message(**message, now=0)
    error = caught.value
    assert (error.field, error.value, error.low, error.high) == (field_name, value, 0, high)
    assert (tracker.number_of_delayed_messages, tracker.next_deadline) == (0, None)


def test_a_negative_maximum_is_refused_with_field_value_and_range(make_tracker: MakeTracker) -> None:
    """A drain of -1 raises and takes nothing."""
    tracker = five_at_ten_to_fifty(make_tracker)
    with pytest.raises(OutOfRange) as caught:
        tracker.get_scheduled_messages(-1, 60)
    assert (caught.value.field, caught.value.value, caught.value.low) == ("max_messages", -1, 0)
    assert tracker.number_of_delayed_messages == 5


@pytest.mark.parametrize("tracker_type", [HeapTracker, TimeBucketTracker])
@pytest.mark.parametrize("tick", [0, -1, 2**41 + 1])
def test_a_tick_outside_its_range_is_refused_with_field_value_and_range(
    tracker_type: type[HeapTracker | TimeBucketTracker], tick: int
) -> None:
    """A tick is 1 to 2^41 ms."""
    with pytest.raises(OutOfRange) as caught:
        tracker_type(tick, STRICT)
    error = caught.value
    assert (error.field, error.value, error.low, error.high) == ("tick_ms", tick, 1, 2**41)


def test_the_largest_maximum_means_all(make_tracker: MakeTracker) -> None:
    """A maximum of 2^62 takes everything that is due."""
    tracker = five_at_ten_to_fifty(make_tracker)
    assert len(tracker.get_scheduled_messages(2**62, 60)) == 5


# ---- extremes


@pytest.mark.parametrize(("strict", "now"), [(STRICT, LAST_MS), (TOLERANT, LAST_MS - 1)])
def test_the_last_position_and_the_last_instant_are_tracked(
    make_tracker: MakeTracker, *, strict: bool, now: int
) -> None:
    """Ledger 2^62, entry 2^31 - 1 and the last ms of 9999 are taken, and released at their time."""
    tracker = make_tracker(1, strict)
    assert tracker.add_message(LAST_LEDGER, LAST_ENTRY, LAST_MS, 0)
    assert tracker.add_message(0, 0, LAST_MS, 0)
    assert tracker.next_deadline == now
    assert tracker.get_scheduled_messages(10, now - 1) == []
    assert tracker.get_scheduled_messages(10, now) == [(0, 0), (LAST_LEDGER, LAST_ENTRY)]


@pytest.mark.parametrize(("strict", "now"), [(STRICT, 0), (TOLERANT, -489)])
def test_the_first_position_and_the_first_instant_are_tracked(
    make_tracker: MakeTracker, *, strict: bool, now: int
) -> None:
    """Ledger 0, entry 0 and time 0 are taken by an owner that stands before 1970, and released at their time."""
    tracker = make_tracker(1000, strict)
    assert tracker.add_message(0, 0, 0, -5_000)
    assert tracker.next_deadline == now
    assert not tracker.has_message_available(now - 1)
    assert tracker.get_scheduled_messages(10, now) == [(0, 0)]


def test_time_zero_is_due_now_at_zero(make_tracker: MakeTracker) -> None:
    """A message without a delay carries time 0 and is refused by any owner of this century."""
    assert not make_tracker(1000, STRICT).add_message(0, 0, 0, 0)


def test_the_widest_tick_still_releases_the_last_instant(make_tracker: MakeTracker) -> None:
    """The last ms of 9999 rounded up to 2^41 ms is released then, not lost to an overflow."""
    tracker = make_tracker(2**41, STRICT)
    tracker.add_message(1, 1, LAST_MS, 0)
    due = -(-LAST_MS // 2**41) * 2**41
    assert tracker.next_deadline == due
    assert tracker.get_scheduled_messages(1, due - 1) == []
    assert tracker.get_scheduled_messages(1, due) == [(1, 1)]


def test_a_message_without_a_delivery_time_is_delivered_now(make_tracker: MakeTracker) -> None:
    """No `deliver_at` means now: the tracker does not take it."""
    tracker = make_tracker(1000, STRICT)
    assert not tracker.add_message(1, 1, None, 0)
    assert tracker.number_of_delayed_messages == 0
