"""What consumers live through: logs that are cut, stores that fail, another life of their subscription, threads."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from deltalake import DeltaTable

from pipeline.client import aio
from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.opening import engine_of, new_consumer, open_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.sessionlocks import FOLDER
from pipeline.client.exceptions import ConsumerBusy, OperationNotSupported, Timeout
from pipeline.client.message import Message
from pipeline.config.errors import StillConflicting
from pipeline.delta.deltars import append
from schemas import CONSUMER_EVENTS, CURSORS, DELIVERIES, Table
from state import CorruptBytes, OutOfRange, SubscriptionType
from tests.support.consumed import SUBSCRIPTION, TOPIC, SettleFake, World, drained, names

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
TEN = [(1, entry) for entry in range(10)]
PATIENCE_S = 30.0
APPEND = "pipeline.client.consuming.writer.append"


def cut(world: World, table: Table) -> None:
    """Delete the log of a table up to a checkpoint of its newest version, as maintenance does."""
    folder = Path(world.root) / table.name
    opened = DeltaTable(str(folder))
    opened.create_checkpoint()
    for entry in (folder / "_delta_log").glob("*.json"):
        if int(entry.stem) < opened.version():
            entry.unlink()


@pytest.mark.parametrize("table", [DELIVERIES, CONSUMER_EVENTS, CURSORS])
def test_a_consumer_that_missed_what_was_cut_from_a_log_goes_on(tmp_path: Path, table: Table) -> None:
    """It reads what is open, and who leases, as settle says it."""
    world = World(str(tmp_path))
    consumer, other = world.joined("a"), world.joined("b")
    world.run(12)
    world.dispatch.deliver(*TEN[:5])
    for position in TEN[5:]:
        world.dispatch.deliver(position)
    before = world.engines[1:]
    world.run(4, *before)
    cut(world, table)
    world.run(15)
    assert sorted(names([*drained(consumer), *drained(other)])) == TEN
    for each in (consumer, other):
        each.close()
    world.run(1)
    assert world.settle.causes() == []


def test_what_the_application_has_does_not_come_again_when_a_log_was_cut(tmp_path: Path) -> None:
    """It is open, by settle's word, and the table is read anew; but it was handed out."""
    world = World(str(tmp_path))
    consumer = world.joined()
    world.dispatch.deliver(*TEN[:5])
    world.run(1)
    held = drained(consumer)
    world.dispatch.deliver(*TEN[5:])
    world.dispatch.deliver((2, 0))
    cut(world, DELIVERIES)
    world.run(3)
    assert names(held) == TEN[:5]
    assert names(drained(consumer)) == [*TEN[5:], (2, 0)]


def test_what_was_said_and_is_not_appended_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is open, by settle's word, would have messages that were acknowledged."""
    world = World(str(tmp_path))
    consumer = world.joined()
    world.dispatch.deliver(*TEN[:5])
    world.run(1)
    held = drained(consumer)

    def fails(_: str, table: Table, rows: pa.Table) -> int:
        raise StillConflicting(table.name, rows.num_rows)

    monkeypatch.setattr(APPEND, fails)
    for message in held:
        consumer.acknowledge(message)
    world.dispatch.deliver(*TEN[5:])
    world.dispatch.deliver((2, 0))
    cut(world, DELIVERIES)
    world.run(1)
    assert drained(consumer) == []
    monkeypatch.setattr(APPEND, append)
    world.run(5)
    assert names(drained(consumer)) == [*TEN[5:], (2, 0)]


def test_a_consumer_waits_until_settle_has_read_what_the_one_before_said(tmp_path: Path) -> None:
    """And what was released until then: before that nobody knows what is open."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN[:5])
    first = world.joined("a")
    for message in drained(first)[:3]:
        first.acknowledge(message)
    first.close()
    world.dispatch.deliver(*TEN[5:])
    second = world.consumer(world.process(), "b")
    world.run(3, settles=False)
    assert drained(second) == []
    world.run(1)
    assert names(drained(second)) == TEN[3:]


def test_what_cannot_be_appended_is_appended_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With growing pauses; what is said meanwhile goes with it, in its order."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    tried = list[int]()

    def fails(_: str, table: Table, rows: pa.Table) -> int:
        tried.append(world.clock.now())
        raise StillConflicting(table.name, rows.num_rows)

    monkeypatch.setattr(APPEND, fails)
    for message in drained(consumer):
        consumer.acknowledge(message)
        world.run(0.4)
    assert 3 < len(tried) < 10
    assert world.settle.open == 10
    monkeypatch.setattr(APPEND, append)
    world.run(5)
    assert world.settle.open == 0


def test_consumers_of_a_slow_store_keep_their_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a commit comes as rarely as every twelve seconds, leases last for longer."""
    world = World(str(tmp_path))
    consumers = [world.joined("a"), world.joined("b")]

    def slowly(root: str, table: Table, rows: pa.Table) -> int:
        world.clock.time += 3_000
        return append(root, table, rows)

    monkeypatch.setattr(APPEND, slowly)
    world.run(60)
    got = []
    for position in TEN:
        world.dispatch.deliver(position)
        world.run(5)
        found = [(each, message) for each in consumers for message in drained(each)]
        for each, message in found:
            each.acknowledge(message)
        got += names(message for _, message in found)
    assert got == TEN
    assert world.settle.causes() == []
    monkeypatch.setattr(APPEND, append)
    world.run(90)
    slots = [topic_consumer._slots for each in consumers for topic_consumer in each.topic_consumers]
    assert [each.member.timing.lease_ms for each in slots if each is not None] == [10_000, 10_000]


def test_closing_says_when_the_last_words_could_not_be_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the application would take them for said."""
    world = World(str(tmp_path))
    world.dispatch.deliver(TEN[0])
    consumer = world.joined()
    consumer.acknowledge(consumer.receive(0))

    def fails(_: str, table: Table, rows: pa.Table) -> int:
        raise StillConflicting(table.name, rows.num_rows)

    monkeypatch.setattr(APPEND, fails)
    with pytest.raises(StillConflicting):
        consumer.close()


def test_a_consumer_waits_until_settle_knows_the_subscription(tmp_path: Path) -> None:
    """Until then it says nothing, for nobody would follow it."""
    world = World(str(tmp_path))
    engine = world.process()
    new = new_consumer(engine, [TOPIC], "unknown", ConsumerOptions(ConsumerType.Shared, "a"))
    world.run(3)
    assert not new.is_connected()
    assert DeltaTable(f"{world.root}/{CONSUMER_EVENTS.name}").version() == 0


def test_another_life_of_a_subscription_begins_anew(tmp_path: Path) -> None:
    """What was queued of the old one is not handed out; what comes for the new one is."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN[:3])
    consumer = world.joined()
    assert names([consumer.receive(0)]) == TEN[:1]
    world.settle = SettleFake(world.root, 8, world.settle.policies, life=2)
    world.dispatch.life = 2
    world.run(1)
    world.dispatch.deliver(*TEN[5:])
    world.run(8)
    assert names(drained(consumer)) == TEN[5:]


def test_a_consumer_of_several_topics_gets_the_messages_of_each(tmp_path: Path) -> None:
    """A topic whose subscription nobody knows yet is no hindrance; each message is settled in its own topic."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = new_consumer(world.process(), ["other", TOPIC], SUBSCRIPTION, ConsumerOptions(ConsumerType.Shared, "a"))
    world.run(3)
    found = drained(consumer)
    assert names(found) == TEN
    for message in found:
        consumer.acknowledge(message.message_id())
    world.run(1)
    assert world.settle.open == 0


def test_a_consumer_that_fails_does_not_keep_others_from_their_turns(tmp_path: Path) -> None:
    """The engine says why when all had theirs."""
    world = World(str(tmp_path))
    engine = world.process()
    broken, whole = world.consumer(engine, "a"), world.consumer(engine, "b")
    world.dispatch.deliver(*TEN)

    def fails() -> None:
        raise CorruptBytes("cursor", "somebody wrote to it")

    broken.topic_consumers[0].turn = fails  # type: ignore[method-assign]
    for _ in range(10):
        world.clock.time += 200
        with pytest.raises(CorruptBytes):
            engine.turn()
        world.settle.settle()
    assert names(drained(whole)) == TEN


def test_a_consumer_that_cannot_join_holds_no_file(tmp_path: Path) -> None:
    """It tries again with each turn: each left a locked file, and there were more of them for ever."""
    world = World(str(tmp_path))
    engine = world.process()
    consumer = world.consumer(engine, priority=-1)
    with pytest.raises(OutOfRange):
        world.run(3)
    assert not consumer.is_connected()
    assert not engine.logs.sessions._held
    assert not list((tmp_path / FOLDER).glob("*"))


class Settling:
    """Settles in a thread, as the service does, for consumers that have threads."""

    def __init__(self, world: World) -> None:
        self._world, self._ended = world, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            self._world.settle.settle()

    def __enter__(self) -> None:
        """Settle from here on."""
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()


def test_a_consumer_that_runs_by_itself_waits_for_messages_and_is_exclusive(tmp_path: Path) -> None:
    """As a program uses it: nobody turns anything."""
    world = World(str(tmp_path), EXCLUSIVE)
    options = ConsumerOptions(consumer_name="a")
    with Settling(world), open_consumer(engine_of(world.root), [TOPIC], SUBSCRIPTION, options) as consumer:
        with pytest.raises(Timeout):
            consumer.receive(1)
        late = threading.Timer(0.05, world.dispatch.deliver, TEN)
        late.start()
        for _ in TEN:
            consumer.acknowledge(consumer.receive(30_000))
        with pytest.raises(ConsumerBusy):
            open_consumer(engine_of(world.root), [TOPIC], SUBSCRIPTION, options)
    world.settle.settle()
    assert world.settle.open == 0


def test_a_listener_is_given_each_message_but_for_while_it_is_paused(tmp_path: Path) -> None:
    """In a thread, and nobody takes one from it; what it raises is logged, and what is not acknowledged comes again."""
    world = World(str(tmp_path))
    given, enough = list[Message](), threading.Event()

    def listener(consumer: Consumer, message: Message) -> None:
        given.append(message)
        if len(given) == len(TEN):
            enough.set()
        if message.message_id().position == TEN[0]:
            raise ValueError
        consumer.acknowledge(message)

    options = ConsumerOptions(ConsumerType.Shared, message_listener=listener)
    with Settling(world), open_consumer(engine_of(world.root), [TOPIC], SUBSCRIPTION, options) as consumer:
        for receive in (consumer.receive, consumer.batch_receive, consumer.batch_receive_arrow):
            with pytest.raises(OperationNotSupported) as refused:
                receive(timeout_millis=0)
            assert refused.value.call == receive.__name__
        with pytest.raises(OperationNotSupported):
            asyncio.run(aio.Consumer(consumer).receive())
        consumer.pause_message_listener()
        world.dispatch.deliver(*TEN)
        assert given == []
        consumer.resume_message_listener()
        assert enough.wait(PATIENCE_S)
    world.settle.settle()
    assert names(given) == TEN
    assert world.settle.open == 1


def test_unsubscribing_closes_and_takes_the_subscription_out_of_the_registry(tmp_path: Path) -> None:
    """Whoever made the consumer says how; others are told that it is gone."""
    world, done = World(str(tmp_path)), list[str]()
    options = ConsumerOptions(ConsumerType.Shared, "a")
    consumer = new_consumer(
        world.process(),
        [TOPIC],
        SUBSCRIPTION,
        options,
        on_close=lambda consumer: done.append(consumer.consumer_name()),
        on_unsubscribe=lambda _: done.append("out"),
    )
    world.run(3)
    consumer.unsubscribe()
    assert done == ["a", "out"]
