"""A message as an application gets it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.client.messageid import MessageId
from pipeline.client.schema import BytesSchema, Schema
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY, whole_number

RESERVED = (EVENT_TIME, ORDERING_KEY)
"""Properties that are no application's own."""
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_BYTES = BytesSchema()


class Message:
    """A message that a consumer or a reader got. The names are those of the reference: all are methods."""

    __slots__ = ("_id", "_row", "_schema")

    def __init__(self, row: Mapping[str, Any], schema: Schema = _BYTES) -> None:
        """Take a row of `deliveries` or of `messages`, with Python's values.

        Args:
            row: its columns by name; `properties` is a dict or a list of pairs.
            schema: decodes its content.
        """
        self._row, self._schema = row, schema
        self._id = MessageId.of(row["topic"], row["ledger_id"], row["entry_id"])

    def data(self) -> bytes:
        """The bytes sent."""
        payload: bytes | None = self._row["payload"]
        return payload or b""

    def value(self) -> Any:  # noqa: ANN401 - what the schema gives
        """The content, decoded by the schema."""
        return self._schema.decode(self.data())

    def properties(self) -> dict[str, str | None]:
        """What the sender set, less the two names by which event time and ordering key travel."""
        return {name: text for name, text in self._properties().items() if name not in RESERVED}

    def partition_key(self) -> str:
        """The key; empty when there is none."""
        return self._row["message_key"] or ""

    def ordering_key(self) -> str:
        """The ordering key; empty when there is none."""
        return self._properties().get(ORDERING_KEY) or ""

    def publish_timestamp(self) -> int:
        """When it was sent, ms since the epoch."""
        return (self._row["publish_time"] - _EPOCH) // _MS  # type: ignore[no-any-return] # of timestamps

    def event_timestamp(self) -> int:
        """When it happened, by its sender, ms since the epoch; 0 when nobody said so."""
        return whole_number(self._properties().get(EVENT_TIME)) or 0

    def deliver_at(self) -> int:
        """The time asked for, ms since the epoch; 0: at once."""
        asked = self._row["deliver_at"]
        return 0 if asked is None else (asked - _EPOCH) // _MS

    def message_id(self) -> MessageId:
        """Its name."""
        return self._id

    def topic_name(self) -> str:
        """Its topic."""
        return self._id.topic_name()

    def redelivery_count(self) -> int:
        """How often it came before."""
        return self._row.get("redelivery_count") or 0

    def __repr__(self) -> str:
        """Its topic and its name."""
        return f"Message({self.topic_name()!r}, {self.message_id()})"

    def _properties(self) -> dict[str, str | None]:
        return dict(self._row["properties"] or ())
