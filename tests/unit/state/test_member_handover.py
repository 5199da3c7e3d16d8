"""What one consumer does about its leases: taking over from the lost, handing over, exclusive and failover."""

from __future__ import annotations

from state import LeaseKind, LeaseReplay, LeaseRow, SubscriptionType
from state.lease_events import (
    Active,
    Announced,
    Busy,
    CaughtUp,
    Drain,
    Drained,
    Drop,
    Ended,
    Handed,
    Leave,
    Looked,
    Rebased,
    Resume,
    Take,
)
from tests.support.lease_desk import LEASE, ME, OTHER, Desk, claim, other, owner_of_all

# ---- losing and taking over


def test_slots_of_a_silent_consumer_are_claimed_after_its_lease() -> None:
    """Not before; and what it may have handed out is owed."""
    desk = Desk()
    desk.look(0, other(1), *(claim(slot, 0) for slot in range(4)))
    desk.replay.apply([LeaseRow(LeaseKind.RENEW, "other", OTHER, 1, slot) for slot in range(4)])
    assert not any(isinstance(each, Take) for each in desk.live(500, LEASE + 1))
    assert desk.live(LEASE + 1_000, LEASE + 2_000) == [Take(slot, 100) for slot in range(4)]


def test_a_renewal_of_the_owner_starts_the_wait_again() -> None:
    """The counter has changed."""
    desk = Desk()
    desk.look(0, other(1), *(claim(slot, 0) for slot in range(4)))
    desk.live(500, 9_000)
    desk.look(9_000, other(2))
    assert desk.live(9_500, 9_000 + LEASE) == []


def test_a_longer_lease_of_another_is_respected() -> None:
    """Each renewal says how long it holds."""
    desk = Desk()
    slow = LeaseRow(LeaseKind.RENEW, "other", OTHER, 1, handed=0, lease_ms=30_000)
    desk.look(0, slow, *(claim(slot, 0) for slot in range(4)))
    assert desk.live(500, 30_000) == []
    assert desk.live(30_000, 31_000) == [Take(slot, 0) for slot in range(4)]


def test_what_was_handed_out_is_in_each_renewal_and_in_the_farewell() -> None:
    """So the next owner knows what a process that died had got."""
    desk = owner_of_all()
    desk.handle(2_000, Handed(41), Handed(17))
    desk.handle(3_000, Looked())
    assert desk.land()[0].handed == 41
    assert desk.handle(3_100, Leave()) == [Drop(slot) for slot in range(4)] + [Ended()]
    (leave,) = desk.land()
    assert (leave.kind, leave.handed) == (LeaseKind.LEAVE, 41)
    assert all(slot.owner is None and slot.owed is None for slot in desk.replay.slots)


def test_how_far_it_is_in_a_slot_that_is_behind_is_appended_at_once_and_answered() -> None:
    """What a slot had before it was taken is announced before it is handed out, wherever the last owner was lost."""
    desk = owner_of_all()
    assert desk.handle(200, Handed(50, slot=2)) == []
    rows = desk.land()
    assert [(row.kind, row.slot, row.handed) for row in rows] == [
        (LeaseKind.RENEW, None, 0),
        (LeaseKind.RENEW, 2, 50),
    ]
    assert desk.look(300) == [Announced(2, 50)]
    desk.handle(400, CaughtUp(2), Handed(70))
    desk.look(500)
    assert [slot.handed for slot in desk.replay.slots] == [0, 0, 70, 0]
    assert [slot.behind for slot in desk.replay.slots] == [True, True, False, True]


def test_a_place_that_the_log_has_already_is_announced_without_a_row() -> None:
    """Nobody waits for something that nobody writes."""
    desk = owner_of_all()
    desk.handle(200, Handed(50, slot=2))
    desk.look(300)
    desk.land()
    assert desk.handle(400, Handed(30, slot=2)) == [Announced(2, 50)]
    assert desk.waiting == []


def test_how_far_it_is_in_a_slot_is_said_again_when_the_append_was_lost() -> None:
    """With the next renewal."""
    desk = owner_of_all()
    desk.handle(200, Handed(50, slot=2))
    desk.waiting = []
    desk.live(500, 3_600)
    assert desk.replay.slots[2].handed == 50


# ---- handing over


def test_who_has_more_than_its_share_drains_a_slot_before_it_releases_it() -> None:
    """The highest first; nothing more is given out of it; it is released when it is empty."""
    desk = owner_of_all()
    assert desk.look(1_000, other(1)) == [Drain(2), Drain(3)]
    assert desk.may(1_000) == [0, 1]
    desk.handle(1_100, Drained(3))
    assert [row.slot for row in desk.land() if row.kind == LeaseKind.RELEASE] == [3]
    assert desk.look(1_200) == [Drop(3)]
    assert [slot.owner for slot in desk.replay.slots] == [ME, ME, ME, None]


def test_a_slot_whose_messages_are_never_settled_is_released_after_ten_seconds() -> None:
    """A worker that hangs does not keep it for ever."""
    desk = owner_of_all()
    desk.look(1_000, other(1))
    for beat, now in enumerate(range(1_500, 11_000, 500), 2):
        assert desk.look(now, other(beat)) == []
    assert desk.look(11_000, other(99)) == []
    assert desk.look(11_500, other(100)) == [Drop(2), Drop(3)]


def test_a_slot_stays_when_the_one_that_it_was_for_is_gone() -> None:
    """It is given out again."""
    desk = owner_of_all()
    desk.look(1_000, other(1))
    gone = LeaseRow(LeaseKind.LEAVE, "other", OTHER, 1, handed=0)
    assert desk.look(2_000, gone) == [Resume(2), Resume(3)]
    assert desk.may(2_000) == [0, 1, 2, 3]


def test_a_release_that_was_lost_is_said_again() -> None:
    """After a renewal's time, not at each call."""
    desk = owner_of_all()
    desk.look(1_000, other(1))
    desk.handle(1_100, Drained(2))
    desk.handle(1_200, Drained(3))
    desk.waiting = []
    desk.live(1_500, 3_900)
    assert [slot.owner for slot in desk.replay.slots] == [ME, ME, ME, ME]
    desk.replay.apply([other(2)])
    desk.live(4_000, 5_500)
    assert [slot.owner for slot in desk.replay.slots] == [ME, ME, None, None]


def test_a_slot_that_comes_late_is_taken_and_handed_on() -> None:
    """A claim landed half a minute after it was made, and its consumer has enough by now."""
    desk = Desk()
    desk.look(0, other(1), claim(0, 0), claim(1, 0))
    (late,) = desk.waiting
    desk.waiting = []
    desk.look(0)
    desk.replay.apply(late)
    out = desk.handle(100, Looked())
    assert [each for each in out if isinstance(each, Take)] == [Take(2, None), Take(3, None)]


def test_who_died_without_a_slot_is_taken_off_by_the_first_of_the_living() -> None:
    """With a renewal, so it costs no commit."""
    desk = owner_of_all()
    idle = [other(1, session=50 + n, name=f"idle{n}") for n in range(9)]
    desk.look(500, *idle)
    desk.live(1_000, 15_000)
    assert list(desk.replay.peers) == [ME]


def test_who_is_not_the_first_of_the_living_leaves_the_dead_to_the_first() -> None:
    """One row is enough for each."""
    desk = Desk()
    for number in range(1, 40):
        desk.look(number * 500, other(number, session=1, name="first"), other(1, session=50, name="idle"))
        assert not [row for row in desk.land() if row.kind == LeaseKind.LEAVE]
    assert 50 in desk.replay.peers


def test_it_wants_to_be_called_when_a_hand_over_has_taken_its_time() -> None:
    """Ten seconds after it began, if that is before the next renewal."""
    desk = owner_of_all()
    desk.look(1_000, other(1))
    for beat, now in enumerate(range(1_500, 10_000, 500), 2):
        desk.look(now, other(beat))
    assert desk.member.next_call == 11_000


def test_two_that_miss_slots_claim_different_ones() -> None:
    """Each computes the parts of all, from the same log."""
    desk = Desk()
    desk.look(0, other(1))
    rows = [row for row in desk.land() if row.kind == LeaseKind.CLAIM]
    assert [row.slot for row in rows] == [0, 1]
    second = Desk()
    second.look(0, other(1, session=3))
    assert [row.slot for row in second.land() if row.kind == LeaseKind.CLAIM] == [2, 3]


def test_who_fell_behind_goes_on_from_a_snapshot() -> None:
    """It finds its slots there, or that its session is over."""
    desk = owner_of_all()
    assert desk.handle(1_000, Rebased(desk.replay)) == []
    assert desk.may(1_000) == [0, 1, 2, 3]
    assert desk.handle(2_000, Rebased(LeaseReplay(4))) == [*(Drop(slot) for slot in range(4)), Ended()]


# ---- exclusive, failover


def test_a_second_exclusive_consumer_is_busy_and_writes_nothing() -> None:
    """It is told once, by the name of the other, as soon as that one shows that it lives."""
    desk = Desk(SubscriptionType.EXCLUSIVE)
    assert desk.look(0, other(1), claim(0, 0)) == []
    assert desk.look(500, other(2)) == [Busy("other")]
    assert [desk.look(now, other(2 + now)) for now in range(1_000, 30_000, 500)] == [[]] * 58
    assert desk.waiting == []
    assert ME not in desk.replay.peers


def test_an_exclusive_subscription_is_free_when_its_consumer_leaves_and_a_lease_after_it_died() -> None:
    """Whoever waits gets it."""
    desk = Desk(SubscriptionType.EXCLUSIVE)
    desk.look(0, other(1), claim(0, 0))
    assert desk.live(500, LEASE) == []
    assert desk.live(LEASE, LEASE + 1_000) == [Take(0, 0)]
    left = Desk(SubscriptionType.EXCLUSIVE)
    left.look(0, other(1), claim(0, 0))
    left.look(500, LeaseRow(LeaseKind.LEAVE, "other", OTHER, 1, handed=5))
    assert left.look(600) == [Take(0, None)]


def test_of_two_exclusive_consumers_that_claim_together_one_is_busy() -> None:
    """Both saw the subscription free; the log has decided."""
    desk = Desk(SubscriptionType.EXCLUSIVE)
    desk.look(0)
    mine, desk.waiting = desk.waiting, []
    desk.look(100, other(1), claim(0, 0), *mine[0])
    assert desk.may(100) == []
    assert desk.replay.slots[0].owner == OTHER


def test_the_failover_consumer_that_is_best_by_priority_gets_the_messages() -> None:
    """The other one is told that it stands by, after it has handed over."""
    desk = Desk(SubscriptionType.FAILOVER, priority=1)
    desk.look(0)
    assert desk.look(100) == [Take(0, None), Active(active=True)]
    assert desk.look(200, other(1, priority=2)) == []
    assert desk.look(300, other(1, priority=0, session=9)) == [Drain(0), Active(active=False)]
    desk.handle(400, Drained(0))
    assert desk.look(500) == [Drop(0)]


def test_failover_consumers_of_one_priority_are_ranked_by_name() -> None:
    """`me` comes before `other` and after `ann`."""
    desk = Desk(SubscriptionType.FAILOVER)
    desk.look(0, other(1), claim(0, 0))
    assert desk.look(100, LeaseRow(LeaseKind.RELEASE, "other", OTHER, 1, 0)) == []
    assert desk.look(200) == [Take(0, None), Active(active=True)]
    assert desk.look(300, other(1, session=9, name="ann")) == [Drain(0), Active(active=False)]


def test_a_standby_is_told_at_its_first_look_that_it_is_one() -> None:
    """And nothing more while nothing changes."""
    desk = Desk(SubscriptionType.FAILOVER)
    first = other(1, session=9, name="ann")
    assert desk.look(0, first, LeaseRow(LeaseKind.CLAIM, "ann", 9, 0, 0)) == [Active(active=False)]
    assert desk.look(500) == []
