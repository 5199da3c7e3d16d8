"""A sink and a real broker: what was published is there once, in order, whatever dies."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.config.errors import SinkPlaceGone
from pipeline.delta.deltars import open_table, query
from pipeline.sinks.kafka import KafkaTopic
from pipeline.sinks.running import connected
from pipeline.sinks.topic import Refused
from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.sinkplaces import TurnPlace
from schemas import REJECTED_DISPATCH
from tests.support.client import new_warehouse
from tests.support.invoked import output
from tests.support.pages import span_of
from tests.support.sinks import Killed, delivered, run, run_until_up, sink

if TYPE_CHECKING:
    from benchmarks.support.kafka import Broker

NAMES = [f"m{number:02}" for number in range(20)]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A new warehouse."""
    new_warehouse(str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def address(kafka: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic."""
    kafka.create(request.node.name)
    return f"kafka://{kafka.servers}/{request.node.name}"


def payloads(kafka: Broker, address: str) -> list[str]:
    """What a consumer reads that is shown committed messages only."""
    return [message.value().decode() for message in kafka.read(address.rpartition("/")[2])]


def test_a_record_has_the_key_the_payload_and_the_properties_of_the_message(
    root: str, kafka: Broker, address: str
) -> None:
    """Each NULL stays one, an empty text stays empty, and the time is that of the publication."""
    delivered(root, "full", message_key="k", properties=[("a", "1"), ("b", None), ("c", "")])
    delivered(root, "bare")
    delivered(root, "gone", message_key="", payload=None)
    run(sink(root, KafkaTopic, address))
    full, bare, gone = kafka.read(address.rpartition("/")[2])
    assert (full.key(), full.value(), full.headers()) == (b"k", b"full", [("a", b"1"), ("b", None), ("c", b"")])
    assert (bare.key(), bare.value(), bare.headers()) == (None, b"bare", None)
    assert (gone.key(), gone.value()) == (b"", None)
    assert full.timestamp()[1] > 1_700_000_000_000, "the message was due in 1970"


def test_messages_come_in_the_order_of_deliveries_and_once(root: str, kafka: Broker, address: str) -> None:
    """Over several versions and transactions; a sink that is started again goes on."""
    for begin in range(0, 20, 5):
        delivered(root, *NAMES[begin : begin + 5])
        run(sink(root, KafkaTopic, address, most=3))
    assert payloads(kafka, address) == NAMES


def test_a_message_as_large_as_the_warehouse_takes_is_published_where_the_topic_takes_it(
    root: str, kafka: Broker, address: str
) -> None:
    """The client has a limit of its own, of a million bytes. Where the topic takes less, the others are published."""
    kafka.create("roomy", max_message_bytes="10000000")
    delivered(root, *NAMES[:2])
    delivered(root, "large", payload=os.urandom(2_000_000))
    delivered(root, *NAMES[2:4])
    run(sink(root, partial(connected, root), f"kafka://{kafka.servers}/roomy", refused="reject"))
    run(sink(root, partial(connected, root), address, refused="reject"))
    assert [len(message.value()) for message in kafka.read("roomy")] == [3, 3, 2_000_000, 3, 3]
    assert payloads(kafka, address) == NAMES[:4]
    (row,) = query("SELECT reason, subscription FROM t", t=open_table(root, REJECTED_DISPATCH))
    assert row == {"reason": "refused_by_broker", "subscription": "s"}
    delivered(root, "large", payload=os.urandom(2_000_000))
    stopped, topic = sink(root, partial(connected, root), address), address.rpartition("/")[2]
    with pytest.raises(Refused, match="MSG_SIZE_TOO_LARGE") as refused:
        run(stopped)
    stopped.failed(refused.value)
    assert "MSG_SIZE_TOO_LARGE" in output(root, "sinks")
    delivered(root, *NAMES[4:6])
    kafka.set(topic, **{span_of("kafka.md", "max.message"): "10000000"})
    run_until_up(stopped)
    assert [len(message.value()) for message in kafka.read(topic)] == [*[3] * 4, 2_000_000, 3, 3]


class Dying(KafkaTopic):
    """A connection whose process dies when it commits messages for the second time: before that, or behind it."""

    def __init__(self, to: Destination, producer: str, group: str, when: str) -> None:
        """Wrap the commit."""
        super().__init__(to, producer, group)
        made: Any = self._producer
        commit, calls = made.commit_transaction, iter(["of the place", "first", when])

        class Wrapped:
            def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - of the client
                return getattr(made, attribute)

            def commit_transaction(self, *args: Any) -> None:  # noqa: ANN401 - of the client
                now = next(calls)
                if now == "before":
                    made.flush()
                    raise Killed
                commit(*args)
                if now == "behind":
                    raise Killed

        self._producer = Wrapped()

    def close(self) -> None:
        """A dead process closes nothing."""


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_sink_that_dies_beside_its_commit_loses_and_doubles_nothing(root: str, kafka: Broker, when: str) -> None:
    """Before it, the messages were in the broker already, uncommitted; behind it, nothing here knows of it."""
    topic = f"dies-{when}"
    kafka.create(topic)
    delivered(root, *NAMES)
    address = f"kafka://{kafka.servers}/{topic}"
    dying = sink(root, lambda to, producer, group: Dying(to, producer, group, when), address, most=4)
    assert dying.step()
    with pytest.raises(Killed):
        dying.step()
    run(sink(root, KafkaTopic, address, most=4))
    assert payloads(kafka, address) == NAMES


def test_of_two_that_publish_for_one_sink_the_older_one_is_stopped_by_the_broker(
    root: str, kafka: Broker, address: str
) -> None:
    """A process that was thought dead wakes up in the middle of its transaction."""
    delivered(root, *NAMES)
    older, younger = (sink(root, KafkaTopic, address, most=4) for _ in range(2))
    assert older.step()
    assert younger.step()
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        older.step()
    run(younger)
    assert payloads(kafka, address) == NAMES


@pytest.mark.soak
def test_a_broker_that_is_killed_and_comes_back_has_all_messages_once(root: str, kafka: Broker, address: str) -> None:
    """The sink fails as long as it is away, and goes on from the committed place."""
    delivered(root, *NAMES[:10])
    # A transaction waits for the broker for so long.
    loop = sink(root, KafkaTopic, f"{address}?transaction.timeout.ms=5000", most=4)
    assert loop.step()
    kafka.kill()
    with pytest.raises(Exception, match=r".*"):
        loop.step()
    delivered(root, *NAMES[10:])
    kafka.start()
    run_until_up(loop)
    assert payloads(kafka, address) == NAMES


def test_a_place_that_the_broker_has_forgotten_stops_the_sink(root: str, kafka: Broker, address: str) -> None:
    """It would begin anew and publish all a second time."""
    delivered(root, *NAMES)
    run(sink(root, KafkaTopic, address))
    topic = address.rpartition("/")[2]
    kafka.delete(topic)
    kafka.create(topic)
    delivered(root, "more")
    with pytest.raises(SinkPlaceGone, match="forgotten"):
        run(sink(root, KafkaTopic, address))


def test_a_new_connection_finds_the_place_with_the_messages(kafka: Broker, address: str) -> None:
    """The place is a turn and the deliveries of it; both are in the transaction."""
    to = Destination.parse(address)
    first = KafkaTopic(to, "producer", "group")
    assert first.place() is None
    place = TurnPlace(1_800_000_000_000, 3)
    first.publish([(place, {"message_key": None, "payload": b"x", "properties": None})], place)
    assert KafkaTopic(to, "producer", "group").place() == place
    assert payloads(kafka, address) == ["x"]
