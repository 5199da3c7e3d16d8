"""A sink and a real Pulsar broker: what was published is there in order, and once where the broker deduplicates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.client.client import Client
from pipeline.sinks.pulsar import PulsarTopic, partition
from pipeline.sinks.topic import Refused, Row
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY
from pipeline.subscriptions.sinkplaces import Place, TurnPlace
from tests.support.brokers import DEDUPLICATED, TENANT
from tests.support.client import new_warehouse
from tests.support.sinks import Killed, delivered, places, run, run_until_up, sink
from tests.support.sources import inbox

if TYPE_CHECKING:
    from benchmarks.support.pulsar import Broker

NAMES = [f"m{number:02}" for number in range(20)]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


@pytest.fixture(autouse=True)
def _confirms_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step waits for the broker, and notes its place."""
    monkeypatch.setattr("pipeline.sinks.loop._CONFIRMED_MS", 0)


@pytest.fixture
def topic(pulsar: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic of a namespace that deduplicates."""
    return pulsar.create(request.node.name.replace("[", "-").replace("]", ""), namespace=DEDUPLICATED)


def payloads(pulsar: Broker, topic: str) -> list[str]:
    """What a consumer reads."""
    return [message.data().decode() for message in pulsar.read(topic)]


def test_a_message_has_the_key_the_payload_and_the_properties_of_the_delivery(
    root: str, pulsar: Broker, topic: str
) -> None:
    """An empty text stays empty; what Pulsar has no NULL for is left out; the time of the event is the due time."""
    due = datetime(2030, 1, 1, tzinfo=UTC)
    delivered(
        root, "full", message_key="k", properties=[("a", "1"), ("b", None), ("c", ""), ("é", "ü")], deliver_at=due
    )
    delivered(root, "bare", publish_time=datetime(1960, 1, 1, tzinfo=UTC), deliver_at=None)
    delivered(root, "gone", message_key="", payload=None)
    run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}"))
    full, bare, gone = pulsar.read(topic)
    assert (full.partition_key(), full.data()) == ("k", b"full")
    assert full.properties() == {"a": "1", "c": "", "é": "ü"}
    assert full.event_timestamp() == due.timestamp() * 1_000
    assert full.publish_timestamp() < full.event_timestamp(), "it is not delayed a second time"
    assert (bare.partition_key(), bare.properties(), bare.event_timestamp()) == ("", {}, 0)
    assert (gone.partition_key(), gone.data()) == ("", b"")


def test_what_came_from_pulsar_has_its_ordering_key_and_time_again(root: str, pulsar: Broker, topic: str) -> None:
    """They are no properties for consumers."""
    delivered(root, "a", properties=[("a", "1"), (ORDERING_KEY, "o"), (EVENT_TIME, "7")])
    run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}"))
    (found,) = pulsar.read(topic)
    assert (found.properties(), found.ordering_key(), found.event_timestamp()) == ({"a": "1"}, "o", 7)


def test_what_a_client_said_of_a_message_is_said_to_consumers_of_pulsar(root: str, pulsar: Broker, topic: str) -> None:
    """Client and sink name what `inbox` has no column for alike; the stages between them copy columns."""
    how: dict[str, Any] = {
        "partition_key": "k",
        "ordering_key": "o",
        "event_timestamp": 7,
        "properties": {"a": "1", "é": ""},
    }
    with Client(root) as found:
        found.create_producer("t").send(b"sent", **how)
    (sent,) = inbox(root)
    delivered(root, "sent", message_key=sent["message_key"], properties=sent["properties"])
    run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}"))
    (came,) = pulsar.read(topic)
    assert came.data() == b"sent"
    assert {name: getattr(came, name)() for name in how} == how


def test_messages_come_in_the_order_of_deliveries_and_once(root: str, pulsar: Broker, topic: str) -> None:
    """Over several versions; a sink that is started again goes on."""
    for begin in range(0, 20, 5):
        delivered(root, *NAMES[begin : begin + 5])
        run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}", most=3))
    assert payloads(pulsar, topic) == NAMES


class Dying(PulsarTopic):
    """A connection whose process dies when it publishes for the second time: in the middle, or behind it."""

    def __init__(self, to: Destination, producer: str, place: str, when: str) -> None:
        """Connect."""
        super().__init__(to, producer, place)
        self._calls = iter(["first", when])

    def publish(self, rows: Sequence[Row], place: Place) -> None:
        """Die if it is time: the messages are in the broker, and nobody has noted it."""
        when = next(self._calls)
        super().publish(rows[:2] if when == "in the middle" else rows, place)
        if when != "first":
            self.confirm()
            raise Killed


@pytest.mark.parametrize("when", ["in the middle", "behind"])
@pytest.mark.parametrize("namespace", [DEDUPLICATED, TENANT])
def test_a_sink_that_dies_beside_a_publication_loses_nothing(
    root: str, pulsar: Broker, when: str, namespace: str
) -> None:
    """And doubles nothing where the broker drops what has an id that it knows."""
    topic = pulsar.create(f"dies-{when.replace(' ', '-')}", namespace=namespace)
    delivered(root, *NAMES)
    address = f"{pulsar.service}/{topic}"
    dying = sink(root, lambda to, producer, place: Dying(to, producer, place, when), address, most=4)
    assert dying.step()
    with pytest.raises(Killed):
        dying.step()
    run(sink(root, PulsarTopic, address, most=5))
    twice = [] if namespace == DEDUPLICATED else NAMES[4 : 6 if when == "in the middle" else 8]
    found = payloads(pulsar, topic)
    assert found == [*NAMES[:4], *twice, *NAMES[4:]]
    if twice:
        assert list(dict(zip(pulsar.ids(topic), found, strict=True)).values()) == NAMES, (
            "a consumer drops what has an id again"
        )


def test_of_two_that_publish_for_one_sink_the_younger_one_waits(root: str, pulsar: Broker, topic: str) -> None:
    """The broker knows one producer of a name; what both would send has the same ids."""
    delivered(root, *NAMES)
    older, younger = (sink(root, PulsarTopic, f"{pulsar.service}/{topic}", most=4) for _ in range(2))
    assert older.step()
    with pytest.raises(Exception, match="ProducerBusy"):
        younger.step()
    older.stop()
    run(younger)
    assert payloads(pulsar, topic) == NAMES


@pytest.mark.soak
def test_a_broker_that_is_killed_and_comes_back_has_all_messages_once(root: str, pulsar: Broker, topic: str) -> None:
    """The sink fails as long as it is away, and goes on from the noted place."""
    delivered(root, *NAMES[:10])
    loop = sink(root, PulsarTopic, f"{pulsar.service}/{topic}?send_timeout_millis=3000", most=4)
    assert loop.step()
    pulsar.kill()
    with pytest.raises(Exception, match=r"(?i)timeout"):
        loop.step()
    delivered(root, *NAMES[10:])
    pulsar.start()
    run_until_up(loop)
    assert payloads(pulsar, topic) == NAMES


def test_nothing_is_published_behind_a_message_that_is_too_large(root: str, pulsar: Broker, topic: str) -> None:
    """Else the broker would drop it later: its id would be behind others."""
    delivered(root, "a")
    delivered(root, "b", payload=bytes(6_000_000))
    delivered(root, "c")
    with pytest.raises(Refused, match="MessageTooBig"):
        run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}"))
    assert payloads(pulsar, topic) == ["a"]
    run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}", refused="reject"))
    assert payloads(pulsar, topic) == ["a", "c"]


def test_messages_of_a_key_are_in_one_partition_in_order(root: str, pulsar: Broker) -> None:
    """The one that Java's producers choose; those without a key are spread, and are in the same one when sent again."""
    topic = pulsar.create("parts", 3, DEDUPLICATED)
    for number in range(30):
        delivered(root, f"{number:02}", message_key=f"k{number % 5}" if number % 2 else None)
    address = f"{pulsar.service}/{topic}"
    first = sink(root, PulsarTopic, address, most=7)
    name, begun = first.name, places(root).get(first.name)
    run(first)
    del first
    # As after a power cut: what was taken up is noted, and how far it was published is not.
    assert begun is not None
    places(root).put(name, begun)
    run(sink(root, PulsarTopic, address, most=11))
    found = [payloads(pulsar, f"{topic}-partition-{number}") for number in range(3)]
    assert sorted(each for part in found for each in part) == [f"{number:02}" for number in range(30)]
    for number in range(1, 30, 2):
        key = f"k{number % 5}"
        assert f"{number:02}" in found[partition(key, TurnPlace(0, 0), 3)]
    assert all(part == sorted(part) for part in found)
    assert all(found)


def test_a_secret_of_the_environment_is_in_no_error(
    root: str, pulsar: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A name that is not known is told without its value, and the client writes nothing."""
    monkeypatch.setenv("DELAYLINE_PULSAR_TOKEN", "hunter2")
    monkeypatch.setenv("DELAYLINE_SINK_SERVERS", pulsar.service.removeprefix("pulsar://"))
    delivered(root, "a")
    run(sink(root, PulsarTopic, f"{pulsar.service}/{topic}"))
    monkeypatch.setenv("DELAYLINE_PULSAR_PASSWORD", "hunter2")
    loop: Any = sink(root, PulsarTopic, f"{pulsar.service}/{topic}")
    with pytest.raises(Exception, match="DELAYLINE_PULSAR_PASSWORD") as refused:
        loop.step()
    assert "hunter2" not in str(refused.value) + "".join(capfd.readouterr())
    assert payloads(pulsar, topic) == ["a"]
