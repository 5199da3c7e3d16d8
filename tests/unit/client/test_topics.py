"""Partitioned topics and patterns: who sends where, who gets what, and what is noticed when it comes later."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client.choices import ConsumerDeadLetterPolicy, ConsumerType, PartitionsRoutingMode
from pipeline.client.client import Client
from pipeline.client.consuming.registering import register
from pipeline.client.exceptions import InvalidConfiguration, InvalidTopicName, OperationNotSupported, Timeout
from pipeline.client.message import MessageId
from pipeline.client.subscribing import lines
from pipeline.client.subscribing.patterns import ConsumedTopics
from pipeline.client.subscribing.subscriptions import Subscription, subscribe, subscriptions
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.client.tables.partitions import partition_counts
from pipeline.config.errors import AlreadySubscribed, BadValue
from pipeline.delta.deltars import open_table
from pipeline.subscriptions.policies import Policies
from schemas import MESSAGES
from tests.support import consumed
from tests.support.client import message_row, put
from tests.support.producing import inbox

SHARED = ConsumerType.Shared
_PATIENCE_S = 10


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> consumed.World:
    """A warehouse where `t` has two partitions, and the service knows `s` of the second one."""
    monkeypatch.setattr(consumed, "TOPIC", "t-partition-1")
    made = consumed.World(str(tmp_path))
    create_partitioned_topic(made.root, "t", 2)
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: made.process())
    return made


def registered(root: str) -> list[tuple[str, str, str]]:
    """Topic, name and start of each subscription."""
    return [(each.topic, each.name, each.start) for each in subscriptions(root)]


def test_a_topic_that_becomes_a_partition_is_named(root: str) -> None:
    """It was swallowed without a word: by its messages, or by a subscription; others of such a name are not meant."""
    put(root, MESSAGES, message_row(1, 0, 0, "t-partition-0"), message_row(1, 0, 0, "it's-partition-9"))
    subscribe(root, Subscription("t-partition-2", "s"))
    subscribe(root, Subscription("t-partition-" + "9" * 5_000, "s"))
    assert create_partitioned_topic(root, "t", 2) == ["t-partition-0"]
    assert create_partitioned_topic(root, "t", 3) == ["t-partition-2"]
    assert create_partitioned_topic(root, "it's", 1) == []


def test_a_topic_has_the_partitions_that_it_was_given_and_may_get_more(root: str, client: Client) -> None:
    """Fewer would lose messages; what no stage looks at is no subscription."""
    assert client.get_topic_partitions("t") == ["t"]
    create_partitioned_topic(root, "t", 2)
    create_partitioned_topic(root, "t", 2)
    assert client.get_topic_partitions("t") == ["t-partition-0", "t-partition-1"]
    create_partitioned_topic(root, "t", 3)
    create_partitioned_topic(root, "it's", 1)
    assert partition_counts(root) == {"t": 3, "it's": 1}
    assert subscriptions(root) == []
    for topic, count in (("t", 2), ("u", 0), ("u", 10_001), ("t-partition-1", 2)):
        with pytest.raises(BadValue):
            create_partitioned_topic(root, topic, count)
    with pytest.raises(InvalidTopicName):
        create_partitioned_topic(root, " ", 1)


def test_messages_with_a_key_go_to_one_partition_and_others_take_turns(root: str, client: Client) -> None:
    """Or to a single one, when the program asks for that."""
    create_partitioned_topic(root, "t", 3)
    producer = client.create_producer("t")
    for _ in range(6):
        producer.send(b"turns")
    for number in range(40):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 5}")
    producer.flush()
    single = client.create_producer("t", message_routing_mode=PartitionsRoutingMode.UseSinglePartition)
    for _ in range(4):
        single.send(b"single")
    rows = inbox(root)
    turns = Counter(row["topic"] for row in rows if row["payload"] == b"turns")
    assert turns == {f"t-partition-{n}": 2 for n in range(3)}
    topics_of = {(row["message_key"], row["topic"]) for row in rows if row["message_key"]}
    assert len(topics_of) == 5
    assert len({topic for _, topic in topics_of}) > 1
    assert len({row["topic"] for row in rows if row["payload"] == b"single"}) == 1
    assert producer.topic() == "t"


def test_a_message_that_was_sent_names_its_partition(root: str, client: Client) -> None:
    """And each partition has numbers of its own."""
    create_partitioned_topic(root, "t", 2)
    with client.create_producer("t", "shop") as producer:
        sent = [producer.send(b"x") for _ in range(3)]
        assert [(each.partition(), each.topic_name()) for each in sent[:2]] == [
            (0, "t-partition-0"),
            (1, "t-partition-1"),
        ]
        assert producer.last_sequence_id() == 1
    assert client.create_producer("t", "shop").last_sequence_id() == 1


def test_a_producer_notices_partitions_that_come_later(root: str, client: Client) -> None:
    """Once a minute, or when the program asks; a producer that is closed looks no more."""
    create_partitioned_topic(root, "t", 1)
    producer, closed = client.create_producer("t"), client.create_producer("t")
    closed.close()
    create_partitioned_topic(root, "t", 2)
    assert {producer.send(b"x").partition() for _ in range(2)} == {0}
    client.refresh_topics()
    assert {producer.send(b"x").partition() for _ in range(2)} == {0, 1}
    assert len(closed._route.senders) == 1


@pytest.mark.parametrize("end", [Client.close, Client.shutdown])
def test_a_client_that_ended_looks_for_no_partitions(root: str, end: Callable[[Client], None]) -> None:
    """A program that makes clients again and again would have more threads each time."""
    create_partitioned_topic(root, "t", 1)
    client = Client(root)
    looking = client._looks[client.create_producer("t")]._thread
    assert looking.is_alive()
    end(client)
    looking.join(_PATIENCE_S)
    assert not looking.is_alive()


def test_one_consumer_gets_the_messages_of_all_partitions(world: consumed.World) -> None:
    """Each of them has the subscription, and they share one dead-letter topic."""
    with Client(world.root) as client:
        consumer = client.subscribe("t", "s", SHARED, dead_letter_policy=ConsumerDeadLetterPolicy(3))
        assert registered(world.root) == [(f"t-partition-{n}", "s", "latest") for n in range(2)]
        assert {each.policies.dead_letter_topic for each in subscriptions(world.root)} == {"t-s-DLQ"}
        world.run(3)
        world.dispatch.deliver((1, 0))
        world.run(1)
        message = consumer.receive(0)
        assert (message.topic_name(), message.message_id().partition()) == ("t-partition-1", 1)
        consumer.acknowledge(message)
        world.run(1)
        assert world.settle.open == 0


def test_a_partition_that_comes_while_consumers_are_away_is_theirs_from_its_first_message_on(root: str) -> None:
    """What was sent to it meanwhile was lost when they registered it as new, from `latest` on."""
    create_partitioned_topic(root, "t", 2)
    asked = Policies(ack=True, max_redeliveries=3, dead_letter_topic="t-s-DLQ", max_rate=5)
    for n in range(2):
        subscribe(root, Subscription(f"t-partition-{n}", "s", "key_shared", "latest", 500, asked))
    subscribe(root, Subscription("t-partition-1", "other"))
    subscribe(root, Subscription("t2-partition-1", "another topic's"))
    create_partitioned_topic(root, "t", 4)
    found = {each.named: each for each in subscriptions(root)}
    for n in (2, 3):
        line = found[f"t-partition-{n}", "s"]
        assert (line.type, line.start, line.tick_ms, line.policies.max_rate) == ("key_shared", "earliest", 500, 5)
        assert line.policies.dead_letter_topic == "t-s-DLQ"
        assert found[f"t-partition-{n}", "other"].start == "earliest"
    assert ("t-partition-2", "another topic's") not in found
    create_partitioned_topic(root, "t", 4)
    assert len(subscriptions(root)) == len(found)


def test_a_consumer_ends_the_subscription_of_partitions_that_it_has_not_noticed(world: consumed.World) -> None:
    """Nobody would consume them, and their messages would be kept for ever."""
    with Client(world.root) as client:
        consumer = client.subscribe("t", "s", SHARED)
        create_partitioned_topic(world.root, "t", 3)
        consumer.unsubscribe()
    assert registered(world.root) == []
    create_partitioned_topic(world.root, "t", 4)
    subscribe(world.root, Subscription("t-partition-3", "s"))
    create_partitioned_topic(world.root, "t", 5)
    assert registered(world.root) == [("t-partition-3", "s", "latest"), ("t-partition-4", "s", "earliest")]


def test_a_topic_that_is_divided_gives_its_subscriptions_to_the_partitions(root: str) -> None:
    """Its producers send to the partitions from then on, and its consumers come back later."""
    subscribe(root, Subscription("t", "s", start="latest"))
    create_partitioned_topic(root, "t", 2)
    assert registered(root) == [
        ("t", "s", "latest"),
        ("t-partition-0", "s", "earliest"),
        ("t-partition-1", "s", "earliest"),
    ]


def test_a_partition_that_an_older_version_did_not_register_begins_as_its_siblings_would_have(
    world: consumed.World,
) -> None:
    """Its consumers were away when the topic grew: the siblings have all that was sent meanwhile."""
    subscribe(world.root, Subscription("t-partition-0", "s", policies=Policies(ack=True)))
    with Client(world.root) as client:
        client.subscribe("t", "s", SHARED)
        assert registered(world.root)[-1] == ("t-partition-1", "s", "earliest")


def test_consumers_that_come_together_begin_in_all_partitions_where_they_say(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one took those that the first one had not come to for new ones, and got all that they hold."""
    create_partitioned_topic(root, "t", 3)
    names, writes = [f"t-partition-{n}" for n in range(3)], list[object]()

    def write(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - passed on
        write_deltalake(*args, **kwargs)
        writes.append(args)
        if len(writes) == 1:
            register(root, names, "s", SHARED, {})

    monkeypatch.setattr(lines, "write_deltalake", write)
    register(root, names, "s", SHARED, {})
    assert registered(root) == [(each, "s", "latest") for each in names]


def test_a_consumer_that_cannot_have_one_of_its_topics_registers_none(root: str, client: Client) -> None:
    """The others would keep messages that nobody consumes."""
    subscribe(root, Subscription("b", "s", "failover"))
    with pytest.raises(AlreadySubscribed):
        client.subscribe(["a", "b", "c"], "s", SHARED)
    assert registered(root) == [("b", "s", "latest")]


def test_a_consumer_notices_partitions_that_come_later_from_their_first_message_on(world: consumed.World) -> None:
    """What was sent before it noticed is not lost; unsubscribing ends all of them."""
    with Client(world.root) as client:
        consumer = client.subscribe("t", "s", SHARED)
        create_partitioned_topic(world.root, "t", 3)
        client.refresh_topics()
        client.refresh_topics()
        assert consumer.topic() == "t-partition-0,t-partition-1,t-partition-2"
        assert registered(world.root)[-1] == ("t-partition-2", "s", "earliest")
        consumer.unsubscribe()
        assert registered(world.root) == []
        create_partitioned_topic(world.root, "t", 4)
        client.refresh_topics()
        assert registered(world.root) == []


def test_a_pattern_finds_topics_by_their_whole_name(root: str) -> None:
    """Those with messages, with subscriptions, and with partitions."""
    put(root, MESSAGES, message_row(1, 0, 1, "shop-a"), message_row(1, 0, 1, "a-shop-b"))
    subscribe(root, Subscription("shop-b", "s"))
    create_partitioned_topic(root, "shop-c", 2)
    topics = ConsumedTopics(root, re.compile("shop-."), "s", None).look()
    assert topics == ["shop-a", "shop-b", "shop-c-partition-0", "shop-c-partition-1"]


def test_a_further_look_for_topics_reads_what_is_new(root: str) -> None:
    """It read all messages there are: a million topics took 13 s, once a minute."""
    put(root, MESSAGES, message_row(1, 0, 1, "shop-a"), message_row(1, 0, 1, "other"))
    consumed = ConsumedTopics(root, re.compile("shop-."), "s", None)
    there = set(consumed.look())
    for file in Path(root, "messages").glob("*.parquet"):
        file.unlink()
    assert consumed.look(there) == []
    put(root, MESSAGES, message_row(2, 0, 2, "shop-b"), message_row(2, 1, 2, "shop-a"), message_row(2, 2, 2, "more"))
    subscribe(root, Subscription("shop-c", "other"))
    assert consumed.look(there) == ["shop-b", "shop-c"]


def test_a_look_for_topics_that_was_away_for_long_begins_anew(root: str) -> None:
    """Maintenance has cut the log meanwhile."""
    consumed = ConsumedTopics(root, re.compile("shop-."), "s", None)
    put(root, MESSAGES, message_row(1, 0, 1, "shop-a"))
    assert consumed.look() == ["shop-a"]
    put(root, MESSAGES, message_row(2, 0, 2, "shop-b"))
    put(root, MESSAGES, message_row(3, 0, 2, "shop-c"))
    table = open_table(root, MESSAGES)
    table.create_checkpoint()
    for version in range(table.version()):
        Path(root, "messages", "_delta_log", f"{version:020d}.json").unlink()
    assert consumed.look({"shop-a"}) == ["shop-b", "shop-c"]


def test_a_consumer_of_a_pattern_gets_topics_that_come_later(world: consumed.World) -> None:
    """As the reference's does, also when nothing fits the pattern yet."""
    with Client(world.root) as client:
        early = client.subscribe(re.compile("te."), "early", SHARED)
        assert (early.topic(), early.is_connected()) == ("", False)
        with pytest.raises(Timeout):
            early.receive(0)
        consumer = client.subscribe(re.compile("t.*"), "s", SHARED)
        put(world.root, MESSAGES, message_row(9, 0, 1, "tea"), message_row(9, 0, 1, "coffee"))
        client.refresh_topics()
        assert consumer.topic() == "t-partition-0,t-partition-1,tea"
        assert early.topic() == "tea"
        assert ("tea", "early", "earliest") in registered(world.root)


def test_a_consumer_of_several_topics_follows_the_policies_of_each(world: consumed.World) -> None:
    """Those of the first one were followed for all of them."""
    more = Policies(ack=True, max_unacked=7, ack_timeout_ms=30_000)
    subscribe(world.root, Subscription("t-partition-0", "s", "shared", policies=Policies(ack=True)))
    subscribe(world.root, Subscription("t-partition-1", "s", "shared", policies=more))
    with Client(world.root) as client:
        consumer = client.subscribe(re.compile("t-partition-.|tea"), "s", SHARED)
        subscribe(world.root, Subscription("tea", "s", "shared", policies=replace(more, max_unacked=8)))
        client.refresh_topics()
        limits = [
            (topic_consumer.options.max_unacked, topic_consumer.options.unacked_messages_timeout_ms)
            for topic_consumer in consumer.topic_consumers
        ]
    assert limits == [(50_000, 0), (7, 30_000), (8, 30_000)]


def test_a_reader_reads_all_partitions_also_those_that_come_later(root: str, client: Client) -> None:
    """Each in its own order; an id is in one log, so it is no place of the reader."""
    create_partitioned_topic(root, "t", 1)
    reader = client.create_reader("persistent://public/default/t", MessageId.earliest)
    create_partitioned_topic(root, "t", 2)
    rows = [(1, 0, "t-partition-0"), (1, 1, "t-partition-0"), (1, 0, "t-partition-1"), (9, 9, "t")]
    put(root, MESSAGES, *(message_row(ledger, entry, 0, topic) for ledger, entry, topic in rows))
    client.refresh_topics()
    found = Counter[str]()
    while reader.has_message_available():
        message = reader.read_next(0)
        topic = message.topic_name()
        assert message.message_id().entry_id() == found[topic]
        found[topic] += 1
    full = "persistent://public/default/t-partition-"
    assert (found, reader.topic()) == ({f"{full}0": 2, f"{full}1": 1}, "persistent://public/default/t")
    reader.seek(0)
    assert reader.read_next(0).message_id().partition() in (0, 1)
    with pytest.raises(OperationNotSupported) as refused:
        reader.seek(message.message_id())
    assert "partitions" in refused.value.why
    assert client.create_reader("t-partition-1", MessageId.of("t", 1, 0)).topic() == "t-partition-1"


def test_dead_letters_that_come_back_to_their_topic_are_refused(root: str, client: Client) -> None:
    """One bad message went round without an end; also by way of another topic."""
    own = ConsumerDeadLetterPolicy(1, "t")
    with pytest.raises(InvalidConfiguration, match="dead_letter_topic"):
        client.subscribe("t", "s", SHARED, dead_letter_policy=own)
    subscribe(root, Subscription("t", "s", policies=Policies(ack=True, max_redeliveries=1, dead_letter_topic="u")))
    with pytest.raises(BadValue):
        subscribe(root, Subscription("u", "s", policies=Policies(ack=True, max_redeliveries=1, dead_letter_topic="t")))
    subscribe(root, Subscription("u", "s", policies=Policies(ack=True, max_redeliveries=1)))
    assert len(subscriptions(root)) == 2


def test_a_pattern_leaves_out_the_dead_letters_and_retries_of_its_own_consumer(root: str) -> None:
    """One poison message made sixteen topics within a minute."""
    letters, own = ConsumerDeadLetterPolicy(1), ("shop-a-s-DLQ", "shop-a-s-DLQ-s-DLQ", "shop-b-s-RETRY")
    for topic in ("shop-a", "shop-b", "shop-a-other-DLQ", "shop-lost", *own):
        put(root, MESSAGES, message_row(1, 0, 0, topic))
    pattern = re.compile("shop-.*")
    assert ConsumedTopics(root, pattern, "s", letters).look() == ["shop-a", "shop-a-other-DLQ", "shop-b", "shop-lost"]
    named = ConsumerDeadLetterPolicy(1, "shop-lost")
    assert ConsumedTopics(root, pattern, "s", named).look() == ["shop-a", "shop-a-other-DLQ", "shop-b"]
    assert ConsumedTopics(root, ["shop-a-s-DLQ"], "s", letters).look() == ["shop-a-s-DLQ"]
    assert ConsumedTopics(root, re.compile("shop-lost"), "s", named).look() == []


def test_a_topic_that_cannot_be_subscribed_keeps_no_new_topic_away(
    world: consumed.World,
) -> None:
    """No new topic came any more, and only the log said so."""
    with Client(world.root) as client:
        subscribe(world.root, Subscription("t-partition-1", "s", "shared"))
        consumer = client.subscribe(re.compile("t-partition-.*"), "s", SHARED)
        subscribe(world.root, Subscription("t-partition-7", "s", "exclusive"))
        subscribe(world.root, Subscription("t-partition-9", "other"))
        with pytest.raises(AlreadySubscribed):
            client.refresh_topics()
        assert consumer.topic().endswith("t-partition-9")
