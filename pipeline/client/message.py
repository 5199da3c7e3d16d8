"""A message as an application gets it, and its name: its position in the log of its topic."""

from __future__ import annotations

import struct
from functools import cached_property, total_ordering
from typing import Any, ClassVar

import pyarrow as pa

from pipeline.client.exceptions import InvalidMessage
from pipeline.client.schema import BytesSchema, Schema
from pipeline.storage.arrays import IntArray
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


class Window:
    """Some rows of messages, with those columns as Python's values that everybody asks for."""

    def __init__(self, table: pa.Table, *numbers: IntArray) -> None:
        """Take rows: copies of them, so that nothing else is kept by a message that is kept.

        Args:
            table: columns of `deliveries` or of `messages`.
            numbers: ledgers, entries, redelivery counts and slots, of shape (n,).
        """
        self.ledgers, self.entries, self.counts, self.slots = (each.tolist() for each in numbers)
        self.payloads: list[bytes | None] = table.column("payload").to_pylist()
        self._table = table.drop_columns(["payload"]).take(pa.array(range(len(self.payloads))))

    @cached_property
    def published(self) -> list[int | None]:
        """When each was sent, microseconds."""
        return self._values(self._table.column("publish_time").cast(pa.int64()))

    @cached_property
    def deliver_at(self) -> list[int | None]:
        """The delivery time that was asked for, the same; None: at once."""
        return self._values(self._table.column("deliver_at").cast(pa.int64()))

    @cached_property
    def keys(self) -> list[str | None]:
        """The key of each."""
        return self._values(self._table.column("message_key"))

    @cached_property
    def properties(self) -> list[list[tuple[str, str | None]] | None]:
        """The properties of each, as pairs."""
        return self._values(self._table.column("properties"))

    def _values(self, column: pa.ChunkedArray) -> list[Any]:
        values: list[Any] = column.to_pylist()
        return values


class Message:
    """A message that a consumer or a reader got. The names are those of the reference: all are methods."""

    __slots__ = ("_number", "_schema", "_topic", "_window")

    def __init__(self, window: Window, number: int, schema: Schema, topic: str) -> None:
        """A row of a window.

        Args:
            window: the window.
            number: of the row in it.
            schema: decodes its content.
            topic: its topic.
        """
        self._window, self._number, self._schema, self._topic = window, number, schema, topic

    @property
    def position(self) -> tuple[int, int]:
        """Ledger and entry."""
        return self._window.ledgers[self._number], self._window.entries[self._number]

    def data(self) -> bytes:
        """The bytes sent; none when there are none (`has_null_value`)."""
        return self._window.payloads[self._number] or b""

    def has_null_value(self) -> bool:
        """Whether None was sent, and not bytes of length 0."""
        return self._window.payloads[self._number] is None

    def value(self) -> Any:  # noqa: ANN401 - what the schema gives
        """The content, decoded by the schema. What was sent as None is None, or empty bytes without a schema."""
        if self.has_null_value() and not isinstance(self._schema, BytesSchema):
            return None
        return self._schema.decode(self.data())

    def properties(self) -> dict[str, str | None]:
        """What the sender set, less the two names by which event time and ordering key travel."""
        return {name: text for name, text in self._properties().items() if name not in RESERVED}

    def partition_key(self) -> str:
        """The key; empty when there is none."""
        return self._window.keys[self._number] or ""

    def ordering_key(self) -> str:
        """The ordering key; empty when there is none."""
        return self._properties().get(ORDERING_KEY) or ""

    def encryption_context(self) -> object | None:
        """None: the client does not encrypt."""
        return None

    def publish_timestamp(self) -> int:
        """When it was sent, ms since the epoch."""
        return (self._window.published[self._number] or 0) // 1_000

    def event_timestamp(self) -> int:
        """When it happened, by its sender, ms since the epoch; 0 when nobody said so."""
        return whole_number(self._properties().get(EVENT_TIME)) or 0

    def deliver_at(self) -> int:
        """The time asked for, ms since the epoch; 0: at once."""
        return (self._window.deliver_at[self._number] or 0) // 1_000

    def message_id(self) -> MessageId:
        """Its name."""
        return MessageId.of(self.topic_name(), *self.position)

    def topic_name(self) -> str:
        """Its topic."""
        return self._topic

    def redelivery_count(self) -> int:
        """How often it came before."""
        count: int = self._window.counts[self._number]
        return count

    def __repr__(self) -> str:
        """Its topic and its name."""
        return f"Message({self.topic_name()!r}, {self.message_id()})"

    def _properties(self) -> dict[str, str | None]:
        return dict(self._window.properties[self._number] or ())
