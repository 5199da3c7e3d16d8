"""A message as an application gets it, and its name."""

from __future__ import annotations

import struct
from functools import cached_property, total_ordering
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from pipeline.client.exceptions import InvalidMessage
from pipeline.client.schema import BytesSchema, Schema
from pipeline.config.errors import BadValue
from pipeline.storage.arrays import IntArray
from pipeline.storage.texts import MAX_NAME_BYTES
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY, whole_number
from pipeline.subscriptions.topicnames import partition_of, plain_topic, topic_of
from schemas import IDENTITY

_LAYOUT, _BY_PRODUCER = struct.Struct(">BBiqqi"), struct.Struct(">qqHH")
_VERSION, _NAMED = 1, 2
"""Of the bytes of an id: with a position alone, and with what its producer calls it."""
_FIRST, _LAST = -1, (1 << 63) - 1


class Identity(NamedTuple):
    """How a producer knows its message. It is in `inbox`, and travels with the message.

    Attributes:
        producer_name: the name of the producer.
        sequence_id: the number of the message among those of the producer, in its topic or partition.
        published: when it was sent, microseconds since the epoch; -1: it was sent before, nobody says when.
    """

    producer_name: str
    sequence_id: int
    published: int = -1


def identity_of(name: str | None, number: int | None, published: int | None) -> Identity | None:
    """An identity from columns of a table; None: the producer did not say."""
    return None if name is None or number is None else Identity(name, number, -1 if published is None else published)


@total_ordering
class MessageId:
    """The name of a message: its position, (ledger, entry), in the log of its topic, and how its producer knows it.

    Ingest gives positions. So what `send` returns has no position yet, and `is_sent` is true: it names its message by
    its producer. It is equal to the id with which the message is received, and can be used wherever an id can: a call
    that needs the position looks it up. Ids with positions are ordered as the log of their topic is, others as their
    messages were sent.
    """

    __slots__ = ("_identity", "_place", "_topic")

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
        identity: Identity | None = None,
    ) -> None:
        """Name a message.

        Args:
            partition: the number of the partition; -1: the topic has none.
            ledger_id: of the topic's log.
            entry_id: in the ledger.
            batch_index: -1: each message is an entry by itself.
            topic: its topic, if known.
            identity: how its producer knows it, if it does. With one, the position may be left out.
        """
        self._place = (ledger_id, entry_id, partition, batch_index)
        self._topic, self._identity = topic, identity

    @classmethod
    def of(cls, topic: str, ledger_id: int, entry_id: int, identity: Identity | None = None) -> MessageId:
        """The id of a position of a topic."""
        return cls(partition_of(topic), ledger_id, entry_id, topic=topic, identity=identity)

    @classmethod
    def sent(cls, topic: str, producer_name: str, sequence_id: int, published: int = -1) -> MessageId:
        """The id of a message by its producer, as `send` returns it.

        Args:
            topic: the topic, or the partition.
            producer_name: who sent it.
            sequence_id: its number among those of the producer.
            published: when it was sent, microseconds since the epoch; -1: not known. It is found faster with it.

        Raises:
            BadValue: a text is none, or too long; a number is none, or outside of its range.
        """
        texts: dict[str, object] = {"topic": topic, "producer_name": producer_name}
        for field, text in texts.items():
            if not isinstance(text, str) or not 0 < len(text.encode(errors="replace")) <= MAX_NAME_BYTES:
                raise BadValue(field, text, f"a text of up to {MAX_NAME_BYTES} bytes")
        for field, number, least in (("sequence_id", sequence_id, 0), ("published", published, -1)):
            if type(number) is not int or not least <= number <= _LAST:
                raise BadValue(field, number, f"a whole number in {least}..{_LAST}")
        return cls(partition_of(topic), topic=topic, identity=Identity(producer_name, sequence_id, published))

    @staticmethod
    def wrap(message_id: MessageId) -> MessageId:
        """The id itself. The reference has two kinds of ids."""
        return message_id

    def ledger_id(self) -> int:
        """The ledger; -1: it is an id that `send` gave."""
        return self._place[0]

    def entry_id(self) -> int:
        """The entry in it; -1: it is an id that `send` gave."""
        return self._place[1]

    def partition(self) -> int:
        """The number of the partition; -1: the topic has none."""
        return self._place[2]

    def batch_index(self) -> int:
        """Always -1, unless the caller said otherwise: each message is an entry by itself."""
        return self._place[3]

    def topic_name(self) -> str:
        """Its topic; empty when it is not known."""
        return self._topic

    @property
    def identity(self) -> Identity | None:
        """How its producer knows the message; None: the producer did not say, or whoever made the id."""
        return self._identity

    @property
    def is_sent(self) -> bool:
        """Whether it names its message by its producer alone: ingest had not taken it when the id was made."""
        return self._identity is not None and self._place[:2] == (-1, -1)

    @property
    def position(self) -> tuple[int, int]:
        """(ledger, entry).

        Raises:
            InvalidMessage: ingest had not given it a position when the id was made.
        """
        if self.is_sent:
            raise InvalidMessage("message_id", str(self), "the id of a message that was received")
        return self._place[0], self._place[1]

    def serialize(self) -> bytes:
        """The id as bytes, to be kept. Of an id with a position alone the topic is not among them."""
        ledger, entry, partition, batch = self._place
        if self._identity is None:
            return _LAYOUT.pack(_VERSION, 0, partition, ledger, entry, batch)
        place = _LAYOUT.pack(_NAMED, 0, partition, ledger, entry, batch)
        name, number, published = self._identity
        topic, producer = self._topic.encode(), name.encode()
        return place + _BY_PRODUCER.pack(number, published, len(topic), len(producer)) + topic + producer

    @classmethod
    def deserialize(cls, message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """The id from its bytes, for a topic if one is named.

        Raises:
            InvalidMessage: they are not those of an id.
        """
        allowed = f"what serialize of version {_VERSION} or {_NAMED} gave"
        try:
            version, zero, partition, ledger, entry, batch = _LAYOUT.unpack_from(message_id_bytes)
            is_plain = version == _VERSION and len(message_id_bytes) == _LAYOUT.size
            if zero or not (is_plain or version == _NAMED):
                raise InvalidMessage("message_id_bytes", message_id_bytes, allowed)
            if is_plain:
                return cls(partition, ledger, entry, batch, topic=topic or "")
            number, published, *sizes = _BY_PRODUCER.unpack_from(message_id_bytes, _LAYOUT.size)
            texts = message_id_bytes[_LAYOUT.size + _BY_PRODUCER.size :]
            own, name = texts[: sizes[0]].decode(), texts[sizes[0] :].decode()
        except (struct.error, TypeError, UnicodeDecodeError) as error:
            raise InvalidMessage("message_id_bytes", message_id_bytes, allowed) from error
        if len(texts) != sum(sizes):
            raise InvalidMessage("message_id_bytes", message_id_bytes, allowed)
        # A program may name the topic of which it is a partition.
        named = own if topic is None or topic_of(own) == topic else topic
        return cls(partition, ledger, entry, batch, topic=named, identity=Identity(name, number, published))

    def __str__(self) -> str:
        """(ledger, entry, partition, batch index), as the reference writes it; one that `send` gave: name:number."""
        if self._identity is not None and self.is_sent:
            return f"{self._identity.producer_name}:{self._identity.sequence_id}"
        return "({},{},{},{})".format(*self._place)

    def __repr__(self) -> str:
        """The same with what it is."""
        return f"MessageId({self})" if self.is_sent else f"MessageId{self}"

    def __hash__(self) -> int:
        """Equal ids have one hash.

        Except for one that a program makes of numbers alone, or that was kept by an earlier version: it is equal to
        that of the received message, and another one in a set or as a key. There take `position`.
        """
        return hash(self._place if self._identity is None else self._identity[:2])

    def __eq__(self, other: object) -> bool:
        """Whether both name one message: by their positions if both have one, else as their producer knows them.

        Topics are not compared with positions.
        """
        if not isinstance(other, MessageId):
            return NotImplemented
        if not (self.is_sent or other.is_sent):
            return self._place == other._place
        return self._by_producer() == other._by_producer()

    def __lt__(self, other: object) -> bool:
        """Whether this one is before the other: in the log, or as they were sent."""
        if not isinstance(other, MessageId):
            return NotImplemented
        if not (self.is_sent or other.is_sent):
            return self._place < other._place
        mine, others = self._identity, other._identity
        if mine is None or others is None:
            ends = (MessageId.earliest, MessageId.latest)
            return self == ends[0] or other == ends[1] if self in ends or other in ends else NotImplemented
        same = mine.producer_name == others.producer_name
        return mine.sequence_id < others.sequence_id if same else mine.published < others.published

    def _by_producer(self) -> tuple[object, ...] | None:
        """What names the message without its position; None: nothing does."""
        return None if self._identity is None else (plain_topic(self._topic), *self._identity[:2])


MessageId.earliest = MessageId(-1, _FIRST, _FIRST)
MessageId.latest = MessageId(-1, _LAST, _LAST)


def checked_id(topic: str, message_id: object) -> str:
    """The topic of a message, which may be a partition of the one that is named.

    Raises:
        BadValue: it is no id, or that of a message of another topic.
    """
    if isinstance(message_id, MessageId):
        partition = f"{topic}-partition-{message_id.partition()}" if message_id.partition() >= 0 else topic
        own = plain_topic(message_id.topic_name()) or (partition if topic_of(topic) == topic else topic)
        if topic in (own, topic_of(own)):
            return own
    raise BadValue("message_id", message_id, f"the id of a message of topic {topic}")


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

    @cached_property
    def identities(self) -> list[Identity | None]:
        """How its producer knows each; None: it did not say."""
        names, numbers = (self._values(self._table.column(name)) for name in IDENTITY)
        return [identity_of(*each) for each in zip(names, numbers, self.published, strict=True)]

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
        payload = self._window.payloads[self._number]
        if payload is not None:
            return self._schema.decode(payload)
        return b"" if isinstance(self._schema, BytesSchema) else None

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
        return MessageId.of(self.topic_name(), *self.position, self._window.identities[self._number])

    def producer_name(self) -> str:
        """The name of its producer; empty when that did not say it."""
        identity = self._window.identities[self._number]
        return "" if identity is None else identity.producer_name

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
