"""Several consumers of one subscription, in processes of their own: who gets what, and what becomes of it."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.consuming import writer
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.opening import await_subscription
from pipeline.client.exceptions import ConsumerBusy
from pipeline.client.message import Message
from pipeline.delta.deltars import append
from state import SubscriptionType
from tests.support.consumed import World, drained, names

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.FAILOVER,
    SubscriptionType.SHARED,
    SubscriptionType.KEY_SHARED,
)
_PATIENCE_S = 20
MANY = [(1, entry) for entry in range(60)]


def settled(world: World, *consumers: Consumer) -> list[tuple[int, int]]:
    """What the consumers are handed now, acknowledged."""
    found = [(consumer, message) for consumer in consumers for message in drained(consumer)]
    for consumer, message in found:
        consumer.acknowledge(message)
    world.run(1)
    return names(message for _, message in found)


def test_two_consumers_share_what_comes_and_nothing_comes_twice(tmp_path: Path) -> None:
    """Each gets a part."""
    world = World(str(tmp_path))
    first, second = world.joined("a"), world.joined("b")
    world.run(3)
    world.dispatch.deliver(*MANY)
    world.run(1)
    parts = [names(drained(each)) for each in (first, second)]
    assert sorted(parts[0] + parts[1]) == MANY
    assert all(len(part) > 10 for part in parts)


def test_two_consumers_of_one_process_share_as_well(tmp_path: Path) -> None:
    """They have one follower, and leases of their own."""
    world = World(str(tmp_path))
    engine = world.process()
    first, second = world.consumer(engine, "a"), world.consumer(engine, "b")
    world.run(5)
    world.dispatch.deliver(*MANY)
    world.run(1)
    parts = [names(drained(each)) for each in (first, second)]
    assert sorted(parts[0] + parts[1]) == MANY
    assert all(parts)


def test_who_closes_does_not_hold_up_the_others_of_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may take long for what was said last; another consumer begins meanwhile."""
    world = World(str(tmp_path))
    engine = world.process()
    first, second = world.consumer(engine, "a"), world.consumer(engine, "b")
    world.run(5)
    asked, answered = Event(), Event()

    def slow(*args: Any) -> int:  # noqa: ANN401 - those of `append`
        asked.set()
        assert answered.wait(_PATIENCE_S)
        return append(*args)

    monkeypatch.setattr(writer, "append", slow)
    with ThreadPoolExecutor(2) as pool:
        closing = pool.submit(first.close)
        assert asked.wait(_PATIENCE_S)
        try:
            third = pool.submit(world.consumer, engine, "c").result(_PATIENCE_S)
            assert not closing.done()
        finally:
            answered.set()
        closing.result(_PATIENCE_S)
    world.dispatch.deliver(*MANY)
    world.run(5)
    assert sorted(names(drained(second)) + names(drained(third))) == MANY


def test_a_newcomer_gets_its_part_of_a_backlog_and_nothing_comes_twice(tmp_path: Path) -> None:
    """What the first one holds of a slot is settled before the slot goes over; what it had queued goes with it."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*MANY)
    first = world.joined("a", receiver_queue_size=100)
    held = [first.receive(0) for _ in range(10)]
    second = world.joined("b")
    for message in held:
        first.acknowledge(message)
    world.run(15)
    parts = [names(held), settled(world, first), settled(world, second)]
    assert sorted(parts[0] + parts[1] + parts[2]) == MANY
    assert parts[2]
    assert world.settle.open == 0
    assert world.settle.causes() == []


def test_a_consumer_whose_process_stood_still_hands_out_nothing_that_another_one_has(tmp_path: Path) -> None:
    """Its lease is over before the others' patience is, whether it has heard of them or not."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*MANY)
    first, second = world.joined("a"), world.consumer(world.process(), "b")
    world.run(0.4, second.engine)
    world.run(20, second.engine)
    assert drained(first) == []
    assert first.batch_receive_arrow(timeout_millis=0).num_rows == 0
    world.run(15)
    assert sorted(names([*drained(first), *drained(second)])) == MANY
    assert world.settle.causes() == []


def test_a_hand_over_that_is_called_off_hands_nothing_out_twice(tmp_path: Path) -> None:
    """The newcomer leaves before it got its slots; what was queued of them comes again, what is held does not."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*MANY)
    first = world.joined("a", receiver_queue_size=100)
    held = [first.receive(0) for _ in range(20)]
    second = world.joined("b")
    kept = drained(first)
    assert len(held) + len(kept) < len(MANY)
    for message in held[:10]:
        first.acknowledge(message)
    second.close()
    world.run(15)
    rest = drained(first)
    assert sorted(names([*held, *kept, *rest])) == MANY
    assert world.settle.causes() == []


@pytest.mark.parametrize(("seen", "within_s"), [(False, 25), (True, 1.6)])
def test_what_a_consumer_got_that_died_comes_to_the_other_one(tmp_path: Path, *, seen: bool, within_s: float) -> None:
    """After a lease, or soon where its end is seen. What it was handed counts as failed, what it was not does not."""
    world = World(str(tmp_path))
    first, second = world.joined("a", receiver_queue_size=1), world.joined("b")
    world.run(5)
    world.dispatch.deliver(*MANY)
    world.run(1)
    handed = names([first.receive(0), first.receive(0)])
    mine = settled(world, second)
    world.run(4)
    world.crash(first, seen=seen)
    world.run(within_s)
    rest = settled(world, second)
    assert set(world.settle.causes()) <= {"owner_lost"}
    again = world.settle.retries().get(1, [])
    assert set(handed) <= set(again)
    assert sorted(mine + rest + again) == MANY
    world.dispatch.deliver(*again, count=1)
    world.run(1)
    assert sorted(settled(world, second)) == sorted(again)
    assert world.settle.open == 0


def test_a_message_that_kills_its_consumer_counts_each_time(tmp_path: Path) -> None:
    """Whoever takes over counts a failure for what the one before was handed, so that it ends as a dead letter."""
    world = World(str(tmp_path), EXCLUSIVE)
    world.dispatch.deliver((1, 0))
    counts = []
    for name in ("a", "b", "c"):
        victim = world.joined(name)
        world.run(15)
        world.again()
        world.run(1)
        counts.append([(m.message_id().position, m.redelivery_count()) for m in drained(victim)])
        world.run(4)
        world.crash(victim)
    assert counts == [[((1, 0), 0)], [((1, 0), 1)], [((1, 0), 2)]]


def test_what_is_taken_over_is_announced_before_it_is_handed_out(tmp_path: Path) -> None:
    """So that a message counts as failed that kills the process before it renews its lease again."""
    world = World(str(tmp_path), EXCLUSIVE)
    first = world.joined("a", receiver_queue_size=1)
    world.dispatch.deliver((1, 0), (1, 1))
    world.run(1)
    first.receive(0)
    world.run(4)
    world.crash(first)
    second = world.joined("b")
    while not (found := drained(second)):
        world.run(0.2)
    world.crash(second)
    assert names(found) == [(1, 1)]
    third = world.joined("c")
    world.run(15)
    assert sorted(world.settle.retries().items()) == [(1, [(1, 0), (1, 1)])]
    assert third.is_connected()


def test_what_was_delivered_meanwhile_is_announced_together_however_many_files_it_is_in(tmp_path: Path) -> None:
    """A file that took a commit of its own would let the backlog of a long lease come slower than it grew."""
    world = World(str(tmp_path), EXCLUSIVE)
    first = world.joined("a", receiver_queue_size=1)
    world.dispatch.deliver(MANY[0])
    world.run(1)
    first.receive(0)
    world.crash(first)
    for each in MANY[1:]:
        world.dispatch.deliver(each)
    second = world.joined("b")
    begun, got = world.clock.time, 0
    while not (found := drained(second)):
        world.run(0.2)
    first_came = world.clock.time - begun
    while (got := got + len(found)) < len(MANY) - 1:
        world.run(0.2)
        found = drained(second)
    assert world.clock.time - begun - first_came < 1_000


def test_a_consumer_that_closes_hands_over_at_once(tmp_path: Path) -> None:
    """Nobody waits for a lease, and nothing counts as failed."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*MANY)
    first = world.joined("a")
    some = [first.receive(0) for _ in range(5)]
    first.acknowledge(some[0])
    first.close()
    assert sorted(names(drained(world.joined("b")))) == sorted(set(MANY) - set(names(some[:1])))
    assert world.settle.causes() == []


def test_messages_of_one_key_come_to_one_consumer_in_order(tmp_path: Path) -> None:
    """Also while consumers come."""
    world = World(str(tmp_path), KEY_SHARED)
    keys = [f"key {entry % 7}" for _, entry in MANY]
    world.dispatch.deliver(*MANY[:30], keys=keys[:30])
    consumers = [world.joined("a")]
    got: list[tuple[str, tuple[int, int]]] = []

    def take() -> Counter[str]:
        by_key: Counter[str] = Counter()
        for consumer in consumers:
            messages = drained(consumer)
            by_key += Counter({message.partition_key() for message in messages})
            got.extend((m.partition_key(), m.message_id().position) for m in messages)
            for message in messages:
                consumer.acknowledge(message)
        return by_key

    take()
    consumers.append(world.joined("b"))
    world.run(15)
    world.dispatch.deliver(*MANY[30:], keys=keys[30:])
    world.run(2)
    assert set(take().values()) == {1}
    assert sorted(position for _, position in got) == MANY
    for key in set(keys):
        mine = [position for each, position in got if each == key]
        assert mine == sorted(mine)


def test_an_exclusive_subscription_is_busy_while_somebody_has_it(tmp_path: Path) -> None:
    """The error names who; once that one is gone, another one may have it."""
    world = World(str(tmp_path), EXCLUSIVE)
    first = world.joined("a")
    second = world.joined("b")
    with pytest.raises(ConsumerBusy) as error:
        await_subscription(second, 0)
    assert error.value.holder == "a"
    first.close()
    await_subscription(world.joined("c"), 0)


class Listener:
    """Notes what a failover consumer is told."""

    def __init__(self) -> None:
        self.says: list[tuple[str, int]] = []

    def became_active(self, consumer: Consumer, partition: int) -> None:
        """It gets the messages."""
        self.says.append((f"{consumer.consumer_name()} active", partition))

    def became_inactive(self, consumer: Consumer, partition: int) -> None:
        """It stands by."""
        self.says.append((f"{consumer.consumer_name()} stands by", partition))


def test_failover_gives_everything_to_the_best_and_tells_who_that_is(tmp_path: Path) -> None:
    """By priority, then by name; the next one goes on when it leaves."""
    world, listener = World(str(tmp_path), FAILOVER), Listener()
    later = world.joined("a", priority=1, consumer_event_listener=listener)
    best = world.joined("b", consumer_event_listener=listener)
    world.run(15)
    world.dispatch.deliver(*MANY)
    world.run(1)
    assert drained(later) == []
    assert names(drained(best)) == MANY
    best.close()
    world.run(3)
    assert names(drained(later)) == MANY
    assert listener.says[:1] + listener.says[-1:] == [("a stands by", -1), ("a active", -1)] or listener.says[-1] == (
        "a active",
        -1,
    )
    assert ("b active", -1) in listener.says


class Play:
    """Consumers that join, leave and die as chance has it, and notes of what each was handed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)  # noqa: S311 - a test that repeats itself
        self.alive: dict[str, Consumer] = {}
        self.held: dict[str, list[Message]] = {}
        self.unsaid: dict[str, list[Message]] = {}
        self.handed: Counter[tuple[tuple[int, int], int]] = Counter()
        self.excused: set[tuple[int, int]] = set()
        self.sent = 0

    def send(self) -> None:
        """A few messages come."""
        numbers = range(self.sent, self.sent + self.chance.randrange(1, 9))
        batch = [(1 + number // 50, number % 50) for number in numbers]
        self.world.dispatch.deliver(*batch, keys=[f"k{entry % 5}" for _, entry in batch])
        self.sent += len(batch)

    def change(self, step: int) -> None:
        """Somebody joins, leaves or dies, or nobody."""
        act = self.chance.random()
        if not self.alive or (act < 0.15 and len(self.alive) < 4):
            name = f"c{step}"
            self.alive[name] = self.world.consumer(self.world.process(), name, receiver_queue_size=5)
            self.held[name], self.unsaid[name] = [], []
        elif act < 0.25 and len(self.alive) > 1:
            name = self.chance.choice(sorted(self.alive))
            consumer = self.alive.pop(name)
            self.excused |= set(names(self.held.pop(name)))
            if act < 0.2:
                consumer.close()
            else:
                self.excused |= set(names(self.unsaid[name]))
                self.world.crash(consumer)

    def take(self, *, all_done: bool) -> None:
        """Each gets what there is; most is acknowledged, some fails, some is kept until the next time."""
        for name, consumer in sorted(self.alive.items()):
            done, self.held[name], got = self.held[name], [], drained(consumer)
            self.unsaid[name] = done + got
            for message in done:
                consumer.acknowledge(message)
            for message in got:
                self.handed[message.message_id().position, message.redelivery_count()] += 1
                fate = 1.0 if all_done else self.chance.random()
                if fate < 0.2:
                    consumer.negative_acknowledge(message, 0)
                elif fate < 0.4:
                    self.held[name].append(message)
                else:
                    consumer.acknowledge(message)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, FAILOVER])
def test_whoever_joins_leaves_or_dies_each_message_is_settled_in_the_end(
    tmp_path: Path, kind: SubscriptionType, seed: int
) -> None:
    """No delivery, a message with its count, is handed out twice, unless its consumer was gone before it said so."""
    play = Play(World(str(tmp_path), kind), seed)
    for step in range(25):
        play.send()
        play.change(step)
        play.world.run(1)
        play.take(all_done=False)
        if play.chance.random() < 0.5:
            play.world.again()
    rounds, calm = 0, 0
    # A slot of a consumer that died goes over within twelve seconds: so long nothing more may come.
    while calm < 6 and rounds < 20:
        play.world.run(2)
        play.world.again()
        play.take(all_done=True)
        rounds, calm = rounds + 1, 0 if play.world.settle.open else calm + 1
    play.world.run(1)
    assert play.world.settle.open == 0
    assert len({position for position, _ in play.handed}) == play.sent
    assert {each for each, times in play.handed.items() if times > 1 and each[0] not in play.excused} == set()
