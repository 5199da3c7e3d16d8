"""Topics by the names that the reference gives them: one topic for all of its names, shown as the program spells it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import ConsumerDeadLetterPolicy, ConsumerType, RegexSubscriptionMode
from pipeline.client.client import Client
from pipeline.client.commanding.commands import cancel
from pipeline.client.consuming.registering import register
from pipeline.client.insight.pending import pending, pending_by_key
from pipeline.client.insight.pendingrows import pending_rows
from pipeline.client.insight.trace import trace
from pipeline.client.message import MessageId
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.patterns import ConsumedTopics
from pipeline.client.subscribing.policysetting import policies_of, policy_history, set_policy, unset_policy
from pipeline.client.subscribing.subscriptions import Subscription, set_policies, subscribe, subscriptions, unsubscribe
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.client.tables.deliveries import Deliveries
from pipeline.client.tables.partitions import partition_counts
from pipeline.config.errors import BadValue
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import plain_topic
from schemas import MESSAGES
from tests.support import consumed
from tests.support.client import message_row, put
from tests.support.producing import inbox

SHARED = ConsumerType.Shared
FULL = "persistent://public/default/"


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        (f"{FULL}t", "t"),
        ("public/default/t", "t"),
        (f"{FULL}t-partition-0", "t-partition-0"),
        ("t", "t"),
        ("persistent://public/other/t", "persistent://public/other/t"),
        (f"non-{FULL}t", f"non-{FULL}t"),
        (f"{FULL}a/b", f"{FULL}a/b"),
        (FULL, FULL),
        ("public/default", "public/default"),
    ],
)
def test_a_name_in_the_default_namespace_is_the_topic_without_it(name: str, topic: str) -> None:
    """Two spellings were two topics, and a consumer of one got nothing of the other; all other names stay."""
    assert plain_topic(name) == topic


CALLS: dict[str, Callable[[str, Client, str], object]] = {
    "set_policies": lambda _, client, topic: client.set_policies(topic, "s", max_rate=5),
    "policies of a topic": lambda _, client, topic: client.set_policies(topic, fixed_delay_ms=5),
    "get_policies": lambda _, client, topic: client.get_policies(topic, "s").max_unacked,  # type: ignore[union-attr]
    "unset_policies": lambda _, client, topic: client.unset_policies(topic, "max_unacked", subscription_name="s"),
    "pause": lambda _, client, topic: client.pause(topic, "s"),
    "cancel": lambda _, client, topic: client.cancel(topic, key="k", dry_run=True).selection,
    "reschedule": lambda _, client, topic: (
        client.reschedule(topic, to=datetime(2030, 1, 1, tzinfo=UTC), key="k", dry_run=True).selection
    ),
    "shift": lambda _, client, topic: client.shift(topic, span=timedelta(1), key="k", dry_run=True).selection,
    "release_now": lambda _, client, topic: client.release_now(topic, key="k", dry_run=True).selection,
    "trace": lambda _, client, topic: [each.topic for each in client.trace(topic, position=(1, 0))],
    "last id": lambda _, client, topic: client.create_reader(topic, MessageId.earliest).read_next(0).position,
    "cancel by a function": lambda root, _, topic: cancel(root, topic, key="k", dry_run=True).selection,
    "trace by a function": lambda root, _, topic: [each.topic for each in trace(root, topic, position=(1, 0))],
    "pending": lambda root, _, topic: [each.topic for each in pending(root, topic).backlogs],
    "pending_rows": lambda root, _, topic: pending_rows(root, topic).num_rows,
    "pending_by_key": lambda root, _, topic: pending_by_key(root, topic),
    "set_policies by a function": lambda root, _, topic: set_policies(root, topic, "s", Policies(ack=True, max_rate=3)),
    "set_policy": lambda root, _, topic: set_policy(root, topic, "s", max_rate=6),
    "unset_policy": lambda root, _, topic: unset_policy(root, topic, "max_unacked", subscription="s"),
    "policies_of": lambda root, _, topic: policies_of(root, topic, "s"),
    "policy_history": lambda root, _, topic: len(policy_history(root, topic, "s")),
    "unsubscribe": lambda root, _, topic: unsubscribe(root, topic, "s"),
    "take": lambda root, _, topic: len(list(Deliveries(root).take(topic))),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two warehouses that are alike, each with a subscription and a message."""
    worlds = [consumed.World(str(tmp_path_factory.mktemp("w"))) for _ in range(2)]
    roots = [each.root for each in worlds]
    for world, root in zip(worlds, roots, strict=True):
        world.dispatch.deliver((1, 0))
        subscribe(root, Subscription("t", "s", policies=Policies(ack=True, max_unacked=9)))
        put(root, MESSAGES, message_row(1, 0, 5))
    return roots[0], roots[1]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_means_the_same_topic_by_each_of_its_names(made: tuple[str, str], call: str) -> None:
    """A program of the reference spells the namespace, commands and people do not."""
    answers = list[object]()
    for root, topic in zip(made, ("t", f"{FULL}t"), strict=True):
        with Client(root) as client:
            try:
                answers.append(CALLS[call](root, client, topic))
            except BadValue as refused:  # what waits cannot be chosen yet, since the job has not run
                answers.append(str(refused))
    assert answers[0] == answers[1]


def test_messages_and_subscriptions_are_those_of_the_plain_topic(root: str, client: Client) -> None:
    """Tables have one name for each topic, that of dead letters, too."""
    assert client.create_producer(f"{FULL}t").topic() == f"{FULL}t"
    client.create_producer(f"{FULL}t").send(b"x")
    send(root, [OutgoingMessage("public/default/t", b"y")])
    assert [row["topic"] for row in inbox(root)] == ["t", "t"]
    letters = ConsumerDeadLetterPolicy(1, f"{FULL}dead")
    register(root, ["t"], "s", SHARED, {"dead_letter_policy": letters})
    subscribe(root, Subscription(f"{FULL}u", "s", policies=Policies(ack=True, dead_letter_topic=f"{FULL}dead2")))
    assert not subscribe(root, Subscription("u", "s", policies=Policies(ack=True, dead_letter_topic="dead2")))
    found = {each.topic: each.policies.dead_letter_topic for each in subscriptions(root)}
    assert found == {"t": "dead", "u": "dead2"}


def test_partitions_are_spelled_as_their_topic_is(root: str, client: Client) -> None:
    """The same topic has the same partitions, by whichever name they are asked for."""
    create_partitioned_topic(root, f"{FULL}t", 2)
    assert partition_counts(root) == {"t": 2}
    assert client.get_topic_partitions("t") == ["t-partition-0", "t-partition-1"]
    for name in (f"{FULL}t", "public/default/t"):
        assert client.get_topic_partitions(name) == [f"{FULL}t-partition-0", f"{FULL}t-partition-1"]
    assert client.get_topic_partitions(f"{FULL}u") == [f"{FULL}u"]
    assert client.create_producer(f"{FULL}t").send(b"x").partition() == 0


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("t", "t"),
        (f"{FULL}t", f"{FULL}t"),
        (["public/default/t"], f"{FULL}t"),
        (re.compile(f"{FULL}t"), f"{FULL}t"),
        (re.compile("public/default/."), f"{FULL}t"),
        (re.compile("."), "t"),
    ],
    ids=str,
)
def test_a_message_names_its_topic_as_its_consumer_spells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str | list[str] | re.Pattern[str], shown: str
) -> None:
    """A program compares it with the name that it has; its ids can be given back, by either name."""
    world = consumed.World(str(tmp_path))
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: world.process())
    put(world.root, MESSAGES, message_row(1, 0, 5))
    with Client(world.root) as client:
        consumer = client.subscribe(asked, "s", SHARED)
        world.run(3)
        world.dispatch.deliver((1, 0), (1, 1))
        world.run(1)
        first, second = consumer.receive(0), consumer.receive(0)
        assert (consumer.topic(), first.topic_name(), first.message_id().topic_name()) == (shown, shown, shown)
        consumer.acknowledge(MessageId.deserialize(first.message_id().serialize(), f"{FULL}t"))
        consumer.acknowledge(MessageId.deserialize(second.message_id().serialize(), "t"))
        world.run(1)
        assert world.settle.open == 0


@pytest.mark.parametrize(
    ("mode", "topics"),
    [
        (RegexSubscriptionMode.PersistentOnly, ["shop-a"]),
        (RegexSubscriptionMode.NonPersistentOnly, [f"non-{FULL}shop-b"]),
        (RegexSubscriptionMode.AllTopics, [f"non-{FULL}shop-b", "shop-a"]),
    ],
)
def test_a_pattern_finds_the_topics_of_its_mode(root: str, mode: RegexSubscriptionMode, topics: list[str]) -> None:
    """What a broker would keep in memory only is a topic by its whole name, which is kept like all others."""
    for topic in ("shop-a", f"non-{FULL}shop-b", "persistent://public/other/shop-c"):
        put(root, MESSAGES, message_row(1, 0, 1, topic))
    assert ConsumedTopics(root, re.compile("public/default/shop-."), "s", None, mode).look() == topics
