"""The sinks of a warehouse follow its registry, and one that stands still is not the matter of the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe, subscriptions, unsubscribe
from pipeline.config.watching import Watch
from pipeline.sinks.running import publishing
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.policies import Policies
from tests.support.client import new_warehouse
from tests.support.sinks import ADDRESS, MemoryBroker, MemoryTopic, delivered, places, version

AWAY = "kafka://127.0.0.1:1/out"
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


class Late(Watch):
    """What a process is told of sinks."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.seconds = dict[str, float | None]()

    def sink_late(self, topic: str, subscription: str, seconds: float | None) -> None:  # noqa: ARG002 - of one topic
        """By the subscription."""
        self.seconds[subscription] = seconds


def errors(root: str) -> set[str | None]:
    """Why sinks stand still, as it is noted."""
    found = [places(root).get(name) for name in places(root).names()]
    return {each.error for each in found if each is not None}


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


def test_a_sink_keeps_its_begin_while_other_policies_change(root: str) -> None:
    """Another sink begins where the table is by then, and one may say where."""

    def after() -> int | None:
        return subscriptions(root)[0].policies.sink_after

    subscribe(root, Subscription("t", "s", policies=Policies(sink=ADDRESS)))
    first = after()
    assert first == version(root)
    delivered(root, "a")
    set_policies(root, "t", "s", Policies(sink=ADDRESS, max_unacked=7))
    assert after() == first
    set_policies(root, "t", "s", Policies(sink=AWAY, sink_after=first))
    assert after() == version(root)
    set_policies(root, "t", "s", Policies(sink=AWAY, sink_after=3))
    assert after() == 3
