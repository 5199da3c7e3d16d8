"""Who sends is told at once what ingest would reject later, by the settings of the job that runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.client import Client
from pipeline.client.exceptions import InvalidMessage, InvalidTopicName, MessageTooBig, Result
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.producing.limits import Bounds
from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.config.errors import BadValue
from pipeline.storage.files import Files
from pipeline.storage.texts import MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_NAMES_BYTES, MAX_PROPERTIES_BYTES
from pipeline.subscriptions.limits import Limits
from tests.support.producing import inbox

DAY_MS = 86_400_000


def test_a_message_that_ingest_would_reject_is_refused_as_the_reference_does(root: str, client: Client) -> None:
    """`send` said that all was well, and the message was a row of `rejected_ingest`."""
    Limits(10, DAY_MS).put(Files(), root)
    producer = client.create_producer("t")
    with pytest.raises(MessageTooBig) as refused:
        producer.send(bytes(11))
    assert (refused.value.field, refused.value.size, refused.value.allowed) == ("payload", 11, 10)
    assert refused.value.result is Result.MessageTooBig
    with pytest.raises(InvalidMessage) as late:
        producer.send(b"", deliver_after=timedelta(days=2))
    assert late.value.field == "delay_ms"
    producer.send(bytes(10), deliver_after=timedelta(hours=23))
    assert len(inbox(root)) == 1


def test_limits_that_a_job_has_raised_since_are_looked_up_before_a_message_is_refused(
    root: str, client: Client
) -> None:
    """The producer lives longer than the job; and a warehouse without a job has no limits yet."""
    producer = client.create_producer("t")
    producer.send(bytes(20))
    Limits(10, DAY_MS).put(Files(), root)
    other = client.create_producer("t")
    Limits(20, DAY_MS).put(Files(), root)
    other.send(bytes(20))
    with pytest.raises(MessageTooBig):
        other.send(bytes(21))
    assert len(inbox(root)) == 2


def test_keys_properties_and_names_have_a_longest_length(client: Client) -> None:
    """A topic and a key of 100 MB were taken."""
    producer = client.create_producer("t")
    for field, options in (
        ("key", {"partition_key": "é" * (MAX_KEY_BYTES // 2 + 1)}),
        ("properties", {"properties": {"a": "x" * MAX_PROPERTIES_BYTES}}),
    ):
        with pytest.raises(MessageTooBig) as refused:
            producer.send(b"", **options)
        assert refused.value.field == field
    producer.send(b"", partition_key="é" * (MAX_KEY_BYTES // 2), properties={"a": "x" * (MAX_PROPERTIES_BYTES - 9)})
    with pytest.raises(InvalidTopicName):
        client.create_producer("t" * (MAX_NAME_BYTES + 1))
    Subscription("t" * (MAX_NAMES_BYTES - 1), "s")
    for topic, name in (("t" * MAX_NAMES_BYTES, "s"), ("t\ufffd", "s"), ("t", "s\ufffd")):
        with pytest.raises(BadValue):
            Subscription(topic, name)


def test_messages_that_are_sent_together_are_refused_together(root: str) -> None:
    """Nothing is sent of what cannot all be sent."""
    Limits(10, DAY_MS).put(Files(), root)
    noon = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(MessageTooBig):
        send(root, [OutgoingMessage("t", b"a"), OutgoingMessage("t", bytes(11))])
    with pytest.raises(InvalidMessage):
        send(root, [OutgoingMessage("t", b"", publish_time=noon, deliver_at=noon + timedelta(days=2))])
    assert len(inbox(root)) == 0
    assert Bounds(root).check(10, DAY_MS) is None  # type: ignore[func-returns-value] # it raises, or not
