"""Consumers that share a subscription, in virtual time: who gets what, how soon, and how much they write for it."""

from __future__ import annotations

import pytest

from state import LeaseMember, LeaseReplay, SubscriptionType
from state.lease_events import Append, Drained, Looked
from tests.support.lease_world import STEP, Consumer, World

LEASE = 10_000


def world_of(number: int, slots: int = 8, kind: SubscriptionType = SubscriptionType.KEY_SHARED) -> World:
    """Consumers that came one after the other and have settled."""
    world = World(kind, slots)
    for count in range(number):
        world.join(f"c{count:02}")
    world.run(30_000)
    world.settled()
    world.measure()
    return world


def held(world: World) -> dict[str, int]:
    """Slots of each consumer that is there."""
    owners = world.owners()
    return {each.name: owners.count(each.name) for each in world.consumers if each.there}


def test_slots_of_a_killed_consumer_are_with_others_a_lease_and_a_second_later() -> None:
    """From its last renewal on; looking, committing and reading back take the second."""
    world = world_of(3)
    world.consumers[0].dead = True
    world.run(20_000)
    world.settled()
    assert world.longest_gap <= LEASE + 1_000


def test_slots_of_a_consumer_whose_process_was_seen_to_end_are_with_others_at_once() -> None:
    """Nobody waits for a lease that nobody can use."""
    world = world_of(3)
    world.kill(world.consumers[0], seen=True)
    world.run(5_000)
    world.settled()
    assert world.longest_gap <= 1_000


def test_slots_of_a_consumer_that_leaves_are_with_others_at_once() -> None:
    """Nobody waits for a lease that was given back."""
    world = world_of(3)
    world.leave(world.consumers[1])
    world.run(5_000)
    world.settled()
    assert world.longest_gap <= 1_000


def test_a_consumer_that_comes_back_under_its_name_is_another_one() -> None:
    """After it left it gets its share at once; after it was killed, the rest when its old lease is over."""
    world = world_of(2)
    world.leave(world.consumers[0])
    world.join("c00")
    world.run(5_000)
    assert held(world) == {"c00": 4, "c01": 4}
    world.consumers[2].dead = True
    world.join("c00")
    world.run(5_000)
    back = world.consumers[3]
    assert len(back.member.slots) < 4
    world.run(10_000)
    assert len(back.member.slots) == 4


def test_more_consumers_than_slots_stand_by_and_take_the_place_of_who_dies() -> None:
    """A hundred on sixty-four is the same with smaller numbers."""
    world = world_of(12)
    assert sorted(held(world).values()) == [0] * 4 + [1] * 8
    for consumer in [each for each in world.consumers if each.member.slots][:3]:
        consumer.dead = True
    world.run(15_000)
    world.settled()
    assert sorted(held(world).values()) == [0] + [1] * 8


def test_nothing_moves_that_need_not_move() -> None:
    """A newcomer takes its share; what the others keep they keep all the time."""
    world = world_of(3, slots=9)
    before = {each.name: set(each.member.slots) for each in world.consumers}
    world.join("a")
    world.run(10_000)
    world.settled()
    assert sum(len(before[each.name] - set(each.member.slots)) for each in world.consumers[:3]) == 2


@pytest.mark.parametrize("work_ms", [200, 3_000, 9_000])
def test_messages_of_a_slot_never_overtake_each_other_while_consumers_join_and_leave(work_ms: int) -> None:
    """The next owner begins when the last one has settled what it had; so a key keeps its order."""
    world = world_of(2)
    for turn in range(6):
        world.join(f"d{turn}", work_ms=work_ms)
        world.run(12_000)
    world.settled()
    assert world.overtakes == 0
    assert world.places > 1_000


def test_a_message_that_is_worked_on_for_minutes_holds_its_slot_for_ten_seconds_only() -> None:
    """Then the slot is handed over without it."""
    world = world_of(1)
    world.consumers[0].work_ms = 600_000
    world.run(1_000)
    world.join("new")
    world.run(13_000)
    world.settled()


def test_a_consumer_that_is_paused_for_half_a_minute_comes_back_for_its_share() -> None:
    """Others have its slots in the meantime; it begins a new session."""
    world = world_of(2)
    world.consumers[0].paused_until = world.now + 30_000
    world.run(29_000)
    assert held(world) == {"c00": 0, "c01": 8}
    world.run(10_000)
    world.settled()
    assert held(world) == {"c00": 4, "c01": 4}


def test_of_exclusive_consumers_one_works_and_the_others_are_told_who() -> None:
    """Whoever comes first in the log; after its death somebody else, a lease later."""
    world = world_of(3, kind=SubscriptionType.EXCLUSIVE)
    (first,) = [each for each in world.consumers if each.member.slots]
    assert {name for each in world.consumers for name in each.busy} <= {first.name}
    assert all(each.busy for each in world.consumers if each is not first)
    first.dead = True
    world.run(LEASE + 1_000)
    world.settled()
    assert world.longest_gap <= LEASE + 1_000


def test_failover_goes_down_the_list_and_up_again() -> None:
    """Lower numbers are better; names decide between equals; each is told when it becomes the one, and when not."""
    world = World(SubscriptionType.FAILOVER)
    steps: list[tuple[str, int]] = [("m", 1), ("z", 0), ("b", 1), ("a", 1)]
    consumers: list[Consumer] = [world.join(name, priority=priority) for name, priority in steps]
    for expected in (1, 3, 2, 0):
        world.run(15_000)
        world.settled()
        assert [number for number, each in enumerate(consumers) if each.there and each.member.slots] == [expected]
        assert [each.active[-1:] for each in consumers if each.there].count([True]) == 1
        consumers[expected].dead = True
    better = world.join("y", priority=0)
    last = world.join("n", priority=2)
    world.run(15_000)
    assert (better.active[-1], last.active) == (True, [False])


def test_a_steady_subscription_costs_a_renewal_a_consumer_and_nothing_else() -> None:
    """One row in three seconds for each, whatever the slots; members with one clock write them at one moment."""
    world = world_of(4, slots=64)
    world.run(60_000)
    assert world.appends == world.rows == 4 * 20


def test_members_of_a_process_share_a_replay_and_a_commit() -> None:
    """The caller folds the log once for all of them; three consumers renew with one commit in three seconds."""
    replay = LeaseReplay(9)
    members = [LeaseMember(replay, f"c{number}", number) for number in range(3)]
    commits = list[int]()
    for now in range(0, 60_000, 100):
        out = [each for member in members for each in member.handle(now, Looked())]
        for member in members:
            out += member.handle(now, *(Drained(slot) for slot in member.slots))
        rows = [row for each in out if isinstance(each, Append) for row in each.rows]
        replay.apply(rows)
        commits += [now] if rows else []
    assert [len(member.slots) for member in members] == [3, 3, 3]
    assert [now for now in commits if now >= 30_000] == list(range(30_000, 60_000, 3_000))


def test_a_claim_that_lands_when_its_time_is_over_is_void_or_handed_on() -> None:
    """Every claim of a newcomer is half a minute late; in the end all is as if it had not been."""
    world = world_of(2)
    late = world.join("late")
    world.fate = lambda rows: [30_000] if rows[0].consumer == "late" else [STEP]
    world.run(20_000)
    world.fate = lambda _: [STEP]
    world.run(40_000)
    world.settled()
    assert len(late.member.slots) in (2, 3)
