"""Both trackers, driven by the same steps, against each other and against exact times."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from state import DelayedDeliveryTracker, HeapTracker, Position, TimeBucketTracker
from tests.support.index_model import Rule

SETTINGS = {"tick": st.sampled_from([1, 2, 100, 1_000, 1_024, 60_000]), "strict": st.booleans()}
START = 1_700_000_000_000

Step = tuple[str, int, int, int, int]
"""What to do, ms that the clock moves before it, ledger, entry, and a delay (add) or a maximum (drain)."""


def programs(steps: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """Short programs, and long ones: Hypothesis alone makes lists of five."""
    return st.lists(steps) | st.lists(steps, min_size=20, max_size=60)


OFFERS = st.tuples(
    st.just("add"),
    st.integers(0, 50),
    st.integers(0, 3),
    st.integers(0, 20),
    st.one_of(st.integers(-10, 300), st.integers(0, 5_000), st.integers(0, 200_000)),
)
DRAINS = st.tuples(
    st.just("drain"),
    st.one_of(st.integers(0, 300), st.integers(-500, 150_000)),
    st.just(0),
    st.just(0),
    st.one_of(st.integers(0, 4), st.just(1_000)),
)
CLEARS = st.just(("clear", 0, 0, 0, 0))
PROGRAMS = programs(st.one_of(OFFERS, OFFERS, OFFERS, OFFERS, DRAINS, DRAINS, DRAINS, CLEARS))
DRAINING = programs(st.one_of(OFFERS, OFFERS, DRAINS))


def apply(tracker: DelayedDeliveryTracker, step: Step, now: int) -> object:
    """Do a step; what the tracker answered."""
    name, _, ledger, entry, number = step
    if name == "add":
        return tracker.add_message(ledger, entry, now + number, now)
    if name == "drain":
        return tracker.get_scheduled_messages(number, now)
    tracker.clear()
    return None


def seen(tracker: DelayedDeliveryTracker, now: int) -> tuple[object, ...]:
    """All that one can ask."""
    return tracker.number_of_delayed_messages, tracker.next_deadline, tracker.has_message_available(now)


@given(steps=PROGRAMS, seal_at=st.sampled_from([2, 16_384]), **SETTINGS)
def test_both_trackers_answer_alike_at_every_step(steps: list[Step], seal_at: int, tick: int, *, strict: bool) -> None:
    """The same answers, counts, deadlines and availability, under any tick, strict and tolerant."""
    now = START
    heap, bucket = HeapTracker(tick, strict), TimeBucketTracker(tick, strict)
    with patch("state.index.SEAL_AT", seal_at):
        for step in steps:
            now += step[1]
            assert apply(heap, step, now) == apply(bucket, step, now)
            assert seen(heap, now) == seen(bucket, now)
            bucket.index.check_invariants()
    assert heap.get_scheduled_messages(100, 10**15) == bucket.get_scheduled_messages(100, 10**15)


@given(steps=DRAINING, strict=st.booleans())
def test_where_the_tick_is_one_both_release_at_the_exact_time(steps: list[Step], *, strict: bool) -> None:
    """Strict: all with time <= now, tolerant: one ms more, by exact time, ledger, entry, up to the maximum."""
    now, slack = START, 0 if strict else 1
    trackers = HeapTracker(1, strict), TimeBucketTracker(1, strict)
    exact: set[tuple[int, int, int]] = set()
    for step in steps:
        now += step[1]
        answers = [apply(tracker, step, now) for tracker in trackers]
        name, _, ledger, entry, number = step
        expected: object
        if name == "add":
            expected = now + number > now + slack
            exact |= {(now + number, ledger, entry)} if expected else set()
        else:
            due = sorted(item for item in exact if item[0] <= now + slack)[:number]
            exact -= set(due)
            expected = [Position(ledger, entry) for _, ledger, entry in due]
        assert answers == [expected, expected]
        assert [tracker.number_of_delayed_messages for tracker in trackers] == [len(exact)] * 2


@given(steps=DRAINING, **SETTINGS)
def test_both_trackers_keep_the_stated_distance_from_the_exact_time(
    steps: list[Step], tick: int, *, strict: bool
) -> None:
    """Strict: never early, late by less than a bucket. Tolerant: at most a tick early, never late."""
    now, width = START, Rule(tick, strict).width
    trackers = HeapTracker(tick, strict), TimeBucketTracker(tick, strict)
    exact: dict[Position, int] = {}
    for number, (name, advance, ledger, _, amount) in enumerate(steps):
        now += advance
        step = (name, advance, ledger, number, amount)  # each message is another one: a time is known by its position
        answers = [apply(tracker, step, now) for tracker in trackers]
        if name == "add":
            assert answers == [now + amount > now + (0 if strict else tick)] * 2
            if answers[0]:
                exact[Position(ledger, number)] = now + amount
            continue
        assert answers[0] == answers[1]
        for position in trackers[0].get_scheduled_messages(1_000, now) + list(answers[0]):  # type: ignore[call-overload]
            assert exact.pop(position) <= now + (0 if strict else tick)
        trackers[1].get_scheduled_messages(1_000, now)
        overdue = [at for at in exact.values() if (at + width <= now if strict else at <= now)]
        assert overdue == []
    assert {tracker.number_of_delayed_messages for tracker in trackers} == {len(exact)}


@given(steps=PROGRAMS, **SETTINGS)
def test_a_drain_before_the_deadline_takes_nothing_and_one_at_it_takes_something(
    steps: list[Step], tick: int, *, strict: bool
) -> None:
    """The deadline is the first instant at which the tracker has something, after any program."""
    now = START
    trackers = HeapTracker(tick, strict), TimeBucketTracker(tick, strict)
    for step in steps:
        now += step[1]
        for tracker in trackers:
            apply(tracker, step, now)
    for tracker in trackers:
        deadline = tracker.next_deadline
        assert (deadline is None) == (tracker.number_of_delayed_messages == 0)
        if deadline is not None:
            assert not tracker.has_message_available(deadline - 1)
            assert tracker.get_scheduled_messages(100, deadline - 1) == []
            assert tracker.has_message_available(deadline)
            assert tracker.get_scheduled_messages(100, deadline) != []
