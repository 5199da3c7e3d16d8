"""A message of Pulsar as a message to send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.client.inbox import Message
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def message_of(message: Any, topic: str, due_ms: int | None) -> Message:  # noqa: ANN401 - of the client
    """Key, properties, payload and times; what `inbox` has no column for is among the properties.

    Args:
        message: as the client received it.
        topic: where to.
        due_ms: its due time, ms UTC.
    """
    properties = dict(message.properties())
    if message.ordering_key():
        properties[ORDERING_KEY] = message.ordering_key()
    if message.event_timestamp():
        properties[EVENT_TIME] = str(message.event_timestamp())
    return Message(
        topic,
        message.data(),
        publish_time=_time(message.publish_timestamp()),
        key=message.partition_key() or None,
        properties=properties,
        deliver_at=None if due_ms is None else _time(due_ms),
    )


def _time(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
