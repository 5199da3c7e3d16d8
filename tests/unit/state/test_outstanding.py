"""What becomes of a released position: acknowledged, put back, given up, or asked about once too often."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from pyroaring import BitMap

from state import (
    Ack,
    Backoff,
    Cancel,
    Cell,
    Clear,
    Closed,
    Condition,
    Counts,
    Event,
    Ignored,
    InvalidArgument,
    Nack,
    OutOfRange,
    Outstanding,
    Positions,
    Released,
    RetryPolicy,
    Undeliverable,
    cursor_bytes,
)
from state.units import Ms
from tests.support.outstanding_model import Fate, fates, held
from tests.support.settled import FOREVER, NOW, apply, at, released

Settle = Callable[[Positions], Event]


def test_an_ack_out_of_order_advances_the_oldest_only_over_what_is_settled_without_a_gap() -> None:
    """The mark-delete position waits for the hole, then jumps over all that was acknowledged behind it."""
    state = released((1, 0, 9), (2, 0, 4))
    apply(state, Ack(at((1, 3, 9), (2, 0, 1))))
    assert state.oldest == (1, 0)
    apply(state, Ack(at((1, 0, 1))))
    assert state.oldest == (1, 2)
    apply(state, Ack(at((1, 2, 2))))
    assert state.oldest == (2, 2)
    apply(state, Ack(at((2, 2, 4))))
    assert state.oldest is None


def test_what_waits_for_its_next_round_holds_the_oldest_back() -> None:
    """A retry is not settled."""
    state = released((1, 0, 1))
    apply(state, Nack(at((1, 0, 0)), 0), Ack(at((1, 1, 1))))
    assert state.oldest == (1, 0)


def test_a_repeated_ack_is_a_no_op() -> None:
    """It is counted as one of something that is not outstanding, and nothing is closed twice."""
    state = released((1, 0, 0))
    assert apply(state, Ack(at((1, 0, 0)))) == [("closed", 1, 0, 0, "ack")]
    assert apply(state, Ack(at((1, 0, 0)))) == [("ignored", 1, 0, "not_outstanding")]


def test_an_ack_before_delivery_changes_nothing_and_the_message_is_delivered() -> None:
    """Told apart where it can be known: beyond all that was released it was never delivered."""
    state = released((5, 3, 3))
    found = apply(state, Ack(at((5, 2, 4), (6, 0, 0), (4, 9, 9))))
    assert found == [
        ("ignored", 5, 4, "never_delivered"),
        ("ignored", 6, 0, "never_delivered"),
        ("ignored", 4, 9, "not_outstanding"),
        ("ignored", 5, 2, "not_outstanding"),
        ("closed", 5, 3, 0, "ack"),
    ]
    assert apply(state, Released(at((5, 2, 4), (6, 0, 0)), 0, 1)) == []
    assert state.counts == Counts(4, 0, 0)


def test_every_message_of_a_batch_is_acknowledged_by_itself() -> None:
    """A batch of consecutive entries stays open until its last message is acknowledged, in any order."""
    state = released((1, 0, 2))
    for entry, left in ((1, 2), (2, 1), (0, 0)):
        apply(state, Ack(at((1, entry, entry))))
        assert state.counts.outstanding == left


def test_a_nack_comes_again_after_its_own_delay_with_its_count_one_higher() -> None:
    """In the next round, at its origin position, with the reason that came with it."""
    state = released((7, 40, 41))
    nack = Nack(at((7, 40, 40)), 0, after_ms=5_000, reason="ack_timeout")
    assert apply(state, nack) == [("retry", 7, 40, 1, 1, NOW + 5_000, "ack_timeout")]
    assert state.counts == Counts(1, 1, 0)
    assert apply(state, Released(at((7, 40, 40)), 1, 1)) == []
    assert held(state) == {(7, 40): [(0, 1, 1)], (7, 41): [(0, 0, 0)]}


def test_a_nack_without_a_delay_comes_again_after_the_backoff_of_its_count() -> None:
    """min, min * multiplier, ... up to max; each message by how often it failed."""
    state, policy = released((1, 0, 0)), RetryPolicy(Backoff(10_000, 2, 600_000))
    delays = []
    for number in range(9):
        [(*_, due, _)] = apply(state, Nack(at((1, 0, 0)), number), policy=policy)
        delays.append(due - NOW)
        apply(state, Released(at((1, 0, 0)), number + 1, number + 1))
    assert delays == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000, 600_000]


def unequal(condition: Condition) -> Outstanding:
    """Entries 0 and 2 of ledger 16 in round 4; entry 0 never failed, entry 2 did twice."""
    rows = {16: {Cell(condition, 4, count): BitMap([count]) for count in (0, 2)}}
    counts = cursor_bytes.counted(rows)
    head = cursor_bytes.Head(9, (16, 2), counts, 1).to_bytes()
    return Outstanding.restore(head, {1: cursor_bytes.pack_block(1, rows)})


def test_messages_of_one_round_that_failed_unequally_often_get_unequal_delays() -> None:
    """The round grows for other reasons, too: the delay goes by the redelivery count, which consumers know."""
    state = unequal(Condition.OUTSTANDING)
    nacks = Nack(at((16, 0, 2)), 0), Nack(at((16, 0, 2)), 2)
    found = apply(state, *nacks, policy=RetryPolicy(Backoff()))
    retries = [each for each in found if each[0] == "retry"]
    assert retries == [("retry", 16, 0, 5, 1, NOW + 10_000, "nack"), ("retry", 16, 2, 5, 3, NOW + 40_000, "nack")]


def test_of_what_waits_only_that_is_withdrawn_which_somebody_has_got_once() -> None:
    """What waits with the count 0 got another due time before its first delivery: nobody can be done with it."""
    state = unequal(Condition.WAITING)
    (closed,) = [each for each in state.handle(Ack(at((16, 0, 2))), now=Ms(NOW)) if isinstance(each, Closed)]
    assert (fates([closed]), closed.redelivery_count) == ([("withdrawn", 16, 2, 4, "ack")], 2)
    assert held(state) == {(16, 0): [(1, 4, 0)], (16, 2): [(2, 4, 2)]}


def test_a_nack_is_valid_once() -> None:
    """A repeated append, or a second owner, puts nothing back twice."""
    state = released((1, 0, 0))
    nack = Nack(at((1, 0, 0)), 0)
    assert len(apply(state, nack)) == 1
    assert apply(state, nack) == [("ignored", 1, 0, "other_round")]
    apply(state, Released(at((1, 0, 0)), 1, 1))
    assert apply(state, nack) == [("ignored", 1, 0, "other_round")]
    assert held(state) == {(1, 0): [(0, 1, 1)]}


def test_a_nack_of_a_round_that_is_not_released_yet_changes_nothing() -> None:
    """Nobody can have had it."""
    state = released((1, 0, 0))
    assert apply(state, Nack(at((1, 0, 0)), 1)) == [("ignored", 1, 0, "other_round")]


def test_a_nack_and_an_ack_in_one_batch_count_in_the_order_of_the_log() -> None:
    """Whoever came first decides; in both orders the message is settled, and its retry is withdrawn if there is one."""
    nack, ack = Nack(at((1, 0, 0)), 0), Ack(at((1, 0, 0)))
    first = released((1, 0, 0))
    assert apply(first, nack, ack) == [("retry", 1, 0, 1, 1, NOW + 60_000, "nack"), ("withdrawn", 1, 0, 1, "ack")]
    assert first.counts == Counts(0, 0, 1)
    second = released((1, 0, 0))
    assert apply(second, ack, nack) == [("closed", 1, 0, 0, "ack"), ("ignored", 1, 0, "not_outstanding")]
    assert second.counts == Counts(0, 0, 0)


def test_a_late_ack_withdraws_the_retry_and_its_release_is_not_outstanding() -> None:
    """A consumer that finished late has finished: the round that waits is closed, and forgotten when it is released."""
    state = released((1, 0, 1))
    apply(state, Nack(at((1, 0, 1)), 0))
    assert apply(state, Ack(at((1, 0, 0)))) == [("withdrawn", 1, 0, 1, "ack")]
    assert apply(state, Ack(at((1, 0, 0)))) == [("ignored", 1, 0, "settled")]
    assert apply(state, Nack(at((1, 0, 0)), 1)) == [("ignored", 1, 0, "settled")]
    assert apply(state, Released(at((1, 0, 1)), 1, 1)) == [("ignored", 1, 0, "withdrawn")]
    assert held(state) == {(1, 1): [(0, 1, 1)]}


@pytest.mark.parametrize(("had", "kind"), [(1, "closed"), (0, "late"), (None, "late")])
def test_an_ack_closes_whatever_round_is_outstanding_and_tells_whether_it_is_late(had: int | None, kind: str) -> None:
    """Round 1 may be in the queue of another consumer, who is to hand it out no more; so an ack of round 0 says so."""
    state = released((1, 0, 0))
    apply(state, Nack(at((1, 0, 0)), 0))
    apply(state, Released(at((1, 0, 0)), 1, 1))
    assert apply(state, Ack(at((1, 0, 0)), had)) == [(kind, 1, 0, 1, "ack")]
    assert state.counts == Counts(0, 0, 0)


def test_a_message_that_fails_once_too_often_is_a_dead_letter_exactly_once() -> None:
    """As many redeliveries as the policy allows, then the dead letter; it is settled, whoever asks again."""
    state, policy, found = released((1, 0, 0)), RetryPolicy(max_redeliver_count=2), list[Fate]()
    for number in range(3):
        nack = Nack(at((1, 0, 0)), number, reason="owner_lost")
        found += apply(state, nack, nack, policy=policy)
        apply(state, Released(at((1, 0, 0)), number + 1, number + 1), policy=policy)
    kinds = [kind for kind, *_ in found]
    assert kinds == ["retry", "ignored", "retry", "ignored", "dead", "closed", "ignored"]
    assert found[4:6] == [("dead", 1, 0, 2, 2, "owner_lost"), ("closed", 1, 0, 2, "dead_letter")]
    assert state.counts == Counts(0, 0, 0)


def test_a_policy_that_changed_holds_from_the_next_batch_on() -> None:
    """The state keeps counts, not policies."""
    state = released((1, 0, 0))
    apply(state, Nack(at((1, 0, 0)), 0))
    apply(state, Released(at((1, 0, 0)), 1, 1))
    assert apply(state, Nack(at((1, 0, 0)), 1), policy=RetryPolicy(max_redeliver_count=1))[0][0] == "dead"


@pytest.mark.parametrize(("settle", "cause"), [(Cancel, "cancel"), (Undeliverable, "undeliverable")])
def test_what_dispatch_left_out_is_settled(settle: Settle, cause: str) -> None:
    """Nobody will ever acknowledge it."""
    state = released((1, 0, 0))
    assert apply(state, settle(at((1, 0, 0)))) == [("closed", 1, 0, 0, cause)]
    assert state.counts == Counts(0, 0, 0)


def test_a_version_of_releases_that_is_read_again_changes_nothing() -> None:
    """Not even for what was settled meanwhile: a zombie does not bring a message back."""
    state = released((1, 0, 3), version=8)
    apply(state, Ack(at((1, 0, 0))))
    assert {t[-1] for t in apply(state, Released(at((1, 0, 5)), 0, 8))} == {"repeated"}
    assert state.counts == Counts(3, 0, 0)


def test_all_rows_of_one_version_are_taken_in_one_call() -> None:
    """A version shows rounds and ledgers side by side."""
    state = Outstanding()
    apply(state, Released(at((1, 0, 0)), 0, 3), Released(at((2, 0, 0)), 0, 3))
    assert (state.counts.outstanding, state.version) == (2, 3)


def test_a_state_that_begins_late_counts_what_was_released_before_as_settled() -> None:
    """Acknowledgement was switched on at a version; older releases and acks of them change nothing."""
    state = Outstanding(version=41, highest=(9, 99))
    assert apply(state, Released(at((3, 0, 0)), 0, 41)) == [("ignored", 3, 0, "repeated")]
    assert apply(state, Ack(at((3, 0, 0), (9, 99, 100)))) == [
        ("ignored", 9, 100, "never_delivered"),
        ("ignored", 3, 0, "not_outstanding"),
        ("ignored", 9, 99, "not_outstanding"),
    ]


def test_a_release_of_a_round_that_nothing_waits_for_is_not_outstanding() -> None:
    """After a clear the retries of before may still come up."""
    state = released((1, 0, 3))
    apply(state, Nack(at((1, 0, 1)), 0), Ack(at((1, 0, 0))))
    assert apply(state, Clear()) == [("cleared", 2, 1)]
    assert state.oldest is None
    assert {t[-1] for t in apply(state, Released(at((1, 0, 3)), 1, 1))} == {"not_waiting"}
    assert apply(state, Nack(at((1, 2, 2)), 0)) == [("ignored", 1, 2, "not_outstanding")]
    assert state.counts == Counts(0, 0, 0)


@pytest.mark.parametrize(
    "runs",
    [[(2**62 + 1, 0, 0)], [(2**63, 0, 0)], [(-1, 0, 0)], [(0, 0, 2**31)], [(0, -1, 0)], [(0, 5, 4)], [(0, 1.5, 2)]],
)
def test_positions_that_no_message_has_are_refused(runs: list[tuple[int, int, int]]) -> None:
    """Whoever wrote the row is told which number it was; no event was made of it."""
    with pytest.raises((OutOfRange, InvalidArgument)):
        Positions.of_runs(runs)


def test_columns_of_unequal_length_are_refused() -> None:
    """Each run has three numbers."""
    with pytest.raises(InvalidArgument, match="positions"):
        Positions.of([1, 2], [1, 2], [1])


@pytest.mark.parametrize("make", [lambda p: Released(p, 2**31, 0), lambda p: Nack(p, -1), lambda p: Nack(p, 0, -1)])
def test_numbers_that_no_event_has_are_refused(make: Callable[[Positions], Event]) -> None:
    """A round below 0, a delay into the past."""
    with pytest.raises(OutOfRange):
        make(at((1, 0, 0)))


def test_an_instant_outside_the_calendar_is_refused_and_changes_nothing() -> None:
    """A clock that is broken settles nothing."""
    state = released((1, 0, 0))
    with pytest.raises(OutOfRange):
        state.handle(Ack(at((1, 0, 0))), now=Ms(FOREVER + 1))
    assert state.counts.outstanding == 1


def test_a_long_run_is_not_written_out_message_by_message() -> None:
    """A row of a few bytes must not take down the process that reads it."""
    runs = [(1, 0, 2**28), *((1, 2**29 + 2 * i, 2**29 + 2 * i) for i in range(50))]
    tracemalloc.start()
    try:
        state = released(*runs)
        effects = state.handle(Ack(at(*runs)), Ack(at(*runs)), now=Ms(NOW))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [sum(isinstance(each, kind) for each in effects) for kind in (Closed, Ignored)] == [1, 1]
    assert peak < 2**20
