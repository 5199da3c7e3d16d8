"""What one consumer does about its leases: how it takes slots, and how long it may hand out what is in them."""

from __future__ import annotations

import pytest

from state import LeaseKind, LeaseMember, LeaseReplay, LeaseRow, LeaseTiming, OutOfRange
from state.lease_events import (
    Drop,
    Ended,
    Looked,
    Paced,
    Take,
)
from tests.support.lease_desk import LEASE, MARGIN, ME, RENEW, Desk, claim, other, owner_of_all

# ---- taking, holding


def test_a_slot_is_handed_out_only_after_its_claim_was_read_back() -> None:
    """A claim that was appended says nothing yet: another one may stand before it."""
    desk = Desk()
    assert desk.look(0) == []
    assert desk.may(0) == []
    assert desk.look(100) == [Take(slot, None) for slot in range(4)]
    assert desk.may(100) == [0, 1, 2, 3]


def test_a_lease_that_ends_while_somebody_asks_for_it_is_over_or_not() -> None:
    """Another thread turns the consumer meanwhile: a field that was read twice was None the second time."""

    class Turned(LeaseMember):
        ends = iter([200, None])
        until = property(lambda _: next(Turned.ends), lambda *_: None)

    desk = Desk()
    desk.look(0)
    desk.look(100)
    desk.member.__class__ = Turned
    assert desk.member.may_hand_out(0, 100) is True


def test_nothing_is_claimed_before_the_log_was_read_to_its_end() -> None:
    """What is there to read may be a renewal of the owner."""
    desk = Desk()
    assert desk.handle(0) == []
    assert desk.waiting == []


def test_a_lease_that_is_over_is_not_claimed_before_the_log_was_read_to_its_end() -> None:
    """The consumer has waited long enough; a renewal may stand in what it has not read."""
    desk = Desk()
    desk.look(0, other(1), *(claim(slot, 0) for slot in range(4)))
    for now in range(1_000, 12_000, 1_000):
        desk.handle(now)
    assert {row.kind for row in desk.land()} == {LeaseKind.RENEW}
    desk.handle(12_000, Looked())
    assert [row.slot for row in desk.land() if row.kind == LeaseKind.CLAIM] == [0, 1, 2, 3]


def test_claims_are_not_made_again_while_they_may_be_on_their_way() -> None:
    """After a renewal's time they are: they were lost."""
    desk = Desk()
    for now in range(0, 3_000, 100):
        desk.replay.apply([other(now + 1)])
        desk.handle(now, Looked())
    assert len(desk.waiting) == 1
    desk.handle(3_000, Looked())
    assert [row.slot for row in desk.waiting[1] if row.kind == LeaseKind.CLAIM] == [0, 1]


def test_a_slot_that_went_and_came_back_between_two_looks_is_taken_anew() -> None:
    """What was queued of it may be out of date."""
    desk = owner_of_all()
    gone = LeaseRow(LeaseKind.RELEASE, "me", ME, 1, 2)
    back = LeaseRow(LeaseKind.CLAIM, "me", ME, 2, 2)
    assert desk.look(500, gone, back) == [Drop(2), Take(2, None)]


def test_the_lease_counts_from_when_the_renewal_began_not_from_when_it_landed() -> None:
    """An append that took four seconds leaves five of nine."""
    desk = Desk()
    desk.look(0)
    desk.look(4_000)
    assert desk.may(LEASE - MARGIN - 1) == [0, 1, 2, 3]
    assert desk.may(LEASE - MARGIN) == []


def test_a_renewal_whose_answer_was_lost_counts_once_it_is_read() -> None:
    """It landed, its client did not know, and appended it again."""
    desk = owner_of_all()
    desk.handle(3_000, Looked())
    (rows,) = desk.waiting
    desk.waiting = []
    assert desk.member.until == LEASE - MARGIN
    desk.look(3_500, *rows, *rows)
    assert desk.member.until == 3_000 + LEASE - MARGIN


def test_a_renewal_that_never_landed_does_not_count() -> None:
    """Two are lost; the hand-out stops in time, and goes on after the next one, if nobody came in between."""
    desk = owner_of_all()
    for now in (3_000, 6_000, 9_000):
        desk.handle(now, Looked())
        desk.waiting = desk.waiting[:-1] if now < 9_000 else desk.waiting
    assert desk.may(9_000) == []
    desk.look(9_400)
    assert desk.may(9_400) == [0, 1, 2, 3]


def test_a_consumer_that_was_paused_for_half_a_minute_hands_out_nothing_when_it_wakes() -> None:
    """Not before it has looked, and not after, since others have taken what it had."""
    desk = owner_of_all()
    assert desk.may(30_000) == []
    stolen = [other(1), *(claim(slot, 1) for slot in range(4))]
    assert desk.look(30_000, *stolen) == [Drop(slot) for slot in range(4)] + [Ended()]
    assert desk.member.ended
    assert desk.look(40_000) == []


def test_one_renewal_is_written_for_all_slots_and_as_often_as_is_said() -> None:
    """Members of a process with one clock renew at the same moments, so that one commit holds them all."""
    desk = owner_of_all()
    rows = [row for now in range(100, 60_000, 100) for row in (desk.look(now), desk.land())[1]]
    assert {(row.kind, row.slot) for row in rows} == {(LeaseKind.RENEW, None)}
    assert len(rows) == 60_000 // RENEW - 1


def test_who_cannot_read_the_log_does_not_renew() -> None:
    """It may not hand out, so it must not keep its slots from others."""
    desk = owner_of_all()
    for now in range(500, 60_000, 500):
        desk.handle(now)
        desk.land()
    assert desk.replay.peers[ME].beat <= 1 + LEASE // RENEW + 1


def test_it_says_when_it_wants_to_be_called() -> None:
    """For its renewal when nothing else is due; a call before that has nothing to do."""
    desk = owner_of_all()
    assert desk.member.next_call == 3_000
    assert desk.handle(2_999, Looked()) == []
    assert desk.waiting == []
    desk.handle(3_000, Looked())
    assert len(desk.waiting) == 1


def test_a_client_that_may_commit_less_often_renews_less_often_and_keeps_its_slots_longer() -> None:
    """Its renewals say so; what it was promised before stays as it was."""
    desk = owner_of_all()
    slow = LeaseTiming.at_interval(6_400)
    desk.handle(100, Paced(slow))
    assert desk.member.until == LEASE - MARGIN
    rows = [row for now in range(500, 60_000, 500) for row in (desk.look(now), desk.land())[1]]
    assert len(rows) == 60_000 // slow.renew_ms
    assert {row.lease_ms for row in rows} == {slow.lease_ms}
    assert desk.member.until == 58_000 + slow.lease_ms - slow.margin_ms


def test_a_lease_that_gets_shorter_counts_from_when_it_was_said() -> None:
    """Others may have read the renewal that asks for less before its consumer has; they wait for less then."""
    desk = owner_of_all()
    slow = LeaseTiming.at_interval(6_400)
    desk.handle(100, Paced(slow))
    desk.look(3_200)
    desk.land()
    desk.look(6_500)
    assert desk.member.until == 3_200 + slow.lease_ms - slow.margin_ms
    desk.handle(6_600, Paced(LeaseTiming()))
    desk.handle(9_000, Looked())
    assert desk.waiting
    assert desk.member.until == 9_000 + LEASE - MARGIN


# ---- clocks


def test_a_clock_that_jumps_ahead_takes_nothing_from_others_and_ends_the_own_lease() -> None:
    """An hour in one step counts as one renewal's time of waiting."""
    desk = Desk()
    desk.look(0, other(1), *(claim(slot, 0) for slot in range(3)))
    desk.look(0)
    assert desk.may(0) == [3]
    assert desk.may(3_600_000) == []
    desk.look(3_600_000)
    assert {row.kind for rows in desk.waiting for row in rows} == {LeaseKind.RENEW}


def test_a_clock_that_steps_back_ends_the_own_lease_until_it_is_renewed() -> None:
    """It cannot say any more how long ago the last renewal began."""
    desk = owner_of_all()
    desk.look(4_000)
    desk.look(4_000)
    assert desk.may(4_000) == [0, 1, 2, 3]
    assert desk.may(100) == []
    desk.look(100)
    assert desk.may(200) == []
    desk.look(300)
    assert desk.may(300) == [0, 1, 2, 3]


# ---- what is refused


@pytest.mark.parametrize(
    ("field", "times"),
    [
        ("lease_ms", {"lease_ms": 999}),
        ("lease_ms", {"lease_ms": 600_001}),
        ("renew_ms", {"renew_ms": 3_001}),
        ("renew_ms", {"renew_ms": 49}),
        ("margin_ms", {"margin_ms": 499}),
        ("margin_ms", {"margin_ms": 5_001}),
        ("drain_ms", {"drain_ms": -1}),
    ],
)
def test_times_that_are_not_safe_are_refused(field: str, times: dict[str, int]) -> None:
    """A renewal may be lost without the loss of a slot, and a margin is never nothing."""
    with pytest.raises(OutOfRange) as caught:
        LeaseTiming(**times)
    assert caught.value.field == field


def test_times_follow_from_how_often_a_client_may_commit() -> None:
    """The defaults while there is room; a lease has room for three turns, and a turn always has a new renewal."""
    assert LeaseTiming.at_interval(0) == LeaseTiming.at_interval(3_000) == LeaseTiming()
    for commit_ms in (3_001, 6_400, 10_001, 180_000):
        times = LeaseTiming.at_interval(commit_ms)
        assert times.renew_ms <= max(LeaseTiming().renew_ms, commit_ms // 2)
        assert 3 * commit_ms + times.margin_ms <= times.lease_ms
    with pytest.raises(OutOfRange):
        LeaseTiming.at_interval(180_001)


@pytest.mark.parametrize(("field", "values"), [("session", (-1, 0)), ("priority", (1, -1))])
def test_a_session_or_priority_below_zero_is_refused(field: str, values: tuple[int, int]) -> None:
    """Others would take its rows for void."""
    session, priority = values
    with pytest.raises(OutOfRange) as caught:
        LeaseMember(LeaseReplay(1), "me", session, priority=priority)
    assert caught.value.field == field
