"""The contract of the trackers: every tracker case of the promises, run against both trackers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from state import DelayedDeliveryTracker, Position
from tests.support.tracker_examples import STRICT, TOLERANT, MakeTracker, five_at_ten_to_fifty


@dataclass
class Owner:
    """A dispatcher: holds the one timer of its tracker and calls when it fires."""

    tracker: DelayedDeliveryTracker
    armed: int | None = None
    armings: list[int | None] = field(default_factory=list)
    received: list[tuple[int, Position]] = field(default_factory=list)

    def rearm(self) -> None:
        """Arm the timer, when the deadline is another one than before."""
        if self.tracker.next_deadline != self.armed:
            self.armed = self.tracker.next_deadline
            self.armings.append(self.armed)

    def offer(self, ledger_id: int, entry_id: int, deliver_at: int, now: int = 0) -> bool:
        """Offer a message to the tracker."""
        kept = self.tracker.add_message(ledger_id, entry_id, deliver_at, now)
        self.rearm()
        return kept

    def fire(self, now: int) -> list[Position]:
        """The timer fires."""
        taken = self.tracker.get_scheduled_messages(100, now)
        self.received += [(now, position) for position in taken]
        self.rearm()
        return taken


# ---- T = 1


def test_of_five_messages_at_ten_to_fifty_none_is_due_at_zero(make_tracker: MakeTracker) -> None:
    """At 0 nothing is available, nothing is taken, and the count is five."""
    tracker = five_at_ten_to_fifty(make_tracker)
    assert not tracker.has_message_available(0)
    assert tracker.get_scheduled_messages(10, 0) == []
    assert tracker.number_of_delayed_messages == 5


def test_at_fifteen_a_message_for_ten_is_refused_and_one_is_due(make_tracker: MakeTracker) -> None:
    """At 15 a message for 10 is to be delivered now, and exactly the first of the five is taken."""
    tracker = five_at_ten_to_fifty(make_tracker)
    assert not tracker.add_message(6, 6, 10, 15)
    assert tracker.number_of_delayed_messages == 5
    assert tracker.has_message_available(15)
    assert tracker.get_scheduled_messages(10, 15) == [Position(1, 1)]
    assert tracker.number_of_delayed_messages == 4
    assert not tracker.has_message_available(15)


def test_at_sixty_a_drain_of_three_then_of_one_twice_leaves_none(make_tracker: MakeTracker) -> None:
    """Five due messages leave by 3, 1, 1, and the count is exact after each step."""
    tracker = five_at_ten_to_fifty(make_tracker)
    assert tracker.get_scheduled_messages(3, 60) == [(1, 1), (2, 2), (3, 3)]
    assert tracker.number_of_delayed_messages == 2
    assert tracker.get_scheduled_messages(1, 60) == [(4, 4)]
    assert tracker.number_of_delayed_messages == 1
    assert tracker.has_message_available(60)
    assert tracker.get_scheduled_messages(1, 60) == [(5, 5)]
    assert tracker.number_of_delayed_messages == 0
    assert not tracker.has_message_available(60)
    assert tracker.get_scheduled_messages(1, 60) == []
    assert tracker.next_deadline is None


def test_after_one_was_taken_at_fifteen_a_drain_of_three_then_of_one_leaves_none(make_tracker: MakeTracker) -> None:
    """The four that stay after the first drain leave by 3, 1 at 60."""
    tracker = five_at_ten_to_fifty(make_tracker)
    assert tracker.get_scheduled_messages(3, 15) == [(1, 1)]
    assert tracker.get_scheduled_messages(3, 60) == [(2, 2), (3, 3), (4, 4)]
    assert tracker.get_scheduled_messages(1, 60) == [(5, 5)]
    assert tracker.number_of_delayed_messages == 0


# ---- the timer


def test_there_is_one_timer_and_it_is_for_the_earliest_message(make_tracker: MakeTracker) -> None:
    """The deadline is that of the earliest message, whatever the order in which they come."""
    tracker = make_tracker(1, STRICT)
    assert tracker.next_deadline is None
    for at in (30, 10, 50, 20):
        tracker.add_message(at, 0, at, 0)
    assert tracker.next_deadline == 10


def test_a_later_message_does_not_re_arm_the_timer(make_tracker: MakeTracker) -> None:
    """One arming for two messages, when the second is due later or at the same time."""
    owner = Owner(make_tracker(1, STRICT))
    owner.offer(1, 1, 10)
    owner.offer(2, 2, 20)
    owner.offer(3, 3, 10)
    assert owner.armings == [10]


def test_an_earlier_message_re_arms_the_timer(make_tracker: MakeTracker) -> None:
    """Two armings for two messages, when the second is due earlier."""
    owner = Owner(make_tracker(1, STRICT))
    owner.offer(1, 1, 20)
    owner.offer(2, 2, 10)
    assert owner.armings == [20, 10]


def test_a_refused_message_does_not_arm_the_timer(make_tracker: MakeTracker) -> None:
    """A message that is due now is not tracked and moves no deadline."""
    owner = Owner(make_tracker(1, STRICT))
    assert not owner.offer(1, 1, 10, now=10)
    assert owner.armings == []
    owner.offer(2, 2, 30, now=10)
    assert not owner.offer(1, 1, 10, now=10)
    assert owner.armings == [30]


def test_a_stale_timer_that_fires_clears_nothing(make_tracker: MakeTracker) -> None:
    """A call at a deadline that is long served changes neither the count nor the timer, however often it comes."""
    owner = Owner(make_tracker(1, STRICT))
    owner.offer(1, 1, 10)
    owner.offer(2, 2, 20)
    assert owner.fire(10) == [(1, 1)]
    for _ in range(3):
        assert owner.fire(10) == []
    assert owner.tracker.number_of_delayed_messages == 1
    assert owner.armings == [10, 20]
    assert owner.fire(20) == [(2, 2)]


def test_a_timer_that_fires_early_clears_nothing(make_tracker: MakeTracker) -> None:
    """A call before the deadline takes nothing and leaves the timer armed."""
    owner = Owner(make_tracker(1, STRICT))
    owner.offer(1, 1, 20)
    assert owner.fire(19) == []
    assert (owner.armed, owner.tracker.number_of_delayed_messages) == (20, 1)


def test_a_timer_from_before_a_clear_finds_only_what_came_after(make_tracker: MakeTracker) -> None:
    """The deadline of a forgotten message passes, and a later message is neither released nor lost."""
    owner = Owner(make_tracker(1, STRICT))
    owner.offer(1, 1, 10)
    owner.tracker.clear()
    owner.offer(2, 2, 20)
    assert owner.fire(10) == []
    assert owner.fire(20) == [(2, 2)]


def test_a_partial_drain_leaves_the_rest_armed(make_tracker: MakeTracker) -> None:
    """What a drain of one leaves behind stays due: the deadline does not move past it."""
    tracker = make_tracker(1000, STRICT)
    tracker.add_message(1, 1, 1000, 0)
    tracker.add_message(1, 2, 1000, 0)
    assert tracker.get_scheduled_messages(1, 2000) == [(1, 1)]
    assert tracker.next_deadline == 1024
    assert tracker.has_message_available(2000)


@pytest.mark.parametrize("strict", [STRICT, TOLERANT])
@pytest.mark.parametrize("tick", [1, 100, 1000, 1024, 60_000])
def test_the_deadline_is_the_first_instant_at_which_a_message_is_available(
    make_tracker: MakeTracker, tick: int, *, strict: bool
) -> None:
    """One ms before its deadline a message is not available, and at the deadline it is."""
    tracker = make_tracker(tick, strict)
    assert tracker.add_message(1, 1, 1_234_567, 0)
    deadline = tracker.next_deadline
    assert deadline is not None
    assert not tracker.has_message_available(deadline - 1)
    assert tracker.get_scheduled_messages(1, deadline - 1) == []
    assert tracker.has_message_available(deadline)
    assert tracker.get_scheduled_messages(1, deadline) == [(1, 1)]


# ---- the due rules


@pytest.mark.parametrize(("deliver_at", "kept"), [(10, False), (99, False), (100, False), (101, True), (200, True)])
def test_a_tolerant_tracker_of_tick_100_refuses_up_to_100_and_keeps_101(
    make_tracker: MakeTracker, deliver_at: int, *, kept: bool
) -> None:
    """At 0, a message due within one tick is delivered now."""
    tracker = make_tracker(100, TOLERANT)
    assert tracker.add_message(1, 1, deliver_at, 0) is kept
    assert tracker.number_of_delayed_messages == int(kept)


@pytest.mark.parametrize("tick", [1, 100, 1000])
@pytest.mark.parametrize(("deliver_at", "kept"), [(9, False), (10, False), (11, True)])
def test_a_strict_tracker_at_ten_refuses_nine_and_ten_and_keeps_eleven(
    make_tracker: MakeTracker, tick: int, deliver_at: int, *, kept: bool
) -> None:
    """Strict refuses what is due by the exact time, whatever the tick."""
    tracker = make_tracker(tick, STRICT)
    assert tracker.add_message(1, 1, deliver_at, 10) is kept
    assert tracker.number_of_delayed_messages == int(kept)


def test_a_strict_tracker_of_tick_1000_releases_60400_at_60416_and_61000_at_61440(make_tracker: MakeTracker) -> None:
    """Called at every ms, it releases each message at the end of its bucket, and the timer is re-armed each time."""
    owner = Owner(make_tracker(1000, STRICT))
    owner.offer(1, 1, 60_400)
    owner.offer(1, 2, 61_000)
    for now in range(60_300, 61_500):
        assert owner.tracker.has_message_available(now) is bool(owner.fire(now))
    assert owner.received == [(60_416, (1, 1)), (61_440, (1, 2))]
    assert owner.armings == [60_416, 61_440, None]


def test_a_tolerant_tracker_of_tick_1000_shows_60400_exactly_once_from_59415(make_tracker: MakeTracker) -> None:
    """Not visible at 59000 nor at 59414, visible at 59415, taken once, and refused when it is offered again."""
    tracker = make_tracker(1000, TOLERANT)
    assert tracker.add_message(1, 1, 60_400, 58_000)
    assert not tracker.has_message_available(59_000)
    assert tracker.get_scheduled_messages(10, 59_000) == []
    assert not tracker.has_message_available(59_414)
    assert tracker.has_message_available(59_415)
    assert tracker.get_scheduled_messages(10, 59_415) == [(1, 1)]
    assert tracker.get_scheduled_messages(10, 59_415) == []
    assert not tracker.add_message(1, 1, 60_400, 59_415)
    assert not tracker.has_message_available(59_415)
    assert tracker.number_of_delayed_messages == 0


# ---- order


def test_messages_of_equal_time_are_drained_one_by_one_in_ledger_order(make_tracker: MakeTracker) -> None:
    """Three messages of one time, added in another order, leave by ledger."""
    tracker = make_tracker(1, STRICT)
    for ledger in (3, 1, 2):
        tracker.add_message(ledger, 9, 10, 0)
    assert [tracker.get_scheduled_messages(1, 10) for _ in range(4)] == [[(1, 9)], [(2, 9)], [(3, 9)], []]


def test_seven_entries_of_one_bucket_drained_by_four_two_and_ten_leave_lowest_first(make_tracker: MakeTracker) -> None:
    """Lowest ids come first whatever their exact times, and none comes twice."""
    tracker = make_tracker(1000, STRICT)
    for entry in (5, 3, 7, 1, 6, 2, 4):
        tracker.add_message(1, entry, 1_020 - entry, 0)
    assert tracker.get_scheduled_messages(4, 2000) == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert tracker.get_scheduled_messages(2, 2000) == [(1, 5), (1, 6)]
    assert tracker.get_scheduled_messages(10, 2000) == [(1, 7)]
    assert tracker.number_of_delayed_messages == 0


def test_an_earlier_message_that_arrives_later_is_released_first(make_tracker: MakeTracker) -> None:
    """Due time comes before ledger, entry and the order of arrival."""
    tracker = make_tracker(1, STRICT)
    tracker.add_message(1, 1, 30, 0)
    tracker.add_message(9, 9, 20, 5)
    assert tracker.get_scheduled_messages(10, 40) == [(9, 9), (1, 1)]


def test_an_earlier_message_that_arrives_between_two_drains_is_released_first(make_tracker: MakeTracker) -> None:
    """After a partial drain, a newcomer that is due before the rest overtakes it."""
    tracker = make_tracker(1, STRICT)
    for entry in (1, 2):
        tracker.add_message(1, entry, 30, 0)
    assert tracker.get_scheduled_messages(1, 30) == [(1, 1)]
    tracker.add_message(5, 5, 20, 10)
    assert tracker.get_scheduled_messages(10, 30) == [(5, 5), (1, 2)]


def test_a_drain_of_none_takes_none(make_tracker: MakeTracker) -> None:
    """A maximum of zero is allowed and changes nothing."""
    tracker = five_at_ten_to_fifty(make_tracker)
    assert tracker.get_scheduled_messages(0, 60) == []
    assert (tracker.number_of_delayed_messages, tracker.next_deadline) == (5, 10)


def test_positions_have_names(make_tracker: MakeTracker) -> None:
    """A position that is released is a `Position` of plain ints."""
    tracker = make_tracker(1, STRICT)
    tracker.add_message(3, 4, 10, 0)
    (position,) = tracker.get_scheduled_messages(1, 10)
    assert (position.ledger_id, position.entry_id) == (3, 4)
    assert [type(position), type(position.ledger_id), type(position.entry_id)] == [Position, int, int]


# ---- clear, count, duplicates


def test_clear_empties_index_count_and_timer(make_tracker: MakeTracker) -> None:
    """After a clear nothing is due, counted or armed, and the tracker can be used again."""
    tracker = five_at_ten_to_fifty(make_tracker)
    tracker.get_scheduled_messages(1, 10)
    tracker.clear()
    assert tracker.number_of_delayed_messages == 0
    assert tracker.next_deadline is None
    assert not tracker.has_message_available(10**12)
    assert tracker.get_scheduled_messages(10, 10**12) == []
    assert tracker.add_message(2, 2, 20, 0)
    assert tracker.get_scheduled_messages(10, 20) == [(2, 2)]


def test_the_same_message_offered_twice_counts_once(make_tracker: MakeTracker) -> None:
    """Both offers are taken, also after a drain sealed the first, but the message is released once."""
    tracker = make_tracker(1000, STRICT)
    assert tracker.add_message(1, 1, 1000, 0)
    assert tracker.add_message(1, 1, 1001, 0)
    tracker.get_scheduled_messages(0, 5000)
    assert tracker.add_message(1, 1, 1024, 0)
    assert tracker.number_of_delayed_messages == 1
    assert tracker.get_scheduled_messages(10, 5000) == [(1, 1)]
    assert tracker.get_scheduled_messages(10, 5000) == []


def test_a_message_that_was_released_can_be_tracked_again(make_tracker: MakeTracker) -> None:
    """Counting once holds while a message is pending; a redelivery may delay it anew."""
    tracker = make_tracker(1, STRICT)
    tracker.add_message(1, 1, 10, 0)
    assert tracker.get_scheduled_messages(10, 10) == [(1, 1)]
    assert tracker.add_message(1, 1, 20, 10)
    assert tracker.get_scheduled_messages(10, 20) == [(1, 1)]


def test_a_message_that_was_released_can_be_tracked_again_in_its_bucket(make_tracker: MakeTracker) -> None:
    """An owner whose clock stepped back offers it anew: nothing remembers it, and it is released once more."""
    tracker = make_tracker(1000, STRICT)
    for _ in range(2):
        assert tracker.add_message(1, 1, 600, 500)
        assert tracker.number_of_delayed_messages == 1
        assert tracker.get_scheduled_messages(10, 1024) == [(1, 1)]


def test_the_same_position_in_two_buckets_is_pending_twice(make_tracker: MakeTracker) -> None:
    """A position is identified with its bucket, so two times far apart are two messages."""
    tracker = make_tracker(1, STRICT)
    tracker.add_message(1, 1, 10, 0)
    tracker.add_message(1, 1, 20, 0)
    assert tracker.number_of_delayed_messages == 2
    assert tracker.get_scheduled_messages(10, 20) == [(1, 1), (1, 1)]


def test_memory_usage_grows_with_messages_and_a_clear_gives_it_back(make_tracker: MakeTracker) -> None:
    """Bytes are above zero, more with a thousand messages, and as at first after a clear."""
    tracker = make_tracker(1, STRICT)
    empty = tracker.memory_usage
    for entry in range(1000):
        tracker.add_message(1, entry * 3, 10 + entry * 17 % 400, 0)
    assert tracker.memory_usage > empty + 1000
    assert empty > 0
    tracker.clear()
    assert tracker.memory_usage == empty


def test_thousands_of_messages_leave_in_order_and_the_count_is_exact(make_tracker: MakeTracker) -> None:
    """More messages than are collected before a chunk is made: all are there, once, in order of bucket and id."""
    tracker = make_tracker(1, STRICT)
    times = [1 + i * 7_919 % 1_000 for i in range(20_000)]
    for entry, at in enumerate(times):
        assert tracker.add_message(1, entry, at, 0)
    expected = sorted((at, entry) for entry, at in enumerate(times))
    assert tracker.number_of_delayed_messages == 20_000
    first = tracker.get_scheduled_messages(12_345, 1_000)
    second = tracker.get_scheduled_messages(20_000, 1_000)
    assert [position.entry_id for position in first + second] == [entry for _, entry in expected]
