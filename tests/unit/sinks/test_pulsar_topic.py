"""A topic of Pulsar on a client that lives in memory: what is on its way, what is confirmed, and what has failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.config.errors import BadValue
from pipeline.sinks.pulsar import PulsarTopic
from pipeline.sinks.topic import Refused, Row
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.sinkplaces import TurnPlace

_TURN = 1_800_000_000_000
_TIME = datetime(2026, 1, 1, tzinfo=UTC)
Callback = Callable[["Result", object], None]


class Result(Enum):
    """Of a message."""

    Ok = 0
    Timeout = 1
    MessageTooBig = 2


@dataclass
class Producer:
    """It refuses what is large, and holds the rest until somebody waits; then the broker has it, or it all fails."""

    last: int = -1
    away: bool = False
    behind: bool = False
    waiting: list[tuple[bytes, Callback]] = field(default_factory=list)
    there: list[bytes] = field(default_factory=list)

    def send_async(self, content: bytes, callback: Callback, sequence_id: int, **_record: Any) -> None:  # noqa: ANN401
        """As Pulsar's."""
        if len(content) > 5:
            callback(Result.MessageTooBig, None)
            return
        assert len(self.waiting) < 3, "the client would wait in the middle of a call"
        self.last = sequence_id
        self.waiting.append((content, callback))

    def flush(self) -> None:
        """As Pulsar's, which may tell `behind` it."""
        waiting, self.waiting = self.waiting, []
        self.there += [content for content, _ in waiting if not self.away]
        if self.behind:
            Timer(0.1, self._tell, [waiting]).start()
        else:
            self._tell(waiting)

    def _tell(self, waiting: list[tuple[bytes, Callback]]) -> None:
        for _, callback in waiting:
            callback(Result.Timeout if self.away else Result.Ok, None)

    def last_sequence_id(self) -> int:
        """As Pulsar's."""
        return self.last


@pytest.fixture
def producer() -> Producer:
    """The only one of the topic."""
    return Producer()


@pytest.fixture
def topic(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> PulsarTopic:
    """A connection that may have three messages on their way."""
    client = SimpleNamespace(
        get_topic_partitions=lambda name: [name], create_producer=lambda *_, **__: producer, close=lambda: None
    )
    kinds = SimpleNamespace(__members__={"NONE": 0})
    package = SimpleNamespace(Result=Result, CompressionType=kinds)
    monkeypatch.setattr("pipeline.sinks.pulsar.connected", lambda _: client)
    monkeypatch.setattr("pipeline.sinks.pulsar.package", lambda: package)
    return connection()


def connection(settings: str = "max_pending_messages=3") -> PulsarTopic:
    """A new one."""
    return PulsarTopic(Destination.parse(f"pulsar://localhost:1/a/b/c?{settings}"), "producer", "place")


def rows(*contents: str) -> list[Row]:
    """Deliveries."""
    row = {"message_key": None, "properties": None, "publish_time": _TIME, "deliver_at": None}
    return [(TurnPlace(_TURN + n, 1), {**row, "payload": each.encode()}) for n, each in enumerate(contents)]


def test_what_is_sent_is_on_its_way_until_somebody_waits(topic: PulsarTopic, producer: Producer) -> None:
    """The next messages are not late because the broker has not confirmed the last ones."""
    topic.publish(rows("a", "b"), TurnPlace(_TURN, 1))
    assert producer.there == []
    topic.confirm()
    assert producer.there == [b"a", b"b"]
    topic.publish(rows("c"), TurnPlace(_TURN, 1))
    topic.confirm()
    assert producer.there == [b"a", b"b", b"c"]


def test_what_the_client_tells_after_a_flush_is_waited_for(topic: PulsarTopic, producer: Producer) -> None:
    """It does so from a thread of its own. A sink that did not wait would stand still, and send it all again."""
    producer.behind = True
    topic.publish(rows(*"abcde"), TurnPlace(_TURN, 1))
    topic.confirm()
    assert producer.there == [b"a", b"b", b"c", b"d", b"e"]
    producer.away = True
    topic.publish(rows("f"), TurnPlace(_TURN, 1))
    with pytest.raises(OSError, match="Timeout"):
        topic.confirm()


def test_no_more_is_on_its_way_than_the_client_holds(topic: PulsarTopic, producer: Producer) -> None:
    """It would wait in the middle of a call, and send what stands behind messages that have failed meanwhile."""
    topic.publish(rows(*"abcdefg"), TurnPlace(_TURN, 1))
    assert producer.there == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_nothing_is_sent_behind_a_message_that_failed(topic: PulsarTopic, producer: Producer) -> None:
    """What is refused, and what was not confirmed; what was on its way before is there."""
    with pytest.raises(Refused, match="MessageTooBig"):
        topic.publish(rows("a", "too large", "b"), TurnPlace(_TURN, 1))
    assert (producer.there, producer.waiting) == ([b"a"], [])
    topic = connection()
    producer.away = True
    topic.publish(rows("c"), TurnPlace(_TURN, 1))
    with pytest.raises(OSError, match="Timeout"):
        topic.confirm()
    with pytest.raises(OSError, match="Timeout"):
        topic.publish(rows("d"), TurnPlace(_TURN, 1))
    assert (producer.there, producer.waiting) == ([b"a"], [])


def test_a_new_connection_knows_the_turn_of_the_last_message(topic: PulsarTopic, producer: Producer) -> None:
    """Nothing is taken up before it. An id of an earlier version of delayline tells no turn."""
    assert topic.passed == 0
    topic.publish(rows("a", "b"), TurnPlace(_TURN, 1))
    assert connection().passed == _TURN + 1
    producer.last = 12_345 << 28 | 7
    assert connection().passed == 0


@pytest.mark.parametrize(
    "settings",
    [f"send_timeout_millis={each}" for each in ("999", "x", "9" * 5_000)] + ["max_pending_messages=0"],
)
@pytest.mark.usefixtures("topic")
def test_a_setting_that_the_sink_cannot_live_with_is_refused(settings: str) -> None:
    """A client that gives up sooner than the sink waits could lose messages."""
    with pytest.raises(BadValue, match=settings.partition("=")[0]):
        connection(settings)
