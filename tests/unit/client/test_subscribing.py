"""Subscribing with a client: what it registers, what it changes, and what the consumer is that it gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import (
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
)
from pipeline.client.client import Client
from pipeline.client.exceptions import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidConfiguration,
    InvalidTopicName,
    PulsarException,
    SubscriptionNotFound,
    Timeout,
)
from pipeline.client.schema import StringSchema
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions, unsubscribe
from pipeline.config.errors import AlreadySubscribed, NoWarehouse
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import CONSUMER_EVENTS
from tests.support.consumed import World

SHARED: dict[str, Any] = {"consumer_type": ConsumerType.Shared}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A warehouse whose service has noticed subscription `s` of topic `t`."""
    made = World(str(tmp_path))
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: made.process())
    return made


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    """A client of it that waits for nobody."""
    with Client(world.root, operation_timeout_seconds=0) as made:
        yield made


def policies(root: str, topic: str = "t", name: str = "s") -> dict[str, str]:
    """The policies of a subscription as the registry has them, less since when it acknowledges."""
    (found,) = [each for each in subscriptions(root) if (each.topic, each.name) == (topic, name)]
    return {key: text for key, text in found.policies.as_map().items() if key != "ack_after"}


def test_messages_are_received_acknowledged_and_decoded(world: World, client: Client) -> None:
    """As a program of the reference does it."""
    consumer = client.subscribe("t", "s", **SHARED, schema=StringSchema())
    world.run(3)
    world.dispatch.deliver((1, 0), (1, 1))
    world.run(1)
    found = [consumer.receive(1_000), consumer.receive(1_000)]
    assert sorted(each.message_id().position for each in found) == [(1, 0), (1, 1)]
    assert all(isinstance(each.value(), str) for each in found)
    for each in found:
        consumer.acknowledge(each)
    world.run(1)
    assert world.settle.open == 0
    with pytest.raises(Timeout):
        consumer.receive(0)


def test_a_message_that_failed_comes_again_after_what_the_caller_stated(world: World, client: Client) -> None:
    """The delay of negative acknowledgements, in ms."""
    consumer = client.subscribe("t", "s", **SHARED, negative_ack_redelivery_delay_ms=7_000)
    world.run(3)
    world.dispatch.deliver((1, 0))
    world.run(1)
    consumer.negative_acknowledge(consumer.receive(1_000))
    world.run(1)
    said = query("SELECT after_ms FROM e WHERE kind = 'nack'", e=open_table(world.root, CONSUMER_EVENTS))
    assert [each["after_ms"] for each in said] == [7_000]


def test_a_subscription_that_is_not_there_is_registered_as_stated(world: World, client: Client) -> None:
    """Parameters that are left out have the defaults of the reference."""
    client.subscribe("t", "plain", **SHARED)
    client.subscribe(
        "t",
        "s",
        ConsumerType.KeyShared,
        initial_position=InitialPosition.Earliest,
        unacked_messages_timeout_ms=15_000,
        negative_ack_redelivery_delay_ms=900_000,
        dead_letter_policy=ConsumerDeadLetterPolicy(5, "graveyard", "mourners"),
        max_unacked_messages=10,
        tick_ms=64,
    )
    assert policies(world.root, name="plain") == {"ack": "true"}
    assert policies(world.root) == {
        "ack": "true",
        "ack_timeout_ms": "15000",
        "retry_min_ms": "900000",
        "retry_max_ms": "900000",
        "max_redeliveries": "5",
        "dead_letter_topic": "graveyard",
        "max_unacked": "10",
    }
    found = {(each.topic, each.name): (each.type, each.start, each.tick_ms) for each in subscriptions(world.root)}
    assert found == {
        ("graveyard", "mourners"): ("shared", "earliest", 1_000),
        ("t", "plain"): ("shared", "latest", 1_000),
        ("t", "s"): ("key_shared", "earliest", 64),
    }


def test_what_a_caller_states_changes_and_the_rest_stays(world: World, client: Client) -> None:
    """Consumers of one subscription need not all state the same, and none begins anew."""
    client.subscribe("t", "s", **SHARED, unacked_messages_timeout_ms=15_000)
    since = subscriptions(world.root)[0].policies.ack_after
    world.dispatch.release([(9, 9)])
    client.subscribe("t", "s", **SHARED, dead_letter_policy=ConsumerDeadLetterPolicy(3))
    client.subscribe("t", "s", **SHARED, initial_position=InitialPosition.Earliest)
    assert policies(world.root) == {"ack": "true", "ack_timeout_ms": "15000", "max_redeliveries": "3"}
    assert subscriptions(world.root)[0].policies.ack_after == since
    assert subscriptions(world.root)[0].start == "latest"


def test_a_consumer_keeps_the_limits_of_its_subscription(world: World, client: Client) -> None:
    """Also when it does not state them itself."""
    subscribe(world.root, Subscription("t", "s", policies=Policies(ack=True, max_unacked=1)))
    consumer = client.subscribe("t", "s", **SHARED)
    world.run(3)
    world.dispatch.deliver((1, 0), (1, 1))
    world.run(1)
    first = consumer.receive(0)
    with pytest.raises(Timeout):
        consumer.receive(0)
    consumer.acknowledge(first)
    world.run(1)
    assert consumer.receive(0).message_id() != first.message_id()


def test_type_and_tick_of_a_subscription_cannot_be_changed(world: World, client: Client) -> None:
    """They are fixed for its life; the line stays as it is."""
    subscribe(world.root, Subscription("t", "s"))
    options: dict[str, dict[str, Any]] = {
        "type shared, not failover": {"consumer_type": ConsumerType.Failover},
        "tick_ms 1000, not 5": {**SHARED, "tick_ms": 5},
    }
    for differs, each in options.items():
        with pytest.raises(AlreadySubscribed) as refused:
            client.subscribe("t", "s", **each)
        assert refused.value.found == differs
    assert subscriptions(world.root) == [Subscription("t", "s")]


def test_one_consumer_gets_the_messages_of_several_topics(world: World, client: Client) -> None:
    """Each of them has the subscription."""
    consumer = client.subscribe(["t", "u", "t"], "s", **SHARED)
    assert consumer.topic() == "t,u"
    assert [(each.topic, each.name) for each in subscriptions(world.root)] == [("t", "s"), ("u", "s")]
    world.run(3)
    world.dispatch.deliver((1, 0))
    world.run(1)
    assert consumer.receive(0).topic_name() == "t"


def test_who_unsubscribes_takes_the_subscription_out_of_the_registry(world: World, client: Client) -> None:
    """Of all topics of the consumer."""
    client.subscribe("t", "other", **SHARED)
    client.subscribe(["t", "u"], "s", **SHARED).unsubscribe()
    assert [(each.topic, each.name) for each in subscriptions(world.root)] == [("t", "other")]


def test_who_unsubscribes_from_several_topics_leaves_all_when_one_is_gone_already(world: World, client: Client) -> None:
    """What somebody else ended is told; of the others nothing would be kept for a consumer that is closed."""
    consumer = client.subscribe(["t", "u", "v"], "s", **SHARED)
    unsubscribe(world.root, "t", "s")
    with pytest.raises(SubscriptionNotFound) as raised:
        consumer.unsubscribe()
    assert (raised.value.topic, raised.value.subscription) == ("t", "s")
    assert subscriptions(world.root) == []


def test_a_client_that_is_closed_closes_its_consumers(world: World) -> None:
    """At the end of the block, or at once."""
    for end in (Client.close, Client.shutdown):
        client = Client(world.root)
        consumer = client.subscribe("t", "s", **SHARED)
        end(client)
        with pytest.raises(AlreadyClosed):
            consumer.receive(0)
        with pytest.raises(AlreadyClosed):
            client.subscribe("t", "s")


def test_an_exclusive_subscription_that_nobody_serves_is_said_to_be_so(client: Client) -> None:
    """The service does not run, or does not know the subscription yet: its consumer could get nothing."""
    with pytest.raises(Timeout):
        client.subscribe("t", "s")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("unacked_messages_timeout_ms", 10),
        ("negative_ack_redelivery_delay_ms", -1),
        ("tick_ms", 0),
        ("receiver_queue_size", -1),
        ("is_read_compacted", True),
        ("replicate_subscription_state_enabled", True),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused_before_anything_is_registered(
    world: World,
    client: Client,
    option: str,
    value: Any,  # noqa: ANN401 - of many types
) -> None:
    """The message names it."""
    with pytest.raises(InvalidConfiguration):
        client.subscribe("t", "s", **SHARED, **{option: value})
    assert subscriptions(world.root) == []


def test_defaults_that_are_spelled_out_are_taken(client: Client) -> None:
    """A program moves over by changing its import and its URL."""
    spelled: dict[str, Any] = {"key_shared_policy": ConsumerKeySharedPolicy(), "is_read_compacted": False}
    consumer = client.subscribe("t", "s", **SHARED, **spelled)
    assert (consumer.topic(), consumer.subscription_name()) == ("t", "s")


def test_topics_and_warehouses_that_are_not_there_are_told(client: Client, tmp_path: Path) -> None:
    """One family of errors has them all."""
    for topic in ("", [], ["t", " "]):
        with pytest.raises(InvalidTopicName):
            client.subscribe(topic, "s")
    with pytest.raises(NoWarehouse) as refused:
        Client(str(tmp_path / "nowhere")).subscribe("t", "s")
    assert isinstance(refused.value, PulsarException)
    assert issubclass(ConsumerBusy, PulsarException)
