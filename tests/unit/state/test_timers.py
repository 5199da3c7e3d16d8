"""Ack timeouts and negative acks: each message fires once, in time, unless it was acknowledged before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import MessageTimers, OutOfRange, Positions


def one(ledger: int, first: int, last: int | None = None) -> Positions:
    """A run."""
    return Positions.of_runs([(ledger, first, first if last is None else last)])


def fired(timers: MessageTimers, now: int) -> list[tuple[int, int]]:
    """(ledger, entry) of what fires."""
    return [(ledger, entry) for ledger, first, last in timers.take_due(now).runs() for entry in range(first, last + 1)]


@pytest.mark.parametrize(("delay", "tick"), [(30_000, 1_000), (10_000, 1), (60_000, 256), (1_000, 1_024)])
def test_a_message_fires_after_its_delay_and_within_a_tick(delay: int, tick: int) -> None:
    """In (delay, delay + tick], from whatever moment it was added at, called at the moment that was asked for."""
    for start in (0, 1, 511, 512, 12_345):
        timers = MessageTimers(delay, tick)
        timers.add_one(1, 1, start)
        at = timers.next_deadline
        assert at is not None
        assert start + delay < at <= start + delay + tick
        assert fired(timers, at - 1) == []
        assert fired(timers, at) == [(1, 1)]
        assert timers.next_deadline is None


def test_an_ack_stops_the_time_of_a_message() -> None:
    """Also of one in the middle of a run that came at once."""
    timers = MessageTimers(10_000)
    timers.add(one(1, 0, 9), 0)
    assert timers.remove_one(1, 4)
    assert not timers.remove_one(1, 4)
    assert timers.remove(one(1, 0, 2)) == 3
    assert len(timers) == 6
    assert fired(timers, 20_000) == [(1, 3), *((1, entry) for entry in range(5, 10))]


def test_a_message_that_comes_again_waits_its_whole_time_again() -> None:
    """It was acknowledged or nacked, and is redelivered while its first time is still in the index."""
    timers = MessageTimers(10_000, 1)
    timers.add_one(1, 1, 0)
    timers.remove_one(1, 1)
    timers.add_one(1, 2, 1_000)
    timers.add_one(1, 1, 4_000)
    timers.add(one(1, 1), 8_000)
    assert fired(timers, 15_000) == [(1, 2)]
    assert fired(timers, 18_000) == []
    assert fired(timers, 18_001) == [(1, 1)]
    assert len(timers) == 0


def test_a_message_that_fired_can_be_added_again() -> None:
    """Its next round has a time of its own."""
    timers = MessageTimers(1_000, 1)
    for start in (0, 2_000, 4_000):
        timers.add_one(5, 5, start)
        assert fired(timers, start + 1_000) == []
        assert fired(timers, start + 1_001) == [(5, 5)]


def test_nothing_is_kept_when_everything_is_acknowledged() -> None:
    """A consumer that keeps up pays for what it holds, not for what it has done."""
    timers = MessageTimers(60_000)
    empty = timers.memory_usage
    timers.add(one(1, 0, 99_999), 0)
    assert timers.memory_usage > empty
    assert timers.remove(one(1, 0, 99_999)) == 100_000
    assert (timers.memory_usage, timers.next_deadline, len(timers)) == (empty, None, 0)


def test_the_last_one_fires_beside_times_of_ledgers_in_which_nothing_waits() -> None:
    """Ledgers 2 and 3 were acknowledged; their times are over together with that of ledger 1."""
    timers = MessageTimers(1_000)
    for ledger in (1, 2, 3):
        timers.add_one(ledger, 7, 0)
    assert timers.remove(Positions.of_runs([(2, 0, 9), (3, 0, 9)])) == 2
    assert fired(timers, 5_000) == [(1, 7)]
    timers.add_one(2, 7, 5_000)
    assert fired(timers, 7_000) == [(2, 7)]


def test_a_clear_forgets_what_waits() -> None:
    """Redelivery of everything that is unacknowledged begins anew."""
    timers = MessageTimers(1_000)
    timers.add(one(1, 0, 9), 0)
    timers.clear()
    assert fired(timers, 10_000) == []
    timers.add_one(1, 1, 10_000)
    assert fired(timers, 12_024) == [(1, 1)]


@pytest.mark.parametrize("value", [0, -1, 2**41 + 1])
def test_a_delay_or_a_tick_outside_its_range_is_refused(value: int) -> None:
    """1 to 2^41 ms."""
    with pytest.raises(OutOfRange) as caught:
        MessageTimers(value)
    assert caught.value.field == "delay_ms"
    with pytest.raises(OutOfRange) as caught:
        MessageTimers(1_000, value)
    assert caught.value.field == "tick_ms"


def test_a_position_outside_its_range_is_refused_and_nothing_is_kept_of_it() -> None:
    """As everywhere."""
    timers = MessageTimers(1_000)
    for ledger, entry in ((-1, 0), (0, -1), (2**62 + 1, 0), (0, 2**31)):
        with pytest.raises(OutOfRange):
            timers.add_one(ledger, entry, 0)
    assert (len(timers), timers.next_deadline) == (0, None)


POSITION = st.tuples(st.integers(0, 1), st.integers(0, 4))
STEP = st.tuples(st.sampled_from(["one", "many", "ack", "acks", "fire"]), POSITION, st.integers(0, 40))


@given(st.lists(STEP, max_size=60), st.sampled_from([1, 16, 64]))
def test_timers_are_a_dict_of_times(steps: list[tuple[str, tuple[int, int], int]], tick: int) -> None:
    """Whatever is added, acknowledged and added again: what fires is what a dict of times says."""
    timers, model, now = MessageTimers(100, tick), dict[tuple[int, int], int](), 0
    for what, (ledger, entry), ms in steps:
        now += ms
        run = [(ledger, each) for each in range(entry, entry + 3)]
        if what == "one":
            timers.add_one(ledger, entry, now)
            model[ledger, entry] = -(-(now + 101) // tick) * tick
        elif what == "many":
            timers.add(one(ledger, entry, entry + 2), now)
            model |= dict.fromkeys(run, -(-(now + 101) // tick) * tick)
        elif what == "ack":
            assert timers.remove_one(ledger, entry) == (model.pop((ledger, entry), None) is not None)
        elif what == "acks":
            assert timers.remove(one(ledger, entry, entry + 2)) == sum(
                model.pop(each, None) is not None for each in run
            )
        else:
            due = sorted(position for position, at in model.items() if at <= now)
            assert fired(timers, now) == due
            model = {position: at for position, at in model.items() if at > now}
        assert len(timers) == len(model)
        assert (timers.next_deadline or now) <= min(model.values(), default=now)
