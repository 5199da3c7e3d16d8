"""The client of a program with an event loop: the same promises, and nothing is lost by a task that is cancelled."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import aio
from pipeline.client import client as client_module
from pipeline.client.choices import ConsumerBatchReceivePolicy, ConsumerType
from pipeline.client.consuming import consumer as consumer_module
from pipeline.client.consuming import reader as reader_module
from pipeline.client.exceptions import AlreadyClosed, InvalidMessage, ProducerQueueIsFull
from pipeline.client.message import MessageId
from pipeline.client.producing import producer as producer_module
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.delta.deltars import open_table
from schemas import INBOX, MESSAGES
from tests.support.client import message_row, put
from tests.support.consumed import World
from tests.support.producing import payloads

_PATIENCE_S = 10
OWN = {"put", "next_message", "fetch", "take_ready", "listen", "take_on"}
"""What parts of the client call of each other."""
NOT_AWAITED = {"topic", "producer_name", "last_sequence_id", "subscription_name", "consumer_name", "is_connected"} | {
    "pause_message_listener",
    "resume_message_listener",
    "redeliver_unacknowledged_messages",
    "shutdown",
}
"""None of them waits for a store; in the reference they are not awaited either."""


def calls(kind: type) -> dict[str, list[str]]:
    """The public methods of a class, with the names of their arguments."""
    names = {name for name in dir(kind) if not name.startswith("_")} - OWN
    return {name: list(inspect.signature(getattr(kind, name)).parameters) for name in sorted(names)}


@pytest.mark.parametrize(
    ("kind", "like", "others"),
    [
        (aio.Client, client_module.Client, {}),
        # `send` is what `send_async` is elsewhere.
        (aio.Producer, producer_module.Producer, {"send_async": None}),
        # `asyncio.wait_for` sets the limit.
        (aio.Consumer, consumer_module.Consumer, {"receive": ["self"]}),
        (aio.Reader, reader_module.Reader, {"read_next": ["self"]}),
    ],
)
def test_there_are_the_same_calls_with_the_same_arguments(
    kind: type, like: type, others: dict[str, list[str] | None]
) -> None:
    """A call that a client gets is not forgotten here."""
    expected = {name: arguments for name, arguments in (calls(like) | others).items() if arguments is not None}
    assert calls(kind) == expected
    awaited = {name for name in expected if inspect.iscoroutinefunction(getattr(kind, name))}
    assert set(expected) - awaited == set(expected) & NOT_AWAITED


def test_sends_that_are_under_way_together_share_commits_and_each_is_answered(root: str) -> None:
    """In the order in which they were begun."""

    async def program() -> list[MessageId]:
        async with aio.Client(root) as client:
            producer = await client.create_producer("t", "shop", batching_max_publish_delay_ms=50)
            sent = await asyncio.gather(*(producer.send(b"%02d" % number) for number in range(30)))
            assert producer.last_sequence_id() == 29
            assert (producer.topic(), producer.producer_name()) == ("t", "shop")
            return sent

    before = open_table(root, INBOX).version()
    sent = asyncio.run(program())
    assert open_table(root, INBOX).version() < before + 30
    assert sent == sorted(sent)
    assert payloads(root) == [b"%02d" % number for number in range(30)]


def test_a_full_queue_is_waited_for_or_refused_as_asked(root: str) -> None:
    """The loop goes on meanwhile."""

    async def program() -> None:
        async with aio.Client(root) as client:
            waits = await client.create_producer("t", max_pending_messages=2, block_if_queue_full=True)
            await asyncio.gather(*(waits.send(b"w") for _ in range(9)))
            refuses = await client.create_producer("t", max_pending_messages=1)
            sends = [refuses.send(b"r") for _ in range(2)]
            answers = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in answers] == [MessageId, ProducerQueueIsFull]

    asyncio.run(program())
    assert payloads(root) == [b"r"] + [b"w"] * 9


def test_messages_are_received_acknowledged_and_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receive that was cancelled has taken nothing."""
    world = World(str(tmp_path))
    engine = world.process()
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: engine)

    async def program() -> None:
        async with aio.Client(world.root) as client:
            consumer = await client.subscribe("t", "s", ConsumerType.Shared)
            world.run(3)
            receiving = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)
            receiving.cancel()
            world.dispatch.deliver((1, 0), (1, 1))
            world.run(1)
            found = [await consumer.receive(), await consumer.receive()]
            await consumer.acknowledge(found[0])
            await consumer.negative_acknowledge(found[1], 0)
            world.run(1)
            assert [len(each) for each in world.settle.retries().values()] == [1]
            with pytest.raises(InvalidMessage):
                await consumer.seek(MessageId.sent("another", "shop", 1))
            await consumer.unsubscribe()
            with pytest.raises(AlreadyClosed):
                await consumer.receive()

    asyncio.run(program())
    assert subscriptions(world.root) == []


def test_a_reader_reads_and_waits(root: str) -> None:
    """What comes while it waits is read."""

    async def program() -> None:
        async with aio.Client(root) as client:
            assert await client.get_topic_partitions("t") == ["t"]
            reader = await client.create_reader("t", MessageId.earliest)
            assert not await reader.has_message_available()
            reading = asyncio.create_task(reader.read_next())
            await asyncio.to_thread(put, root, MESSAGES, message_row(1, 0, 1))
            assert (await reading).message_id() == MessageId.of("t", 1, 0)
            await reader.seek(MessageId.earliest)
            assert await reader.has_message_available()

    asyncio.run(program())


def test_several_messages_are_received_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call had when it was cancelled comes with the next one, in order, unless the consumer gives all back."""
    world = World(str(tmp_path))
    engine = world.process()
    monkeypatch.setattr("pipeline.client.consuming.opening.engine_of", lambda _: engine)

    async def program() -> None:
        async with aio.Client(world.root) as client:
            policy = ConsumerBatchReceivePolicy(max_num_message=2, timeout_ms=-1)
            consumer = await client.subscribe("t", "s", ConsumerType.Shared, batch_receive_policy=policy)
            world.run(3)
            assert consumer.is_connected()
            assert await consumer.batch_receive(timeout_millis=0) == []
            assert len(await consumer.batch_receive_arrow(timeout_millis=0)) == 0
            world.dispatch.deliver((1, 0), (1, 1), (1, 2))
            world.run(1)
            receiving = asyncio.create_task(consumer.batch_receive(9))
            await asyncio.sleep(0)
            receiving.cancel()
            found = [*await consumer.batch_receive(), await consumer.receive()]
            assert [each.message_id().position for each in found] == [(1, 0), (1, 1), (1, 2)]
            await consumer.reconsume_later(found[0], 0)
            consumer.redeliver_unacknowledged_messages()
            world.run(1)
            assert sum(len(each) for each in world.settle.retries().values()) == 3
            world.dispatch.deliver((1, 3))
            world.run(1)
            rows = await consumer.batch_receive_arrow()
            assert rows.select(["ledger_id", "entry_id"]).to_pylist() == [{"ledger_id": 1, "entry_id": 3}]
            await consumer.acknowledge(rows)
            assert await consumer.get_last_message_id() == MessageId.earliest

    asyncio.run(program())


def test_a_shutdown_does_not_hold_up_the_loop(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What consumers have to say is written meanwhile; without a loop it returns when all is done.

    The calls that it ends may have all threads of the loop.
    """
    begun, goes_on, ended = threading.Event(), threading.Event(), list[bool]()

    def shutdown(_: client_module.Client) -> None:
        begun.set()
        ended.append(goes_on.wait(_PATIENCE_S))

    monkeypatch.setattr(client_module.Client, "shutdown", shutdown)

    async def program() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, goes_on.wait, _PATIENCE_S)
        aio.Client(root).shutdown()
        assert begun.wait(_PATIENCE_S)
        goes_on.set()
        assert await busy

    asyncio.run(program())
    for each in threading.enumerate():
        if each.name == "delayline-shutdown":
            each.join(_PATIENCE_S)
    aio.Client(root).shutdown()
    assert ended == [True, True]


def test_a_reader_begins_with_the_message_itself_and_takes_few_at_once_if_asked(root: str) -> None:
    """The options are those of the client's."""
    put(root, MESSAGES, message_row(1, 0, 1), message_row(1, 1, 1))

    async def program() -> None:
        async with aio.Client(root) as client:
            place = MessageId.of("t", 1, 1)
            reader = await client.create_reader("t", place, receiver_queue_size=1, start_message_id_inclusive=True)
            assert (await reader.read_next()).message_id() == place
            await client.refresh_topics()

    asyncio.run(program())
