"""Reading a topic without a subscription: what is due, or the log as it is, from a place on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.client import Client
from pipeline.client.consuming import reader as readers
from pipeline.client.consuming.reader import Reader
from pipeline.client.consuming.received import first_window
from pipeline.client.exceptions import (
    AlreadyClosed,
    InvalidConfiguration,
    OperationNotSupported,
    Timeout,
)
from pipeline.client.message import Message, MessageId
from pipeline.client.schema import StringSchema
from pipeline.client.tables.topiclog import TopicLog
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import arrow_of
from pipeline.testing.public import warehouse
from schemas import MESSAGES
from tests.support.client import message_row, put


class Clock:
    """Stands until it is set; ms."""

    def __init__(self, now: int = 0) -> None:
        """Begin at an instant."""
        self.now = now

    def __call__(self) -> int:
        """The time."""
        return self.now


def row(ledger: int, entry: int, due: int, published: int = 0, topic: str = "t") -> dict[str, Any]:
    """A message named after its position."""
    named = {"payload": f"{ledger}.{entry}".encode(), "properties": {"n": str(entry)}, "message_key": None}
    return message_row(ledger, entry, due, topic, published) | named


@pytest.fixture
def clock() -> Clock:
    """A clock that stands at 100 ms."""
    return Clock(100)


@pytest.fixture
def reader(root: str, clock: Clock) -> Iterator[Reader]:
    """A reader of `t` that waits for delays, from the beginning, two messages at a time."""
    with Reader({"t": TopicLog(root, "t")}, "t", StringSchema(), ahead=2, now=clock, delayed=True) as made:
        yield made


def all_of(reader: Reader) -> list[str]:
    """What can be had now."""
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(0).value())
    return found


def test_a_reader_hands_out_what_is_due_in_the_order_of_due_times(root: str, reader: Reader, clock: Clock) -> None:
    """Whatever the order of the log; the rest waits, and what comes late is due at once."""
    put(root, MESSAGES, row(1, 0, 300), row(1, 1, 100), row(1, 2, 50), row(1, 3, 99), row(1, 4, 99, topic="u"))
    assert all_of(reader) == ["1.2", "1.3", "1.1"]
    put(root, MESSAGES, row(2, 0, 10), row(2, 1, 250))
    assert all_of(reader) == ["2.0"]
    clock.now = 299
    assert all_of(reader) == ["2.1"]
    clock.now = 300
    assert all_of(reader) == ["1.0"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("fails_at", "function"),
    [(0, "tables.topiclog.arrow_of"), (1, "tables.topiclog.arrow_of"), (0, "consuming.reader.first_window")],
    ids=["places", "rows", "messages"],
)
def test_what_a_call_does_not_get_to_the_end_of_is_read_by_the_next_one(
    root: str, reader: Reader, monkeypatch: pytest.MonkeyPatch, fails_at: int, function: str, error: type[BaseException]
) -> None:
    """A message that a reader has passed over would not come again. A panic of delta-rs is no `Exception`, either."""
    put(root, MESSAGES, row(1, 0, 50), row(1, 1, 60))
    functions: dict[str, Any] = {"arrow_of": arrow_of, "first_window": first_window}
    numbers, real = count(), functions[function.rpartition(".")[2]]

    def refusing(*args: Any, **tables: Any) -> Any:  # noqa: ANN401 - of a function that is replaced
        if next(numbers) == fails_at:
            raise error("the store does not answer")
        return real(*args, **tables)

    monkeypatch.setattr(f"pipeline.client.{function}", refusing)
    with pytest.raises(error, match="answer"):
        reader.read_next(0)
    assert all_of(reader) == ["1.0", "1.1"]


def test_a_listener_goes_on_after_a_store_that_did_not_answer(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would ask for the next message."""
    monkeypatch.setattr("pipeline.client.consuming.consumerlistener._PAUSE_S", 0)
    put(root, MESSAGES, row(1, 0, 50))
    numbers, came = count(), threading.Event()

    def refusing(*args: Any, **tables: Any) -> Any:  # noqa: ANN401 - of a function that is replaced
        if next(numbers) == 0:
            raise OSError("the store does not answer")
        return arrow_of(*args, **tables)

    monkeypatch.setattr("pipeline.client.tables.topiclog.arrow_of", refusing)
    with Client(root) as client:
        client.create_reader("t", MessageId.earliest, reader_listener=lambda *_: came.set())
        assert came.wait(10)


def test_a_reader_of_the_log_waits_for_no_delay(root: str) -> None:
    """In the order of positions, behind the one where it begins, or with it."""
    put(root, MESSAGES, row(1, 1, 1 << 41), row(1, 0, 7), row(2, 0, 5))
    with Client(root) as client:
        first = client.create_reader("t", MessageId.earliest, StringSchema())
        assert [first.read_next(0).value(), first.read_next(0).value()] == ["1.0", "1.1"]
        place = MessageId.deserialize(MessageId.of("t", 1, 1).serialize())
        behind = client.create_reader("t", place, StringSchema())
        assert all_of(behind) == ["2.0"]
        put(root, MESSAGES, row(3, 0, 5))
        assert all_of(behind) == ["3.0"]
        options: dict[str, Any] = {"start_message_id_inclusive": True}
        assert all_of(client.create_reader("t", place, StringSchema(), **options)) == ["1.1", "2.0", "3.0"]


def test_what_was_sent_before_a_call_counts_also_when_the_job_has_not_taken_it_yet() -> None:
    """A reader that began at the end got messages of before, and said of others that there are none."""
    with warehouse() as world, world.client() as client:
        producer = client.create_producer("t")
        for number in range(2):
            producer.send(b"before-%d" % number)
        reader = client.create_reader("t", MessageId.latest)
        assert not reader.has_message_available()
        for number in range(2):
            producer.send(b"after-%d" % number)
            assert reader.has_message_available()
            assert reader.read_next(0).data() == b"after-%d" % number


@pytest.mark.parametrize("topic", ["t", "u"])
def test_who_asks_for_messages_does_not_wait_for_long_for_a_job(
    root: str, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """It may not run; and what is on its way to another topic is not waited for at all."""
    monkeypatch.setattr(readers, "_TAKEN_MS", 1 if topic == "t" else 60_000)
    with Client(root) as client:
        client.create_producer(topic).send(b"x")
        assert not client.create_reader("t", MessageId.earliest).has_message_available()
        reader = client.create_reader("t", MessageId.latest)
        put(root, MESSAGES, row(1, 0, 5))
        assert reader.read_next(0).data() == b"1.0"


def test_a_message_that_is_read_has_all_that_was_said_of_it(root: str, reader: Reader) -> None:
    """As a message that is received."""
    put(root, MESSAGES, row(7, 3, 42, published=40) | {"properties": {"a": "b", "delayline.event_time": "12"}})
    message = reader.read_next(0)
    assert (message.data(), message.properties(), message.partition_key()) == (b"7.3", {"a": "b"}, "")
    assert (message.publish_timestamp(), message.event_timestamp(), message.deliver_at()) == (40, 12, 42)
    assert (message.topic_name(), message.redelivery_count()) == ("t", 0)
    assert message.message_id() == MessageId.of("t", 7, 3)


def test_a_reader_that_begins_at_the_end_gets_what_comes_from_then_on(root: str, clock: Clock) -> None:
    """What was there and is not due yet does not come from now on."""
    put(root, MESSAGES, row(1, 0, 50), row(1, 1, 101))
    with Reader({"t": TopicLog(root, "t")}, "t", StringSchema(), now=clock, delayed=True) as reader:
        reader.seek(MessageId.latest)
        clock.now = 200
        assert all_of(reader) == []
        put(root, MESSAGES, row(2, 0, 150))
        assert all_of(reader) == ["2.0"]
        reader.seek(MessageId.earliest)
        assert all_of(reader) == ["1.0", "1.1", "2.0"]


def test_a_reader_goes_to_a_time_of_publication(root: str, reader: Reader) -> None:
    """What was sent before is left out, what is read ahead is forgotten."""
    put(root, MESSAGES, row(1, 0, 50, published=10), row(1, 1, 60, published=20), row(1, 2, 70, published=30))
    assert reader.read_next(0).value() == "1.0"
    reader.seek(20)
    assert all_of(reader) == ["1.1", "1.2"]


def test_a_reader_that_waits_for_delays_cannot_begin_at_a_message(reader: Reader) -> None:
    """It would lose what lies before it in the log and is due later; the error says what to do."""
    with pytest.raises(OperationNotSupported) as refused:
        reader.seek(MessageId.of("t", 1, 0))
    assert "delayed=False" in refused.value.why


def test_messages_of_many_ledgers_come_in_order(root: str, reader: Reader) -> None:
    """More ledgers than a query names, read in one go."""
    reader._ahead = 1_000
    put(root, MESSAGES, *(row(ledger, ledger % 3, ledger % 7) for ledger in range(1, 300)))
    expected = sorted(range(1, 300), key=lambda ledger: (ledger % 7, ledger))
    assert reader.has_message_available()
    assert all_of(reader) == [f"{ledger}.{ledger % 3}" for ledger in expected]


def test_who_waits_in_vain_is_told_and_so_is_who_reads_a_closed_reader(root: str) -> None:
    """A topic that nobody has sent to is one that may get messages."""
    with Client(root) as client:
        reader = client.create_reader("nobody's", MessageId.earliest)
        assert not reader.has_message_available()
        for timeout_millis in (0, -1):
            with pytest.raises(Timeout):
                reader.read_next(timeout_millis)
        assert (reader.topic(), reader.is_connected()) == ("nobody's", True)
    assert not reader.is_connected()
    for call in (reader.read_next, reader.has_message_available, lambda: reader.seek(0)):
        with pytest.raises(AlreadyClosed):
            call()


def test_options_of_a_reader_that_cannot_be_had_are_refused(root: str) -> None:
    """And a folder that is no warehouse."""
    with Client(root) as client:
        with pytest.raises(InvalidConfiguration):
            client.create_reader("t", MessageId.earliest, reader_name="r")
        with pytest.raises(InvalidConfiguration):
            client.create_reader("t", MessageId.earliest, receiver_queue_size=-1)
    with pytest.raises(NoWarehouse):
        Client(f"{root}/none").create_reader("t", MessageId.earliest)


def test_a_listener_gets_the_messages_of_a_reader(root: str) -> None:
    """One after the other, in a thread of the reader; one that fails misses the message and gets the next one."""
    put(root, MESSAGES, *(message_row(1, entry, 0) for entry in range(3)))
    got, done = list[MessageId](), threading.Event()

    def listen(reader: Reader, message: Message) -> None:
        got.append(message.message_id())
        assert reader.topic() == "t"
        if len(got) == 3:
            done.set()
        assert len(got) != 1, "told to fail"

    with Client(root) as client:
        reader = client.create_reader("t", MessageId.earliest, reader_listener=listen)
        assert done.wait(30)
        with pytest.raises(OperationNotSupported):
            reader.read_next(0)
    assert got == [MessageId(-1, 1, entry) for entry in range(3)]
