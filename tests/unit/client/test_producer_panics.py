"""Producing while delta-rs panics: each message is decided once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client.client import Client
from pipeline.client.exceptions import Result
from pipeline.client.producing import writer as producer_inbox
from tests.support.producing import payloads

_PATIENCE_S = 10


class Panic(BaseException):
    """As delta-rs raises it."""


def test_a_message_that_is_decided_is_told_once_when_another_one_of_its_turn_meets_a_panic(
    root: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told twice, with two answers; and what waits was counted below zero, so the process never ended."""
    calls = 0

    def write(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as it is called
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Panic
        write_deltalake(*args, **kwargs)

    monkeypatch.setattr(producer_inbox, "write_deltalake", write)
    one, other = (client.create_producer("t", "same", batching_max_publish_delay_ms=200) for _ in range(2))
    first, second = list[Result](), list[Result]()
    one.send_async(b"1", lambda result, _: first.append(result), sequence_id=1)
    other.send_async(b"2", lambda result, _: second.append(result), sequence_id=2)
    other.flush()
    assert (first, second) == ([Result.Ok], [Result.UnknownError])
    ended = threading.Thread(target=client._writer.queue.flush_all, daemon=True)
    ended.start()
    ended.join(_PATIENCE_S)
    assert not ended.is_alive()
    other.send(b"2", sequence_id=2)
    assert payloads(root) == [b"1", b"2"]
