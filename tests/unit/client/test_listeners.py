"""Threads that serve listeners: whom they wait for, what they give, and that they end."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.consuming import consumerlistener
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.consumerlistener import Worker
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.topicconsumer import TopicConsumer
from pipeline.client.message import Message
from state import SubscriptionType
from tests.support.consumed import World, drained, names

_PATIENCE_S = 20


class Listener:
    """Is told of a failover consumer."""

    def __init__(self) -> None:
        self.active = threading.Event()
        self.threads: list[threading.Thread] = []

    def became_active(self, _consumer: Consumer, _partition: int) -> None:
        """It gets messages."""
        self.threads.append(threading.current_thread())
        self.active.set()

    def became_inactive(self, _consumer: Consumer, _partition: int) -> None:
        """It stands by."""


def test_a_listener_that_has_ended_another_one_is_waited_for_as_ever() -> None:
    """Whoever closed its consumer later did not wait for it: what it acknowledged was refused."""
    others = [Worker(lambda _: None, lambda _: None) for _ in range(2)]
    begun, works, goes, done = (threading.Event() for _ in range(4))

    def give(_: Message) -> None:
        if not begun.is_set():
            others[0].stop()
            begun.set()
            return
        works.set()
        goes.wait(_PATIENCE_S)
        done.set()

    worker = Worker(lambda _: object(), give)  # type: ignore[arg-type, return-value]
    for each in (*others, worker):
        each.start()
    assert works.wait(_PATIENCE_S)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    stopping.join(0.5)
    assert stopping.is_alive()
    goes.set()
    stopping.join(_PATIENCE_S)
    assert done.is_set()
    others[1].stop()


def test_a_listener_that_is_paused_gets_nothing_when_it_ends() -> None:
    """It was given the message that its thread had taken before the pause."""
    took, goes, given = threading.Event(), threading.Event(), list[Message]()

    def take(_: int) -> Message:
        took.set()
        goes.wait(_PATIENCE_S)
        return object()  # type: ignore[return-value]

    worker = Worker(take, given.append)
    worker.start()
    assert took.wait(_PATIENCE_S)
    worker.pause()
    goes.set()
    worker._thread.join(0.2)
    worker.stop()
    assert given == []


def test_a_consumer_that_was_told_of_and_then_forgotten_leaves_nothing_behind(tmp_path: Path) -> None:
    """The thread that had told of it held it for good, so its slots were nobody's, and did not end."""
    world, listener = World(str(tmp_path), SubscriptionType.FAILOVER), Listener()
    forgotten, other = world.joined("a", consumer_event_listener=listener), world.joined("b")
    assert listener.active.wait(_PATIENCE_S)
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    listener.threads[0].join(_PATIENCE_S)
    assert not listener.threads[0].is_alive()
    world.run(5)
    world.dispatch.deliver((1, 0))
    world.run(2)
    assert names(drained(other)) == [(1, 0)]


def test_a_consumer_that_becomes_active_at_once_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers of other topics turn meanwhile: it was active before anybody was to be told."""
    world, listener = World(str(tmp_path), SubscriptionType.FAILOVER), Listener()
    turning, add = list[threading.Thread](), Engine.add

    def added(*args: Any) -> TopicConsumer:  # noqa: ANN401 - passed on
        made = add(*args)
        turning.append(threading.Thread(target=world.run, args=(3,)))
        turning[0].start()
        turning[0].join(1)
        return made

    monkeypatch.setattr(Engine, "add", added)
    consumer = world.consumer(world.process(), consumer_event_listener=listener)
    turning[0].join(_PATIENCE_S)
    assert listener.active.wait(1)
    consumer.close()


def test_a_consumer_with_a_listener_is_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread waited for the next message for half a second, and whoever closed waited for the thread."""
    monkeypatch.setattr(consumerlistener, "_LOOK_MS", 1_000 * _PATIENCE_S)
    consumer, asked = World(str(tmp_path)).joined(), threading.Event()
    monkeypatch.setattr(Consumer, "_take", lambda _: asked.set())
    worker = consumer.listen(lambda *_: None)
    assert asked.wait(_PATIENCE_S)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(_PATIENCE_S / 2)
    assert not closing.is_alive()
    assert not worker._thread.is_alive()
