"""Sending: rows appended to `inbox`."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa

from pipeline.client.checks import EPOCH, MOST, time_us
from pipeline.client.clock import clock_of
from pipeline.client.producing.limits import Bounds, check_name, check_texts
from pipeline.config.errors import BadValue, check_kind, check_text
from pipeline.delta.deltars import append, rows_of
from pipeline.storage.texts import ADDED_BYTES
from pipeline.subscriptions.topicnames import plain_topic
from schemas import INBOX


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to send.

    Attributes:
        topic: where to; not empty.
        payload: the bytes to deliver; None: there is no value.
        publish_time: when it was sent, with a time zone; None: when `send` is called.
        key: travels with the message; the order of deliveries does not depend on it.
        properties: what travels beside the payload.
        deliver_at: not before this time; with its time zone, or ms since 1970, as `Producer.send` takes it, too.
        deliver_after_ms: not before so many ms after `publish_time`. Not together with `deliver_at`.
        producer_name: by it and the next one the message can be named later (`MessageId.sent`); None: it cannot.
        sequence_id: its number among those of the producer.

    Raises:
        MessageTooBig: the key or the properties are too long.
        BadValue: topic empty, a text that is not Unicode, a time without a zone, both forms of delay, a number that is
            negative, too large or none, or a payload that is no bytes. Ingest would refuse such a row later, with a row
            in `rejected_ingest`; here the sender learns it at once.
    """

    topic: str
    payload: bytes | None
    publish_time: datetime | None = None
    key: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    deliver_at: datetime | int | None = None
    deliver_after_ms: int | None = None
    producer_name: str | None = None
    sequence_id: int | None = None

    def __post_init__(self) -> None:
        """Refuse what ingest would reject."""
        check_text("topic", self.topic)
        if not plain_topic(self.topic).strip():
            raise BadValue("topic", self.topic, "a name")
        object.__setattr__(self, "topic", plain_topic(self.topic))
        check_text("key", self.key)
        check_kind("properties", self.properties, Mapping, "texts by name")
        check_name(self.producer_name)
        for name, text in self.properties.items():
            check_kind("property", name, str, "a text")
            check_text("property", name)
            check_text(f"property {name}", text)
        # A dead letter that is put back has what settle wrote into it.
        check_texts(self.key, self.properties, ADDED_BYTES)
        if self.publish_time is not None:
            check_kind("publish_time", self.publish_time, datetime, "a time with its time zone")
            time_us("publish_time", self.publish_time)
        if isinstance(at := self.deliver_at, datetime):
            time_us("deliver_at", at)
        elif at is not None:
            object.__setattr__(self, "deliver_at", EPOCH + timedelta(microseconds=time_us("deliver_at", at)))
        if self.deliver_at is not None and self.deliver_after_ms is not None:
            raise BadValue("deliver_after_ms", self.deliver_after_ms, "one of deliver_at and deliver_after_ms")
        check_kind("payload", self.payload, (bytes, bytearray, memoryview, type(None)), "bytes")
        for name in ("deliver_after_ms", "sequence_id"):
            _check_long(name, getattr(self, name))

    @property
    def deliver_time(self) -> datetime | None:
        """`deliver_at`, which is a time by then, in whichever form it was given."""
        return self.deliver_at if isinstance(self.deliver_at, datetime) else None

    @property
    def delay_ms(self) -> int:
        """So long after it was sent it is to come, when it says both times; else 0, which is known at ingest, ms."""
        if self.deliver_time is None or self.publish_time is None:
            return 0
        return max(0, -((self.publish_time - self.deliver_time) // timedelta(milliseconds=1)))


def _check_long(name: str, value: object) -> None:
    """Refuse what is no whole number that a column of longs holds, 0 or more; None: there is none."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST):
        raise BadValue(name, value, f"a whole number in 0..{MOST}")


def drawn_name() -> str:
    """A name for a producer that was given none."""
    return f"delayline-{secrets.token_hex(8)}"


def send(root: str, messages: Sequence[OutgoingMessage]) -> int:
    """Append messages to the inbox in one commit; give how many.

    A message that does not say when it was sent is sent now: a delay counts from this call, also while no job runs.

    Raises:
        NoWarehouse: the folder has no inbox.
        MessageTooBig: a payload is larger than the job takes; nothing was sent.
        InvalidMessage: the same of a delay.
        ColumnGone: a producer dropped a column of it.
        StillConflicting: other writers were faster every time; nothing was sent.
    """
    check = checker(root)
    check_kind("messages", messages, Sequence, "a list of messages")
    for each in messages:
        check_kind("messages", each, OutgoingMessage, "a list of messages")
        check(each)
    if messages:
        append(root, INBOX, rows_of_messages(messages, clock_of(root).wall_time()))
    return len(messages)


def checker(root: str) -> Callable[[OutgoingMessage], None]:
    """A function that refuses what the job would reject: it raises `MessageTooBig` or `InvalidMessage`."""
    bounds = Bounds(root)
    return lambda message: bounds.check(len(message.payload or b""), message.deliver_after_ms or message.delay_ms)


def rows_of_messages(messages: Sequence[OutgoingMessage], sent_at: datetime | None = None) -> pa.Table:
    """Messages as rows of `inbox`; when those were sent that do not say it. None: ingest says it when it takes them."""
    return rows_of(INBOX, [_row(message, sent_at) for message in messages])


def _row(message: OutgoingMessage, sent_at: datetime | None) -> dict[str, object]:
    return {
        "topic": message.topic,
        "message_key": message.key,
        "properties": dict(message.properties) or None,
        "publish_time": message.publish_time or sent_at,
        "deliver_at": message.deliver_time,
        "deliver_after_ms": message.deliver_after_ms,
        "payload": message.payload,
        "producer_name": message.producer_name,
        "sequence_id": message.sequence_id,
    }
