"""Consumers whose subscription, thread or program is gone: nobody waits for ever, and others get the messages."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.consuming import writer
from pipeline.client.consuming.opening import await_subscription, engine_of, new_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.exceptions import AlreadyClosed, ConsumerBusy, SubscriptionNotFound
from pipeline.client.message import Message, MessageId
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, unsubscribe
from pipeline.client.tables.datarows import DataRows
from pipeline.config.errors import AlreadySubscribed
from pipeline.delta.deltars import open_table, query
from pipeline.storage.waiting import Folders
from schemas import CONSUMER_EVENTS
from state import SubscriptionType
from tests.support.consumed import SUBSCRIPTION, TOPIC, World, drained, names
from tests.unit.client.test_consuming import PATIENCE_S, TEN

_PATIENCE_S = 20
HIGH = 1_100
"""A handle above those that `select` takes."""


def test_who_waits_in_a_process_with_many_open_files_is_told_of_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`select` takes no handle above 1,023: the thread of all consumers ended without a word."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= HIGH + 1:
        pytest.skip("the system allows no more open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 10), hard))
    real = os.pipe

    def pipe() -> tuple[int, int]:
        low = real()
        high = fcntl.fcntl(low[0], fcntl.F_DUPFD, HIGH), fcntl.fcntl(low[1], fcntl.F_DUPFD, HIGH)
        for each in low:
            os.close(each)
        return high

    try:
        monkeypatch.setattr(os, "pipe", pipe)
        folders = Folders([str(tmp_path)])
        folders.state()
        folders.wake()
        assert not folders.wait(0)
        folders.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_consumers_whose_thread_died_are_told_and_others_get_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for ever, and whoever subscribed later got the same dead thread."""

    class Panic(BaseException):
        """As delta-rs raises it."""

    def broken(*_: object) -> None:
        raise Panic

    world = World(str(tmp_path))
    monkeypatch.setattr(Folders, "state", broken)
    engine = engine_of(world.root)
    consumer = new_consumer(engine, [TOPIC], SUBSCRIPTION, ConsumerOptions(ConsumerType.Shared, "a"))
    with pytest.raises(AlreadyClosed):
        consumer.receive(60_000)
    assert engine.ended
    monkeypatch.undo()
    other = engine_of(world.root)
    assert other is not engine
    for each in (consumer, new_consumer(other, [TOPIC], SUBSCRIPTION, ConsumerOptions(ConsumerType.Shared, "b"))):
        each.close()


def test_a_consumer_whose_subscription_somebody_ended_is_told(tmp_path: Path) -> None:
    """It waited for ever for messages that nobody sends it."""
    world = World(str(tmp_path))
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION))
    consumer = world.joined()
    world.dispatch.deliver(*TEN)
    world.run(1)
    assert len(drained(consumer)) == len(TEN)
    unsubscribe(world.root, TOPIC, SUBSCRIPTION)
    world.run(6)
    with pytest.raises(SubscriptionNotFound) as ended:
        consumer.receive(60_000)
    assert (ended.value.topic, ended.value.subscription) == (TOPIC, SUBSCRIPTION)
    consumer.close()


def test_a_consumer_of_several_topics_comes_back_to_one_whose_subscription_was_made_anew(tmp_path: Path) -> None:
    """It gets messages of the others meanwhile, so nobody tells the program to subscribe again."""
    world = World(str(tmp_path))
    for topic in (TOPIC, "other"):
        subscribe(world.root, Subscription(topic, SUBSCRIPTION))
    options = ConsumerOptions(ConsumerType.Shared, "a")
    consumer = new_consumer(world.process(), [TOPIC, "other"], SUBSCRIPTION, options)
    world.run(3)
    unsubscribe(world.root, TOPIC, SUBSCRIPTION)
    world.run(6)
    assert [topic_consumer.failure is None for topic_consumer in consumer.topic_consumers] == [False, True]
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION, type="key_shared"))
    world.run(6)
    assert consumer.topic_consumers[0].failure is not None, "the type differs"
    unsubscribe(world.root, TOPIC, SUBSCRIPTION)
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION))
    world.begin_anew(2)
    world.run(10)
    world.dispatch.deliver(*TEN)
    world.run(1)
    assert names(drained(consumer)) == TEN


def test_a_consumer_that_gets_nothing_any_more_does_not_come_back(tmp_path: Path) -> None:
    """Its program was told, and may be gone: what it would have then nobody would work on."""
    world = World(str(tmp_path))
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION))
    old = world.joined()
    unsubscribe(world.root, TOPIC, SUBSCRIPTION)
    world.run(6)
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION))
    world.begin_anew(2)
    world.run(20)
    world.dispatch.deliver(*TEN)
    assert names(drained(world.joined("b"))) == TEN
    with pytest.raises(SubscriptionNotFound):
        old.receive(60_000)


def test_a_consumer_stays_out_of_a_subscription_that_was_made_anew_with_another_type(tmp_path: Path) -> None:
    """It shared the slots in its own way: some messages came to two, others to nobody."""
    world = World(str(tmp_path))
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION))
    old = world.joined("a")
    unsubscribe(world.root, TOPIC, SUBSCRIPTION)
    subscribe(world.root, Subscription(TOPIC, SUBSCRIPTION, type="key_shared"))
    world.begin_anew(2)
    world.kind = SubscriptionType.KEY_SHARED
    new = world.joined("b")
    world.run(20)
    world.dispatch.deliver(*TEN, keys=[f"k{number}" for number in range(10)])
    world.run(2)
    with pytest.raises(AlreadySubscribed) as refused:
        old.receive(60_000)
    assert refused.value.found == "type key_shared"
    assert names(drained(new)) == TEN


def test_a_consumer_that_a_program_forgot_leaves_its_slots_to_others(tmp_path: Path) -> None:
    """Half of the messages went to nobody for as long as the process lived."""
    world = World(str(tmp_path))
    forgotten, other = world.joined("a"), world.joined("b")
    world.run(20)
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    world.run(5)
    world.dispatch.deliver(*TEN)
    world.run(2)
    assert sorted(names(drained(other))) == sorted(TEN)


def test_a_client_keeps_no_consumer_that_its_program_forgot(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that looks for new topics now and then, and is told when it becomes active."""
    made = World(root)
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: made.process())
    with Client(root) as client:
        gone = weakref.ref(
            client.subscribe([TOPIC], SUBSCRIPTION, ConsumerType.Shared, consumer_event_listener=Listener())
        )
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("crashes", [True, False])
def test_a_lease_is_renewed_while_a_large_backlog_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, crashes: bool
) -> None:
    """On a store a gigabyte takes longer than a lease lasts: whoever took over lost its slots again, for ever."""
    world = World(str(tmp_path), SubscriptionType.EXCLUSIVE)
    first = world.joined("a", receiver_queue_size=1)
    for number in range(40):
        world.dispatch.deliver((1, number))
    world.run(1)
    assert names([first.receive(0)]) == [(1, 0)]
    world.run(4)
    if crashes:
        world.crash(first)
    else:
        first.close()
    read = DataRows.pieces

    def slow(self: DataRows, *args: Any) -> Iterator[pa.Table]:  # noqa: ANN401 - passed on
        world.clock.time += 600
        return read(self, *args)

    monkeypatch.setattr(DataRows, "pieces", slow)
    second, took, found = world.consumer(world.process(), "b"), list[int](), list[Message]()
    for _ in range(150):
        before = world.clock.time
        second.engine.turn()
        took.append(world.clock.time - before)
        world.run(0.2)
        found += drained(second)
    assert max(took) <= 3_000
    assert names(found) == [(1, number) for number in range(1 if crashes else 0, 40)]


@pytest.mark.parametrize("crashes", [True, False])
def test_who_subscribes_waits_for_a_sign_of_life_or_for_the_end_of_a_lease(tmp_path: Path, *, crashes: bool) -> None:
    """It was `ConsumerBusy` at once: after a crash nobody ever got the subscription, however often he tried."""
    world = World(str(tmp_path), SubscriptionType.EXCLUSIVE)
    first = world.joined("a")
    if crashes:
        world.crash(first)
    second, begun = world.consumer(world.process(), "b"), world.clock.time
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(await_subscription, second, _PATIENCE_S)
        while not asked.done() and world.clock.time < begun + 60_000:
            world.run(0.2)
            wait([asked], 0.01)
        error = asked.exception(_PATIENCE_S)
    assert (error is None, isinstance(error, ConsumerBusy)) == (crashes, not crashes)
    assert second.is_connected() is crashes
    assert world.clock.time - begun < (15_000 if crashes else 5_000)


class Listener:
    """A listener that does nothing."""

    def became_active(self, *_: object) -> None:
        """Nothing."""

    def became_inactive(self, *_: object) -> None:
        """Nothing."""


def test_threads_end_when_what_a_consumer_said_last_is_in_the_table_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a close that had failed they went on for as long as the process, without any consumer."""
    world = World(str(tmp_path))
    engine = engine_of(world.root)
    consumer = new_consumer(engine, [TOPIC], SUBSCRIPTION, ConsumerOptions(ConsumerType.Shared, "a"))

    def refused(*_: object) -> None:
        raise OSError("the store does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(writer, "append", refused)
        consumer.acknowledge(MessageId(-1, 1, 0, topic=TOPIC))
        with pytest.raises(OSError, match="answer"):
            consumer.close()
        assert not engine.ended
    engine._ended.wait(PATIENCE_S)
    assert engine.ended
    # A consumer whose thread was fast has joined by then, and says behind the acknowledgement that it leaves.
    assert "ack" in {row["kind"] for row in query("SELECT kind FROM t", t=open_table(world.root, CONSUMER_EVENTS))}
