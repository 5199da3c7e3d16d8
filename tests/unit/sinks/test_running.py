"""The sinks of a warehouse follow its registry, and one that stands still is not the matter of the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Semaphore

import pytest
from deltalake import write_deltalake

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.lines import registered_in
from pipeline.client.subscribing.policysetting import unset_policy
from pipeline.client.subscribing.subscriptions import (
    Subscription,
    set_policies,
    subscribe,
    subscriptions,
    unsubscribe,
)
from pipeline.config.options import StageListener
from pipeline.delta.deltars import open_table, rows_of
from pipeline.sinks.loop import SinkLoop
from pipeline.sinks.running import publishing
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.policies import Policies
from schemas import SUBSCRIPTIONS
from tests.support.client import new_warehouse
from tests.support.sinks import ADDRESS, MemoryBroker, MemoryTopic, delivered, places, version

AWAY, ELSE = "kafka://127.0.0.1:1/out", "kafka://127.0.0.1:9092/else"
_PATIENCE_S = 60


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


def until(condition: Callable[[], bool]) -> None:
    """Return when something is so; fail when it takes a minute."""
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        Event().wait(0.01)


class Late(StageListener):
    """What a process is told of sinks."""

    def __init__(self) -> None:
        self.seconds = dict[str, float | None]()

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:  # noqa: ARG002 - of one topic
        """By the subscription."""
        self.seconds[subscription] = seconds


def errors(root: str) -> set[str | None]:
    """Why sinks stand still, as it is noted."""
    found = [places(root).get(name) for name in places(root).names()]
    return {each.error for each in found if each is not None}


def written(root: str, policies: dict[str, str]) -> None:
    """Another Delta writer sets the policies of the subscription `s`."""
    registry = open_table(root, SUBSCRIPTIONS)
    line = {"topic": "t", "subscription": "s", "type": "shared", "start": "latest", "tick_ms": 1_000, "active": True}
    rows = rows_of(SUBSCRIPTIONS, [line | {"policies": policies}])
    write_deltalake(registry, rows, mode="overwrite", predicate="subscription = 's' AND type <> 'history'")


def test_a_broker_that_is_away_stops_nobody_else(root: str) -> None:
    """What it is to get waits, and the file says why; the other sink publishes."""
    broker = MemoryBroker()

    def connect(to: Destination, producer: str, group: str) -> MemoryTopic:
        if to.servers.endswith(":1"):
            raise ConnectionRefusedError(to.servers)
        return broker.connect(to, producer, group)

    subscribe(root, Subscription("t", "away", policies=Policies(sink=AWAY)))
    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    watch = Late()
    with publishing(root, watch, connect):
        until(lambda: "ConnectionRefusedError: 127.0.0.1:1" in errors(root))
        delivered(root, "a")
        delivered(root, "a", subscription="away")
        until(lambda: broker.payloads == [b"a"])
        until(lambda: (watch.seconds.get("away") or 0) > 0)
        until(lambda: watch.seconds["s"] == 0)
    assert watch.seconds == {"away": None, "s": None}
    assert errors(root) == {None, "ConnectionRefusedError: 127.0.0.1:1"}


class PanicException(BaseException):
    """Stands for `pyo3_runtime.PanicException`, which is no `Exception`."""


def test_sinks_that_wait_for_their_brokers_are_waited_for_together(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each took a quarter of a minute, one after the other: after two of them the process was killed."""
    monkeypatch.setattr("pipeline.sinks.running.PATIENCE_S", 0.2)
    asked, answered, waits = Semaphore(0), Event(), list[float]()
    stop = SinkLoop.stop

    def connect(*_: object) -> MemoryTopic:
        asked.release()
        answered.wait()
        raise OSError

    def stops(loop: SinkLoop, patience_s: float) -> None:
        waits.append(patience_s)
        stop(loop, patience_s)

    monkeypatch.setattr(SinkLoop, "stop", stops)
    for number in range(3):
        subscribe(root, Subscription("t", f"s{number}", policies=Policies(sink=ADDRESS)))
    with publishing(root, connect=connect):
        for _ in range(3):
            asked.acquire()
    answered.set()
    assert (len(waits), min(waits)) == (3, 0)


def test_a_panic_stops_one_sink_only_and_is_noted(root: str) -> None:
    """Its thread ended, and nobody was told: the sink stood still for ever."""
    broker, panics = MemoryBroker(), [PanicException("index out of bounds")]

    def connect(to: Destination, producer: str, group: str) -> MemoryTopic:
        if panics:
            raise panics.pop()
        return broker.connect(to, producer, group)

    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    with publishing(root, StageListener(), connect):
        until(lambda: "Panic: PanicException: index out of bounds" in errors(root))
        delivered(root, "a")
        until(lambda: broker.payloads == [b"a"])


def test_a_sink_that_is_named_and_taken_away_is_followed_while_it_runs(root: str) -> None:
    """It begins with what comes after it was named; afterwards nothing keeps the log for it."""
    broker = MemoryBroker()
    subscribe(root, Subscription("t", "s"))
    delivered(root, "before")
    with publishing(root, connect=broker.connect):
        set_policies(root, "t", "s", Policies(sink=ADDRESS))
        delivered(root, "a")
        until(lambda: broker.payloads == [b"a"])
        set_policies(root, "t", "s", Policies())
        until(lambda: not places(root).names())
        delivered(root, "b")
    assert broker.payloads == [b"a"]


def test_a_subscription_that_ends_takes_its_sink_along(root: str) -> None:
    """Else the log of deliveries would be kept for ever."""
    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    with publishing(root, connect=MemoryBroker().connect):
        until(lambda: bool(places(root).names()))
        unsubscribe(root, "t", "s")
        until(lambda: not places(root).names())


WRONG = ({"max_rate": "fast"}, {"sink": "kafka:out"}, {"sink_after": "soon"}, {"ack": "true"})


@pytest.mark.parametrize("wrong", WRONG)
def test_a_policy_that_cannot_be_followed_for_a_while_costs_no_sink_its_place(root: str, wrong: dict[str, str]) -> None:
    """Any Delta writer may set one, and correct it: nothing is lost or sent twice, also when the sink rested."""
    broker = MemoryBroker(keeps_place=False)

    def connect(to: Destination, producer: str, group: str) -> MemoryTopic:
        return (MemoryBroker() if to.servers.endswith(":1") else broker).connect(to, producer, group)

    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    subscribe(root, Subscription("t", "other", policies=Policies(sink=AWAY)))
    right = subscriptions(root)[1].policies.as_map()
    with publishing(root, connect=connect):
        delivered(root, "a")
        until(lambda: broker.payloads == [b"a"])
        noted = places(root).names()
        written(root, right | wrong)
        # Who is gone by then was taken away at a look that has seen the other change, too.
        unsubscribe(root, "t", "other")
        until(lambda: len(places(root).names()) < len(noted))
        delivered(root, "b")
        written(root, right)
        until(lambda: broker.payloads == [b"a", b"b"])
    assert errors(root) == {None}


@pytest.mark.parametrize("wrong", [*WRONG[:3], {"sink": "kafka:out", "sink_after": "0"}])
def test_a_policy_that_cannot_be_followed_is_unset_and_the_place_of_its_sink_goes(
    root: str, wrong: dict[str, str]
) -> None:
    """Else the log of deliveries would be kept for ever."""
    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    with publishing(root, connect=MemoryBroker().connect):
        until(lambda: bool(places(root).names()))
        written(root, wrong)
        assert unset_policy(root, "t", *wrong, subscription="s")
        assert not registered_in(open_table(root, SUBSCRIPTIONS)).unclear
        until(lambda: not places(root).names())


def test_a_sink_keeps_its_begin_while_other_policies_change(root: str) -> None:
    """So does one of other servers. Another topic begins where the table is by then, and one may say where."""

    def after() -> int | None:
        return subscriptions(root)[0].policies.sink_after

    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    first = after()
    assert first == version(root)
    delivered(root, "a")
    set_policies(root, "t", "s", Policies(sink=ADDRESS, max_unacked=7))
    assert after() == first
    set_policies(root, "t", "s", Policies(sink=AWAY))
    assert after() == first
    set_policies(root, "t", "s", Policies(sink=ELSE, sink_after=first))
    assert after() == version(root)
    set_policies(root, "t", "s", Policies(sink=ELSE, sink_after=3))
    assert after() == 3
