"""Calls of the client for event loops that are cancelled: what they were to make is closed, and nobody is kept away."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client import aio
from pipeline.client.checks import Closing
from pipeline.client.message import MessageId
from pipeline.client.tables.topiclog import TopicLog
from schemas import MESSAGES
from tests.support.client import message_row, put

_PATIENCE_S = 10


class Made(Closing):
    """A consumer, say."""

    def __init__(self) -> None:
        """Open."""
        self.closed = threading.Event()

    def close(self) -> None:
        """Let others in."""
        self.closed.set()


@pytest.mark.parametrize("made_first", [False, True])
def test_what_nobody_waits_for_any_more_is_closed(*, made_first: bool) -> None:
    """A `subscribe` that was cancelled left a hidden consumer: everybody else got `ConsumerBusy`."""
    made, goes, begun = Made(), threading.Event(), threading.Event()

    def subscribe(_: Any) -> Made:  # noqa: ANN401 - the client
        begun.set()
        assert goes.wait(_PATIENCE_S)
        return made

    async def program() -> None:
        task = asyncio.create_task(aio._making(subscribe, lambda each: each)(aio._Wraps(object())))
        await asyncio.to_thread(begun.wait, _PATIENCE_S)
        if made_first:
            goes.set()
            # The thread is done, and the loop has not looked yet.
            threading.Event().wait(0.05)
        task.cancel()
        goes.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert made.closed.wait(_PATIENCE_S)


def test_what_somebody_waits_for_is_given() -> None:
    """And stays open."""
    made = Made()
    found = asyncio.run(aio._making(lambda _: made, lambda each: each)(aio._Wraps(object())))
    assert found is made
    assert not made.closed.is_set()


def test_what_a_cancelled_call_of_a_reader_was_reading_the_next_one_gives(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread went on, took the first message, and gave it to nobody."""
    put(root, MESSAGES, *(message_row(1, entry, 0) for entry in range(2)))
    begun, goes, rows = threading.Event(), threading.Event(), TopicLog.rows

    def slow(*args: Any) -> Any:  # noqa: ANN401 - of a function that is replaced
        begun.set()
        assert goes.wait(_PATIENCE_S)
        return rows(*args)

    monkeypatch.setattr(TopicLog, "rows", slow)

    async def program() -> None:
        async with aio.Client(root) as client:
            reader = await client.create_reader("t", MessageId.earliest)
            task = asyncio.create_task(reader.read_next())
            await asyncio.to_thread(begun.wait, _PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            goes.set()
            for entry in range(2):
                found = await asyncio.wait_for(reader.read_next(), _PATIENCE_S)
                assert found.message_id() == MessageId(-1, 1, entry)

    asyncio.run(program())
