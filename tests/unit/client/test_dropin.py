"""What programs of the reference do and expect: errors of arguments, messages without a value, routers."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import public as delayline
from pipeline.client import schemadoor as schema
from pipeline.client.choices import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode
from pipeline.client.client import Client
from pipeline.client.consuming.opening import new_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.exceptions import InvalidConfiguration, InvalidMessage, OperationNotSupported, PulsarException
from pipeline.client.message import Message, MessageId
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.schema import JsonSchema, Schema, StringSchema
from pipeline.client.subscribing.topics import create_partitioned_topic
from schemas import MESSAGES
from state import SubscriptionType
from tests.support import consumed
from tests.support.client import message_row, put
from tests.support.producing import inbox

EARLIEST = MessageId.earliest
STICKY = KeySharedMode.Sticky


def calling(method: str, *given: object, **how: object) -> Callable[[Any], object]:
    """Calls a method of a client."""
    return lambda client: getattr(client, method)(*given, **how)


OF_A_CLIENT: dict[str, Callable[[Any], object]] = {
    "topic of a producer": lambda client: client.create_producer(None),
    "topic of a consumer": lambda client: client.subscribe(None, "s"),
    "topic of a reader": lambda client: client.create_reader(None, EARLIEST),
    "pattern of bytes": lambda client: client.subscribe(re.compile(b"t"), "s"),
    "subscription": lambda client: client.subscribe("t", None),
    "type": lambda client: client.subscribe("t", "s", consumer_type=None),
    "schema": lambda client: client.create_producer("t", schema=bytes),
    "begin": lambda client: client.create_reader("t", None),
    "address": lambda _: Client("pulsar://localhost:6650"),
    **{
        f"producer's {name}": calling("create_producer", "t", **{name: value})
        for name, value in {
            "producer_name": 5,
            "initial_sequence_id": "test",
            "send_timeout_millis": "test",
            "compression_type": None,
            "max_pending_messages": "test",
            "block_if_queue_full": "test",
            "batching_enabled": "test",
            "batching_max_allowed_size_in_bytes": "test",
            "batching_max_publish_delay_ms": "test",
        }.items()
    },
    **{
        f"consumer's {name}": calling("subscribe", "t", "s", **{name: value})
        for name, value in {
            "receiver_queue_size": "test",
            "consumer_name": 5,
            "unacked_messages_timeout_ms": "test",
            "broker_consumer_stats_cache_time_ms": "test",
            "initial_position": "earliest",
            "dead_letter_policy": 3,
            "key_shared_policy": ConsumerKeySharedPolicy(STICKY, sticky_ranges=[(0, 65_535)]),
        }.items()
    },
    **{
        f"reader's {name}": calling("create_reader", "t", EARLIEST, **{name: value})
        for name, value in {"receiver_queue_size": -1, "reader_name": 5, "start_message_id_inclusive": 1}.items()
    },
}
OF_A_MESSAGE: dict[str, Any] = {
    "properties": "test",
    "partition_key": 5,
    "sequence_id": "test",
    "replication_clusters": 5,
    "disable_replication": "test",
    "event_timestamp": "test",
    "deliver_at": "test",
    "deliver_after": "test",
}


@pytest.mark.parametrize("call", OF_A_CLIENT)
def test_an_argument_of_another_kind_is_a_value_error_at_the_call(client: Client, call: str) -> None:
    """A program that expects the reference's error caught nothing; ours is caught, too."""
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its type is what is tested
        OF_A_CLIENT[call](client)
    assert isinstance(refused.value, PulsarException)


@pytest.mark.parametrize("name", OF_A_MESSAGE)
def test_so_is_what_is_said_of_a_message(root: str, client: Client, name: str) -> None:
    """Nothing is sent."""
    with pytest.raises(ValueError):  # noqa: PT011 - the same
        client.create_producer("t").send(b"x", **{name: OF_A_MESSAGE[name]})
    assert inbox(root) == []


def test_a_content_that_the_schema_does_not_know_is_a_type_error(client: Client) -> None:
    """As there."""
    with pytest.raises(TypeError):
        client.create_producer("t").send(5)
    with pytest.raises(TypeError):
        client.create_producer("t", schema=JsonSchema(Order)).send({"id": 1})


@pytest.mark.parametrize(
    "ranges",
    [None, [], [(0, 65_536)], [(-1, 5)], [(9, 5)], [(0, 100), (50, 150)], [(0, 9), (9, 12)], [(0, 1, 2)]],
    ids=str,
)
def test_ranges_of_hashes_that_cannot_be_are_refused(ranges: Any) -> None:  # noqa: ANN401 - what a program may give
    """As there; those that can be are kept, and refused when somebody subscribes."""
    with pytest.raises(InvalidConfiguration):
        ConsumerKeySharedPolicy(STICKY, sticky_ranges=ranges)
    kept = ConsumerKeySharedPolicy(STICKY, allow_out_of_order_delivery=True, sticky_ranges=[(101, 200), (0, 100)])
    assert (kept.key_shared_mode, kept.sticky_ranges) == (STICKY, [(101, 200), (0, 100)])


def test_options_that_hold_anyway_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is acknowledged by itself, and comes in the order of its key; the shortest queue is one message."""
    world = consumed.World(str(tmp_path), SubscriptionType.KEY_SHARED)
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: world.process())
    loose = ConsumerKeySharedPolicy(allow_out_of_order_delivery=True)
    options: dict[str, Any] = {"key_shared_policy": loose, "batch_index_ack_enabled": True, "receiver_queue_size": 0}
    with Client(world.root) as client:
        consumer = client.subscribe("t", "s", ConsumerType.KeyShared, **options)
        world.run(3)
        for entry in range(3):
            world.dispatch.deliver((1, entry))
        for entry in range(3):
            world.run(2)
            message = consumer.receive(0)
            assert message.message_id().entry_id() == entry
            consumer.acknowledge(message)
        world.run(1)
        assert world.settle.open == 0


def received(root: str, client: Client, coded: Schema, *payloads: bytes | None) -> list[Message]:
    """Messages with these payloads, read with a schema."""
    put(root, MESSAGES, *(message_row(1, n, 0) | {"payload": each} for n, each in enumerate(payloads)))
    reader = client.create_reader("t", EARLIEST, coded)
    return [reader.read_next(0) for _ in payloads]


def test_a_message_without_a_value_is_told_from_an_empty_one(root: str, client: Client) -> None:
    """None is sent for a key that is gone; JSON and texts have none of it to decode."""
    producer = client.create_producer("t", schema=StringSchema())
    producer.send(None, partition_key="k", properties={"action": "delete"})
    producer.send("")
    send(root, [OutgoingMessage("t", None)])
    assert [row["payload"] for row in inbox(root)] == [None, b"", None]
    gone, empty = received(root, client, JsonSchema(), None, b'""')
    assert (gone.has_null_value(), gone.data(), gone.value()) == (True, b"", None)
    assert (empty.has_null_value(), empty.value(), empty.encryption_context()) == (False, "", None)


def test_a_router_says_to_which_partition_a_message_goes(root: str, client: Client) -> None:
    """By whatever it sees of it; a number that is none sends nothing."""
    create_partitioned_topic(root, "t", 3)
    seen = list[tuple[Any, ...]]()

    def router(message: Message, partitions: int) -> int:
        seen.append((message.value(), message.partition_key(), message.properties(), message.topic_name(), partitions))
        return int(message.data())

    with client.create_producer("t", message_router=router) as producer:
        sent = [producer.send(b"%d" % n, partition_key="k", properties={"a": "b"}).partition() for n in (2, 0, 2)]
        assert sent == [2, 0, 2]
        assert seen[0] == (b"2", "k", {"a": "b"}, "t", 3)
        with pytest.raises(InvalidConfiguration):
            producer.send(b"3")
    assert len(inbox(root)) == 3
    assert client.create_producer("u", message_router=router).send(b"9", deliver_after=timedelta(1)).partition() == -1


class Colour(Enum):
    """A value of a record."""

    RED = "red"


class Order:
    """A class of a program, as the reference's records are: made of its fields."""

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - of a program
        """With these fields."""
        self.__dict__.update(fields)


def test_objects_of_a_class_travel_as_json(root: str, client: Client) -> None:
    """By their attributes, as the reference's records do; what JSON does not know is refused."""
    coded = JsonSchema(Order)
    assert coded.encode(Order(id=1, colour=Colour.RED, line=Order(name=b"n"))) == (
        b'{"id": 1, "colour": "red", "line": {"name": "n"}}'
    )
    (message,) = received(root, client, coded, b'{"id": 1}')
    assert (type(message.value()), message.value().id) == (Order, 1)
    with pytest.raises(InvalidMessage):
        coded.encode(Order(id=object().__hash__))
    with pytest.raises(InvalidMessage):
        JsonSchema().encode(Order(id=1))


def test_an_id_without_its_topic_is_of_no_one_of_several(tmp_path: Path) -> None:
    """What nobody can tell is refused as there."""
    world = consumed.World(str(tmp_path))
    options = ConsumerOptions(ConsumerType.Shared)
    consumer = new_consumer(world.process(), ["t", "u"], "s", options)
    with pytest.raises(OperationNotSupported):
        consumer.acknowledge(MessageId(-1, 1, 0))


class Line(schema.Record):
    """A record within another one."""

    name = schema.String(default="?")
    price = schema.Double()


class Bill(schema.Record):
    """A record as programs of the reference declare it."""

    id = schema.Integer(required=True)
    paid = schema.Boolean()
    colour = Colour
    first = Line()
    lines = schema.Array(Line())
    by_name = schema.Map(Line)
    note = schema.Bytes()


def test_a_record_travels_as_json_and_comes_back_as_it_was() -> None:
    """With its parts; what a newer writer has beside its fields is passed over."""
    bill = Bill(id=1, colour=Colour.RED, lines=[Line(price=2)], by_name={"a": Line(name="b")}, note=b"n")
    assert (bill.paid, bill.first, bill.lines[0].name) == (False, Line(), "?")
    coded = JsonSchema(Bill)
    assert coded.decode(coded.encode(bill)) == bill
    assert coded.decode(b'{"id": 7, "colour": "RED", "new": 1}') == Bill(id=7, colour="red")
    assert repr(Line(price=1)) == "Line(name='?', price=1)"
    assert delayline.schema.Record is schema.Record


@pytest.mark.parametrize(
    "values",
    [{"id": None}, {"id": "1"}, {"id": 1, "colour": "blue"}, {"id": 1, "first": 5}, {"id": 1, "lines": [5]},
     {"id": 1, "lines": Line()}, {"id": 1, "by_name": {1: Line()}}, {"id": 1, "paid": 1}],
)  # fmt: skip
def test_a_record_has_only_what_its_fields_may_be(values: dict[str, Any]) -> None:
    """Who sets the value is told, and not who receives it."""
    with pytest.raises(TypeError):
        Bill(**values)
    with pytest.raises(AttributeError):
        Bill(id=1).colours = 2
    with pytest.raises(TypeError):
        schema.Integer(default="1")
    with pytest.raises(TypeError):
        schema.Array(5)
