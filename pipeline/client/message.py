"""A message as an application gets it, and its name: its position in the log of its topic."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import total_ordering
from typing import Any, ClassVar

from pipeline.client.exceptions import InvalidMessage
from pipeline.client.schema import BytesSchema, Schema
from pipeline.subscriptions.policies import partition_of
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY, whole_number

_LAYOUT = struct.Struct(">BBiqqi")
_VERSION = 1
_FIRST, _LAST = -1, (1 << 63) - 1


@total_ordering
class MessageId:
    """A position, (ledger, entry), in the log of a topic. Ids of one topic are ordered as its log is.

    Ingest gives positions. So what `send` returns is not one yet: it names the place in `inbox`, with the table's
    version as ledger and the row in it as entry, and `is_sent` is true. Such an id cannot be acknowledged or sought.
    """

    __slots__ = ("_key", "_topic")

    earliest: ClassVar[MessageId]
    """Before the first message that a topic holds."""
    latest: ClassVar[MessageId]
    """Behind the last one."""

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        *,
        topic: str = "",
        is_sent: bool = False,
    ) -> None:
        """Name a position.

        Args:
            partition: the number of the partition; -1: the topic has none.
            ledger_id: of the topic's log.
            entry_id: in the ledger.
            batch_index: -1: each message is an entry by itself.
            topic: its topic, if known.
            is_sent: a place in `inbox`, not a position.
        """
        self._key = (is_sent, ledger_id, entry_id, partition, batch_index)
        self._topic = topic

    @classmethod
    def of(cls, topic: str, ledger_id: int, entry_id: int) -> MessageId:
        """The id of a position of a topic."""
        return cls(partition_of(topic), ledger_id, entry_id, topic=topic)

    def ledger_id(self) -> int:
        """The ledger."""
        return self._key[1]

    def entry_id(self) -> int:
        """The entry in it."""
        return self._key[2]

    def partition(self) -> int:
        """The number of the partition; -1: the topic has none."""
        return self._key[3]

    def batch_index(self) -> int:
        """Always -1, unless the caller said otherwise: each message is an entry by itself."""
        return self._key[4]

    def topic_name(self) -> str:
        """Its topic; empty when it is not known."""
        return self._topic

    @property
    def is_sent(self) -> bool:
        """Whether it names a place in `inbox`, since ingest had not taken the message when it was made."""
        return self._key[0]

    @property
    def position(self) -> tuple[int, int]:
        """(ledger, entry).

        Raises:
            InvalidMessage: ingest had not given it a position when it was made.
        """
        if self.is_sent:
            raise InvalidMessage("message_id", str(self), "the id of a message that was received")
        return self._key[1], self._key[2]

    def serialize(self) -> bytes:
        """The id as bytes, to be kept; the topic is not among them."""
        sent, ledger, entry, partition, batch = self._key
        return _LAYOUT.pack(_VERSION, sent, partition, ledger, entry, batch)

    @classmethod
    def deserialize(cls, message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """The id from its bytes.

        Raises:
            InvalidMessage: they are not those of an id.
        """
        try:
            version, sent, partition, ledger, entry, batch = _LAYOUT.unpack(message_id_bytes)
        except struct.error as error:
            raise InvalidMessage("message_id_bytes", message_id_bytes, "what serialize gave") from error
        if version != _VERSION or sent > 1:
            raise InvalidMessage("message_id_bytes", message_id_bytes, f"what serialize of version {_VERSION} gave")
        return cls(partition, ledger, entry, batch, topic=topic or "", is_sent=bool(sent))

    def __str__(self) -> str:
        """(ledger, entry, partition, batch index), as the reference writes it."""
        return "({},{},{},{})".format(*self._key[1:])

    def __repr__(self) -> str:
        """The same with what else it knows."""
        return f"MessageId{self}{' in inbox' if self.is_sent else ''}"

    def __hash__(self) -> int:
        """Equal ids have one hash."""
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        """Whether both name one place. Topics are not compared."""
        return self._key == other._key if isinstance(other, MessageId) else NotImplemented

    def __lt__(self, other: MessageId) -> bool:
        """Whether this one is before the other in the log; places in `inbox` have no order with positions."""
        return self._key < other._key if self._is_of(other) else NotImplemented

    def _is_of(self, other: object) -> bool:
        return isinstance(other, MessageId) and self.is_sent == other.is_sent


MessageId.earliest = MessageId(-1, _FIRST, _FIRST)
MessageId.latest = MessageId(-1, _LAST, _LAST)


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
