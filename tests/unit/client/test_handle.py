"""What `send` returns names the message, from the moment it is sent on, in every call that takes an id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client import aio
from pipeline.client.choices import ConsumerType, InitialPosition
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import InvalidMessage, OperationNotSupported, Timeout
from pipeline.client.insight import facts
from pipeline.client.message import MessageId
from pipeline.client.producing.inbox import OutgoingMessage, rows_of_messages, send
from pipeline.client.subscribing.topics import create_partitioned_topic
from pipeline.client.tables.topiclog import TopicLog
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import open_table, path_of
from pipeline.testing.warehouse import VirtualWarehouse, warehouse
from schemas import DELIVERIES, IDENTITY, INBOX, MESSAGES, REJECTED_INGEST
from tests.support.older import take_columns

LATER = timedelta(minutes=30)


@pytest.fixture
def world() -> Iterator[VirtualWarehouse]:
    """A warehouse whose clock stands."""
    with warehouse() as made:
        yield made


@pytest.fixture
def client(world: VirtualWarehouse) -> Client:
    """A client of it."""
    return world.client()


@pytest.fixture
def consumer(client: Client) -> Consumer:
    """A consumer of `orders`."""
    return client.subscribe("orders", "s", ConsumerType.Shared, initial_position=InitialPosition.Earliest)


def received(world: VirtualWarehouse, consumer: Consumer) -> list[bytes]:
    """What has come, acknowledged."""
    world.run_until_idle()
    found = []
    while (message := consumer.next_message(0)) is not None:
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def test_it_is_the_id_with_which_the_message_is_received(
    world: VirtualWarehouse, client: Client, consumer: Consumer
) -> None:
    """Also as a key of a dictionary, as bytes, among those of other topics, and by a reader of the log."""
    producer, other = client.create_producer("orders", "shop"), client.create_producer("bills", "shop")
    sent = {producer.send(b"%d" % number): b"%d" % number for number in range(3)}
    assert other.send(b"0") not in sent
    world.run_until_idle()
    reader = client.create_reader("orders", MessageId.earliest, delayed=False)
    for found in (consumer, reader):
        for _ in range(3):
            message = found.next_message(0) if isinstance(found, Consumer) else found.read_next(0)
            assert message is not None
            assert sent[message.message_id()] == message.data()
            assert sent[MessageId.deserialize(message.message_id().serialize())] == message.data()
            assert message.producer_name() == "shop"
    assert consumer.get_last_message_id() == list(sent)[-1]
    assert sorted(sent) == list(sent)


def test_it_names_a_message_to_commands(world: VirtualWarehouse, client: Client, consumer: Consumer) -> None:
    """At once after it was sent, kept as bytes or as the two values by which the producer knows it."""
    producer = client.create_producer("orders", "shop")
    cancelled, now, sooner, later, _ = (producer.send(b"%d" % each, deliver_after=LATER) for each in range(5))
    assert client.cancel("orders", message_id=cancelled).selection.count == 1
    assert client.cancel("orders", message_id=cancelled).selection.count == 0
    client.release_now("orders", "s", message_id=MessageId.deserialize(now.serialize()))
    client.shift("orders", message_id=MessageId.sent("orders", "shop", 2), span=timedelta(minutes=-10))
    client.reschedule("orders", message_id=later, to=world.now + timedelta(hours=1))
    assert received(world, consumer) == [b"1"]
    world.advance(minutes=20)
    assert received(world, consumer) == [b"2"]
    world.advance(minutes=10)
    assert received(world, consumer) == [b"4"]
    world.advance(minutes=30)
    assert received(world, consumer) == [b"3"]
    assert {each.asked for each in client.commands()} == {f"message shop:{number}" for number in range(4)}
    (history,) = client.trace("orders", message_id=sooner)
    assert [each.state for each in history.states] == ["settled"]


def test_it_names_a_place_and_a_message_to_acknowledge(
    world: VirtualWarehouse, client: Client, consumer: Consumer
) -> None:
    """A consumer and a reader go there; what is acknowledged by it does not come again."""
    producer = client.create_producer("orders")
    ids = [producer.send(b"%d" % number) for number in range(4)]
    assert [consumer.receive(30_000).data() for _ in ids] == [b"0", b"1", b"2", b"3"]
    for each in ids[:3]:
        consumer.acknowledge(each)
    consumer.negative_acknowledge(ids[3], 60_000)
    consumer.redeliver_unacknowledged_messages()
    world.advance(minutes=2)
    assert received(world, consumer) == [b"3"]
    reader = client.create_reader("orders", ids[1], delayed=False)
    assert reader.read_next(0).data() == b"2"
    reader.seek(ids[2])
    assert reader.read_next(0).data() == b"3"
    consumer.seek(ids[2])
    assert received(world, consumer)[-1] == b"3"


def test_it_finds_a_message_in_its_partition(world: VirtualWarehouse, client: Client) -> None:
    """Each partition counts by itself; a command to the topic reaches the partition of the message."""
    create_partitioned_topic(world.root, "orders", 3)
    consumer = client.subscribe("orders", "s", ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    producer = client.create_producer("orders", "shop")
    ids = [producer.send(b"%d" % number, deliver_after=LATER) for number in range(6)]
    assert len(set(ids)) == 6
    assert client.cancel("orders", message_id=ids[4]).selection.count == 1
    world.advance(minutes=30)
    assert sorted(received(world, consumer)) == [b"0", b"1", b"2", b"3", b"5"]


def test_a_program_that_sends_again_has_the_handle_of_what_it_sent_before(
    world: VirtualWarehouse, client: Client, consumer: Consumer
) -> None:
    """After a crash it knows neither when that was, nor whether it was."""
    client.create_producer("orders", "shop").send(b"0", sequence_id=7, deliver_after=LATER)
    world.advance(minutes=1)
    again = world.client().create_producer("orders", "shop").send(b"0", sequence_id=7, deliver_after=LATER)
    client.cancel("orders", message_id=again)
    world.advance(hours=1)
    assert received(world, consumer) == []


def test_any_writer_may_name_its_messages(world: VirtualWarehouse, client: Client, consumer: Consumer) -> None:
    """Two columns of the inbox, by any engine."""
    rows = rows_of_messages([OutgoingMessage("orders", b"%d" % each, deliver_after_ms=60_000) for each in range(2)])
    names = {"producer_name": pa.array(["batch"] * 2), "sequence_id": pa.array([10, 11])}
    for name, column in names.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    write_deltalake(path_of(world.root, INBOX), rows, mode="append")
    client.cancel("orders", message_id=MessageId.sent("orders", "batch", 11))
    world.advance(minutes=2)
    assert received(world, consumer) == [b"0"]


def test_a_delay_counts_from_the_call_and_not_from_when_a_job_takes_the_message(world: VirtualWarehouse) -> None:
    """A job that was down for an hour was an hour late."""
    other = OutgoingMessage("orders", b"1", world.now - timedelta(hours=2), deliver_after_ms=60_000)
    send(world.root, [OutgoingMessage("orders", b"0", deliver_after_ms=60_000), other])
    rows = open_table(world.root, INBOX).to_pyarrow_table().sort_by("payload")
    assert rows.column("publish_time").to_pylist() == [world.now, world.now - timedelta(hours=2)]


def test_what_ingest_refuses_is_said_with_the_reason(
    world: VirtualWarehouse, client: Client, consumer: Consumer
) -> None:
    """Who waits for its position is not kept waiting."""
    client.set_policies("orders", max_delay_ms=1_000)
    world.run_until_idle()
    refused = client.create_producer("orders").send(b"", deliver_after=LATER)
    with pytest.raises(InvalidMessage, match="max_delay_exceeded"):
        client.cancel("orders", "s", message_id=refused)
    (history,) = client.trace("orders", message_id=refused)
    assert [each.what for each in history.steps] == ["sent", "refused"]
    with pytest.raises(InvalidMessage, match="max_delay_exceeded"):
        consumer.acknowledge(refused)


def test_it_names_a_message_of_no_other_topic(client: Client, consumer: Consumer) -> None:
    """Nor is anything else an id."""
    sent = client.create_producer("bills").send(b"")
    for wrong in (sent, "shop:7", 7):
        with pytest.raises(BadValue, match="message_id"):
            client.cancel("orders", message_id=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="message_id"):
            client.trace("orders", message_id=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        consumer.acknowledge(sent)


def test_who_waits_for_a_job_that_does_not_run_is_told_so(root: str) -> None:
    """And the history of the message says that it was sent."""
    with Client(root) as client:
        sent = client.create_producer("orders").send(b"")
        with pytest.raises(Timeout, match="no job has run"):
            TopicLog(root, "orders").position_of(sent, timeout_s=0)
        (history,) = client.trace("orders", message_id=sent)
        assert [each.what for each in history.steps] == ["sent"]


def test_a_warehouse_of_an_earlier_version_takes_messages(root: str) -> None:
    """Its inbox gets the two columns when its job starts the next time."""
    take_columns(root, INBOX, IDENTITY)
    with Client(root) as client:
        client.create_producer("orders").send(b"pay")
    assert open_table(root, INBOX).to_pyarrow_table().column("payload").to_pylist() == [b"pay"]


def test_it_blocks_no_event_loop(world: VirtualWarehouse) -> None:
    """The position is looked up in a thread."""

    async def program() -> None:
        async with aio.Client(world.root) as client:
            consumer = await client.subscribe("orders", "s", ConsumerType.Shared)
            producer = await client.create_producer("orders")
            sent = await producer.send(b"pay")
            message = await asyncio.wait_for(consumer.receive(), 30)
            assert message.message_id() == sent
            await consumer.acknowledge(sent)

    asyncio.run(program())


def test_an_id_without_its_partition_is_looked_for_in_all_of_them(world: VirtualWarehouse, client: Client) -> None:
    """One that several have is refused; bytes of an id know the partition, whatever topic a program names."""
    create_partitioned_topic(world.root, "orders", 3)
    client.subscribe("orders", "s", ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    producer = client.create_producer("orders", "shop")
    ids = [producer.send(b"%d" % number, deliver_after=LATER) for number in range(4)]
    assert client.cancel("orders", message_id=MessageId.sent("orders", "shop", 1)).selection.count == 1
    with pytest.raises(InvalidMessage, match="orders-partition-0, orders-partition-1"):
        client.cancel("orders", message_id=MessageId.sent("orders", "shop", 0))
    kept = MessageId.deserialize(ids[1].serialize(), "orders")
    assert client.cancel("orders", message_id=kept).selection.count == 1
    (history,) = client.trace("orders", message_id=MessageId.sent("orders", "shop", 1))
    assert history.topic == ids[3].topic_name()


def test_it_names_a_message_of_a_topic_that_was_divided_since(
    world: VirtualWarehouse, client: Client, consumer: Consumer
) -> None:
    """It is in the log of the topic itself, whose partitions may have another one of the same name and number."""
    producer = client.create_producer("orders", "shop")
    before = [producer.send(b"%d" % number, deliver_after=LATER) for number in range(2)]
    create_partitioned_topic(world.root, "orders", 2)
    world.advance(seconds=1)
    partitions = client.subscribe("orders", "s", ConsumerType.Shared)
    again = world.client().create_producer("orders", "shop")
    after = [again.send(b"p%d" % number, deliver_after=LATER) for number in range(4)]
    for each in before:
        (history,) = client.trace("orders", message_id=each)
        assert history.topic == "orders"
    assert client.cancel("orders", "s", message_id=before[0]).selection.count == 1
    assert client.cancel("orders", "s", message_id=after[1]).selection.count == 1
    world.advance(minutes=31)
    assert received(world, consumer) == [b"1"]
    assert sorted(received(world, partitions)) == [b"p0", b"p2", b"p3"]


def one_trace(client: Client, message_id: MessageId) -> str:
    """The only history of an id, by the last thing that happened."""
    (history,) = client.trace("orders", message_id=message_id)
    return history.steps[-1].what


def test_it_traces_a_message_of_a_partition_before_and_while_ingest_takes_it(
    world: VirtualWarehouse, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name and number, too, which do not say the partition; once, also when it is in the inbox and in the log."""
    create_partitioned_topic(world.root, "orders", 2)
    producer = client.create_producer("orders", "shop")
    # The stages wait meanwhile.
    with world._lock:
        sent = producer.send(b"0", deliver_after=LATER)
        ids = [sent, MessageId.sent("orders", "shop", 0)]
        assert [one_trace(client, each) for each in ids] == ["sent", "sent"]
        waiting = list(facts._in_inbox(world.root, {"topic": sent.topic_name(), "producer_name": "shop"}))
    world.run_until_idle()
    with monkeypatch.context() as patch:
        patch.setattr(facts, "_in_inbox", lambda _, meant: waiting if meant["topic"] == sent.topic_name() else [])
        assert [one_trace(client, each) for each in ids] == ["accepted", "accepted"]
    assert [one_trace(client, each) for each in ids] == ["accepted", "accepted"]


def test_an_id_that_no_log_has_is_refused_at_once(world: VirtualWarehouse, client: Client, consumer: Consumer) -> None:
    """And what a consumer had is not lost by a seek to it."""
    client.create_producer("orders", "shop").send(b"0")
    world.run_until_idle()
    unknown = MessageId.sent("orders", "shop", 99)
    with pytest.raises(InvalidMessage, match="one that the log of its topic has"):
        client.cancel("orders", message_id=unknown)
    with pytest.raises(InvalidMessage, match="one that the log of its topic has"):
        consumer.seek(unknown)
    assert received(world, consumer) == [b"0"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("", 0), ("x" * 20_000, 0), (5, 0), ("shop", "1"), ("shop", True), ("shop", -1), ("shop", 1 << 70)],
)
def test_an_id_has_the_name_of_a_producer_and_a_number(name: Any, number: Any) -> None:  # noqa: ANN401 - what is none
    """What it is made of goes into queries."""
    with pytest.raises(BadValue):
        MessageId.sent("orders", name, number)


def test_a_warehouse_of_an_earlier_version_is_read(world: VirtualWarehouse, client: Client) -> None:
    """Its log does not know who sent a message: only ids of `send` cannot be used, and it is said why."""
    sent = client.create_producer("orders").send(b"0")
    world.run_until_idle()
    for table in (INBOX, MESSAGES, DELIVERIES, REJECTED_INGEST):
        take_columns(world.root, table, IDENTITY)
    with Client(world.root) as later:
        reader = later.create_reader("orders", MessageId.earliest)
        assert reader.read_next(0).data() == b"0"
        assert later.create_reader("orders", MessageId.latest).has_message_available() is False
        for call in (partial(later.cancel, "orders"), partial(later.trace, "orders")):
            with pytest.raises(OperationNotSupported, match="earlier version"):
                call(message_id=sent)
