"""Producing what cannot be written as it is: it is refused or set right, and nobody else is touched."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.client import Client
from pipeline.client.exceptions import InvalidMessage, Result
from pipeline.client.schema import Schema
from tests.support.producing import inbox, payloads
from tests.unit.client.test_producer import Callback


class AsItIs(Schema):
    """A schema of a program that does not say what it makes."""

    def encode(self, content: Any) -> bytes:  # noqa: ANN401 - whatever a program gives
        """The content, which may be no bytes."""
        made: bytes = content
        return made

    def decode(self, data: bytes) -> bytes:
        """The bytes."""
        return data


def test_a_message_of_which_no_row_can_be_made_fails_at_once_and_alone(root: str) -> None:
    """It was tried again until the time of all was over, and no producer of the client sent anything meanwhile."""
    with Client(root) as client:
        options: dict[str, Any] = {"send_timeout_millis": 1_000, "batching_max_publish_delay_ms": 200}
        odd, other = client.create_producer("t", "shop", AsItIs(), **options), client.create_producer("t", **options)
        mine, others = Callback(), Callback()
        for number, content in enumerate((b"1", [2], b"3")):
            odd.send_async(content, mine, sequence_id=number)
        other.send_async(b"4", others)
        other.flush()
        assert mine.results == [Result.InvalidMessage] * 2 + [Result.Ok]
        assert others.results == [Result.Ok]
        odd.send(b"3", sequence_id=2)
    assert payloads(root) == [b"1", b"3", b"4"]


def test_an_empty_key_is_none(root: str, client: Client) -> None:
    """A message without a key says that its key is empty: whoever sent it on gave all of them one key."""
    client.create_producer("t").send(b"1", partition_key="", ordering_key="", properties={"a": ""})
    client.create_producer("t").send(b"2", partition_key="", replaces="k")
    row, other = inbox(root)
    assert (row["message_key"], dict(row["properties"])) == (None, {"a": ""})
    assert other["message_key"] == "k"


def test_a_delay_that_no_clock_ends_is_refused_by_its_name(root: str, client: Client) -> None:
    """It was said of `deliver_at`, which the program had not given, and without how long it may be."""
    with pytest.raises(InvalidMessage, match=r"deliver_after = .* at most \d+ ms"):
        client.create_producer("t").send(b"1", deliver_after=timedelta.max)
    assert inbox(root) == []
