"""The client of a program with an event loop: the same promises, and nothing is lost by a task that is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import aio
from pipeline.client import client as client_module
from pipeline.client.choices import ConsumerType
from pipeline.client.exceptions import AlreadyClosed, InvalidMessage, ProducerQueueIsFull
from pipeline.client.messageid import MessageId
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.delta.deltars import open_table
from schemas import INBOX, MESSAGES
from tests.support.client import message_row, put
from tests.support.consumed import World
from tests.support.producing import payloads


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
            told = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in told] == [MessageId, ProducerQueueIsFull]

    asyncio.run(program())
    assert payloads(root) == [b"r"] + [b"w"] * 9


def test_messages_are_received_acknowledged_and_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receive that was cancelled has taken nothing."""
    world = World(str(tmp_path))
    engine = world.process()
    monkeypatch.setattr(client_module, "engine_of", lambda _: engine)

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
                await consumer.seek(MessageId(-1, 1, 1, is_sent=True))
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
            reader = await client.create_reader("t", MessageId.earliest, delayed=False)
            assert not await reader.has_message_available()
            reading = asyncio.create_task(reader.read_next())
            await asyncio.to_thread(put, root, MESSAGES, message_row(1, 0, 1))
            assert (await reading).message_id() == MessageId.of("t", 1, 0)
            await reader.seek(MessageId.earliest)
            assert await reader.has_message_available()

    asyncio.run(program())
