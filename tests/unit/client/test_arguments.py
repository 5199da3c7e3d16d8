"""What programs give to calls of the client: refused at the call when it cannot be, and nothing else is touched."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.checks import PROCESS
from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.consumerlistener import Announcer, Worker
from pipeline.client.exceptions import ClientError, InvalidConfiguration, InvalidMessage, OperationNotSupported
from pipeline.client.message import Message, MessageId
from pipeline.client.subscribing.subscriptions import subscriptions
from state import SubscriptionType
from tests.support.consumed import World, drained, names

TEN = [(1, entry) for entry in range(10)]
_PATIENCE_S = 10
NO_DELAYS: list[Any] = [
    "5",
    b"5",
    1.5,
    math.nan,
    math.inf,
    True,
    datetime.now(UTC),
    timedelta.max,
    1 << 70,
    [5],
    10**5_000,
]
NO_MESSAGES: list[Any] = [
    *(None, "x", 5, b"\x00", True, pa.array([1])),
    *(MessageId.earliest, MessageId.latest, MessageId(-1, -5, 0), MessageId(-1, 0, 1 << 40), MessageId(-1, 1 << 63, 0)),
    *(MessageId(-1, each, 0) for each in (1.0, "1", True, 10**5_000)),  # type: ignore[arg-type]
    MessageId(-1, 1, 0, topic="another"),
    *(
        MessageId.sent("another", "shop", 0),
        pa.table({"ledger_id": [1]}),
        pa.table({"ledger_id": [-1], "entry_id": [0]}),
    ),
    *(pa.table({"ledger_id": [1], "entry_id": [1 << 40]}), pa.table({"ledger_id": [None], "entry_id": [0]})),
]
NO_TIMES: list[Any] = [
    None,
    "x",
    1.5,
    math.nan,
    True,
    -1,
    1 << 70,
    datetime.now(UTC),
    MessageId.sent("another", "shop", 0),
]
NO_WAITS: list[Any] = ["5", 1.5, math.nan, True, timedelta(1)]


def refused(call: Callable[..., object], *arguments: object) -> None:
    """The call raises what a client raises of its use."""
    with pytest.raises(ClientError) as caught:
        call(*arguments)
    assert isinstance(caught.value, InvalidConfiguration | InvalidMessage)


def test_what_cannot_be_is_refused_at_the_call_and_the_others_of_its_turn_have_their_effect(tmp_path: Path) -> None:
    """A delay below zero, or a text, made the message stuck, and others of the same turn were lost without a word."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN)
    consumer = world.joined()
    messages = drained(consumer)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1], 5_000)
    for delay in NO_DELAYS:
        refused(consumer.negative_acknowledge, messages[2], delay)
        refused(consumer.reconsume_later, messages[2], delay)
    refused(consumer.reconsume_later, messages[2], None)
    for message in NO_MESSAGES:
        refused(consumer.acknowledge, message)
        refused(consumer.negative_acknowledge, message)
    for where in NO_TIMES:
        refused(consumer.seek, where)
    for wait in NO_WAITS:
        refused(consumer.receive, wait)
        refused(consumer.batch_receive, 1, wait)
        refused(consumer.batch_receive, wait)
        refused(consumer.batch_receive_arrow, wait)
    consumer.acknowledge(messages[3])
    world.run(1)
    assert world.settle.open == 7
    assert [each for positions in world.settle.retries().values() for each in positions] == [(1, 1)]


def test_a_delay_that_has_passed_is_none_and_a_span_of_time_is_taken(tmp_path: Path) -> None:
    """A retry that is computed from a time of day may be late; it comes at once."""
    world = World(str(tmp_path))
    world.dispatch.deliver(*TEN[:5])
    consumer = world.joined()
    delays: list[Any] = [-5, timedelta(seconds=-1), 0, timedelta(0), timedelta(microseconds=1_500)]
    for message, delay in zip(drained(consumer), delays, strict=True):
        consumer.negative_acknowledge(message, delay)
    world.run(1)
    dues = sorted(each.due for _, each in world.settle.outcome.retries)
    assert dues[-1] - dues[0] == 2


def test_a_cumulative_acknowledgement_takes_what_was_handed_out_before_the_message_came_again(tmp_path: Path) -> None:
    """What was in between stayed open, timed out, and became a dead letter."""
    world = World(str(tmp_path), SubscriptionType.EXCLUSIVE)
    world.dispatch.deliver(*TEN[:3])
    consumer = world.joined()
    first = drained(consumer)
    consumer.negative_acknowledge(first[1], 0)
    world.run(1)
    world.again()
    world.run(1)
    assert names(drained(consumer)) == [(1, 1)]
    consumer.acknowledge_cumulative(first[1])
    world.run(1)
    assert world.settle.open == 0


def test_what_a_listener_has_when_its_consumer_closes_may_still_be_acknowledged(tmp_path: Path) -> None:
    """Each orderly end of a program made a duplicate."""
    world = World(str(tmp_path))
    world.dispatch.deliver((1, 0))
    consumer, working, goes = world.joined(), threading.Event(), threading.Event()

    def listener(mine: Consumer, message: Message) -> None:
        working.set()
        goes.wait(_PATIENCE_S)
        mine.acknowledge(message)

    consumer.listen(listener)
    assert working.wait(_PATIENCE_S)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    goes.set()
    closing.join(_PATIENCE_S)
    assert not closing.is_alive()
    world.run(1)
    assert world.settle.open == 0


def test_two_listeners_may_end_each_other() -> None:
    """Each of them closed the client, and waited for the other one for ever."""
    both, workers = threading.Barrier(2), list[Worker]()

    def give(_: Message) -> None:
        both.wait(_PATIENCE_S)
        for each in workers:
            each.stop()

    workers += [Worker(lambda _: object(), give) for _ in range(2)]  # type: ignore[arg-type, return-value]
    for each in workers:
        each.start()
    for each in workers:
        each._thread.join(_PATIENCE_S)
        assert not each._thread.is_alive()


@pytest.mark.parametrize("level", [-1, "1", None, 1.0, True, (1 << 31) + 1])
def test_a_priority_that_cannot_be_is_refused_before_anything_is_registered(
    root: str,
    client: Client,
    level: Any,  # noqa: ANN401 - any value
) -> None:
    """The consumer never joined: who waited for a message did so for ever, and all others of the process were slow."""
    with pytest.raises(InvalidConfiguration, match=r"priority_level = .* in 0\.\.2147483648"):
        client.subscribe("t", "s", ConsumerType.Failover, priority_level=level)
    assert subscriptions(root) == []


def test_a_listener_that_ends_its_thread_goes_on_with_the_next_message() -> None:
    """`sys.exit` in a listener, or a panic, let all further messages go to nobody."""
    given, done = list[object](), threading.Event()

    def give(message: Message) -> None:
        given.append(message)
        if len(given) == 3:
            done.set()
        sys.exit(5)

    worker = Worker(lambda _: object(), give)  # type: ignore[arg-type, return-value]
    worker.start()
    assert done.wait(_PATIENCE_S)
    worker.stop()


def test_who_is_told_of_a_consumer_may_take_its_time_and_is_told_in_order() -> None:
    """All consumers of the process stood, their leases lapsed, and a lock of the application was a deadlock."""
    lock, numbers, all_called = threading.Lock(), list[int](), threading.Event()
    announcer = Announcer()

    def tell(number: int) -> None:
        with lock:
            numbers.append(number)

    with lock:
        for number in range(3):
            announcer.tell(partial(tell, number))
        announcer.tell(lambda: sys.exit(1))
        announcer.tell(all_called.set)
        assert numbers == []
    assert all_called.wait(_PATIENCE_S)
    announcer.end()
    assert numbers == [0, 1, 2]


def test_a_callback_that_ends_its_thread_and_a_panic_let_nobody_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`send` waited for ever, past its timeout, and the exit of the process hung."""
    producer = client.create_producer("t")

    class Panic(BaseException):
        """As delta-rs raises it."""

    def panic(_: Any) -> None:  # noqa: ANN401 - a turn
        raise Panic("no more")

    producer.send_async(b"1", lambda *_: sys.exit(1))
    producer.send(b"2")
    monkeypatch.setattr(client._writer.queue, "_write", panic)
    with pytest.raises(ClientError, match="no more"):
        producer.send(b"3")
    monkeypatch.undo()
    producer.send(b"4")


def test_a_process_knows_its_id_after_a_fork() -> None:
    """The id is kept; a process that was made by `fork` had that of its parent."""
    child = os.fork()
    if child == 0:
        os._exit(0 if PROCESS.pid == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert PROCESS.pid == os.getpid()


def test_a_process_that_was_made_by_fork_is_told_so_and_ends(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no thread that writes or reads: calls waited for ever, and so did its exit."""
    world = World(str(Path(root) / "w"))
    producer, consumer = client.create_producer("t"), world.joined()
    producer.send_async(b"parent's", None)
    monkeypatch.setattr(PROCESS, "pid", PROCESS.pid + 1)
    for call in (lambda: producer.send(b"x"), producer.flush, lambda: client.create_producer("u"), consumer.receive):
        with pytest.raises(OperationNotSupported, match="fork"):
            call()
    with pytest.raises(OperationNotSupported, match="fork"):
        consumer.acknowledge(MessageId(-1, 1, 0))
    client._writer.queue.flush_all()
    consumer.close()
    monkeypatch.undo()
    producer.flush()


NO_NUMBERS: list[Any] = ["5", b"5", 1.5, math.nan, math.inf, True, datetime.now(UTC), timedelta(1), 1 << 70, -5, [5]]
PRODUCER = ("send_timeout_millis", "max_pending_messages", "batching_max_publish_delay_ms", "initial_sequence_id")
CONSUMER: tuple[str, ...] = ("receiver_queue_size", "pattern_auto_discovery_period", "negative_ack_redelivery_delay_ms")
CONSUMER += ("unacked_messages_timeout_ms", "max_unacked_messages")
CLIENT = ("operation_timeout_seconds", "memory_limit_bytes", "stats_interval_in_seconds")


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_numbers_that_cannot_be_are_refused_by_whoever_takes_one(root: str, client: Client, value: Any) -> None:  # noqa: ANN401 - anything
    """Some were taken, and others were an error of Python that names no option."""
    made: Any = client
    anew: Any = Client
    for option in PRODUCER:
        refused(partial(made.create_producer, "t", **{option: value}))
    for option in CONSUMER:
        refused(partial(made.subscribe, "t", "s", **{option: value}))
    for option in CLIENT:
        refused(partial(anew, root, **{option: value}))
    producer: Any = client.create_producer("t")
    for option in ("deliver_at", "sequence_id", "event_timestamp"):
        if option == "deliver_at" and isinstance(value, datetime):
            # It is one of the two forms of a time.
            continue
        refused(partial(producer.send, b"x", **{option: value}))
    refused(partial(producer.send, b"x", properties=value))
    if not isinstance(value, timedelta):
        refused(partial(producer.send, b"x", deliver_after=value))
