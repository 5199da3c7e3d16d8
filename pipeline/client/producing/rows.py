"""What may be said of a producer, what it hands to the writer, and the rows of `inbox` that this becomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from pipeline.client.checks import check_limit
from pipeline.client.choices import PartitionsRoutingMode
from pipeline.client.message import Identity, Message, MessageId, Window
from pipeline.client.producing.inbox import drawn_name
from pipeline.client.producing.limits import check_name
from pipeline.client.schema import BytesSchema
from pipeline.delta.deltars import arrow_schema
from pipeline.subscriptions.topicnames import partition_of
from schemas import INBOX

Done = Callable[[Exception | None, MessageId | None], None]
"""Told what became of a message: an error, or its id."""
MessageRouter = Callable[[Message, int], int]
"""Gives the number of the partition to which a message goes, of so many."""
_LIMITS = {
    "send_timeout_millis": (30_000, 0),
    "max_pending_messages": (1_000, 1),
    "batching_max_messages": (1_000, 1),
    "batching_max_allowed_size_in_bytes": (128 << 10, 1),
    "batching_max_publish_delay_ms": (10, 0),
}
"""For each limit what holds if nothing is said, and the least that may be said."""


class HowProduced(TypedDict, total=False):
    """What may be said of a producer beside topic, name and schema; all of it may be left out.

    Attributes:
        initial_sequence_id: the first message has the next number; else it goes on from what the log has of the name.
        send_timeout_millis: a message that the store did not take for so long fails; 0: it is tried for ever. 30 000
            if nothing is said.
        max_pending_messages: so many messages may wait for the store, for each partition; 1 000 if nothing is said.
        block_if_queue_full: who would be one too many waits, instead of failing.
        batching_enabled: messages of `send_async` wait a little for others to go in one commit; they do if nothing is
            said.
        batching_max_messages: so many do not wait for more; 1 000 if nothing is said.
        batching_max_allowed_size_in_bytes: nor do so many bytes; 128 kB if nothing is said.
        batching_max_publish_delay_ms: nor does anything wait for longer; 10 if nothing is said.
        message_routing_mode: to which partition messages without a key go; in turn if nothing is said.
        message_router: called with each message of a topic that has partitions, as it will be received but without an
            id, and the number of partitions; gives the number of the one to which it goes.
    """

    initial_sequence_id: int | None
    send_timeout_millis: int
    max_pending_messages: int
    block_if_queue_full: bool
    batching_enabled: bool
    batching_max_messages: int
    batching_max_allowed_size_in_bytes: int
    batching_max_publish_delay_ms: int
    message_routing_mode: PartitionsRoutingMode
    message_router: MessageRouter | None


@dataclass(eq=False)
class Sender:
    """A producer as the writer sees it: what it asked for, and how far its messages are.

    Only the writer changes the second half, under its lock.

    Attributes:
        topic: where its messages go.
        name: its name.
        named: the caller gave the name: its last sequence id is noted in the log.
        timeout_s: so long the store may take for a message; 0: any time.
        most: so many of its messages may wait.
        blocks: who would be one too many waits; else it is refused.
        delay_s: so long a message may wait for others to go with it.
        batch: so many do not wait for more.
        batch_bytes: nor do so many bytes.
        counts_on: the caller said with which number it begins, so the numbers that are counted are the caller's.
        numbered: the largest sequence id that was given to a message.
        queued: the largest one of a message that waits or was sent.
        acked: the largest one of a message that the log has; -1: none.
        waiting: messages that wait.
        waiting_bytes: of their payloads.
        put: messages that were ever taken from it.
        decided: messages of which it was told what became of them.
        error: the first error since the last flush that nobody was told of.
        closed: it takes no more.
    """

    topic: str
    name: str
    named: bool
    timeout_s: float
    most: int
    blocks: bool
    delay_s: float
    batch: int
    batch_bytes: int
    counts_on: bool = False
    numbered: int = -1
    queued: int = -1
    acked: int = -1
    waiting: int = 0
    waiting_bytes: int = 0
    put: int = 0
    decided: int = 0
    error: Exception | None = None
    closed: bool = False

    @property
    def transaction(self) -> str:
        """The application id of its transactions in the log of `inbox`."""
        return f"delayline:producer:{quote(self.topic, safe='')}:{quote(self.name, safe='')}"


def sender_of(topic: str, name: str | None, how: HowProduced) -> Sender:
    """A sender that has sent nothing.

    Raises:
        InvalidConfiguration: a limit is none, or too small.
        BadValue, MessageTooBig: the name is no text, or too long.
    """
    check_name(name)
    limits = {option: check_limit(option, how.get(option, value), low) for option, (value, low) in _LIMITS.items()}
    return Sender(
        topic,
        name or drawn_name(),
        named=bool(name),
        timeout_s=limits["send_timeout_millis"] / 1_000,
        most=limits["max_pending_messages"],
        blocks=how.get("block_if_queue_full", False),
        delay_s=limits["batching_max_publish_delay_ms"] / 1_000,
        batch=limits["batching_max_messages"] if how.get("batching_enabled", True) else 1,
        batch_bytes=limits["batching_max_allowed_size_in_bytes"],
        counts_on=how.get("initial_sequence_id") is not None,
    )


class Content(NamedTuple):
    """A message as its sender states it.

    Attributes:
        payload: the bytes; None: there is no value.
        published: when it was sent, in microseconds since the epoch.
        deliver: the time asked for, the same; None: at once.
        key: travels with it.
        properties: what travels beside the payload.
    """

    payload: bytes | None
    published: int
    deliver: int | None = None
    key: str | None = None
    properties: dict[str, str] | None = None

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return 0 if self.payload is None else len(self.payload)


class Entry(NamedTuple):
    """A message that waits for the store.

    Attributes:
        sender: whose it is.
        content: what is to be written.
        sequence_id: its number among those of its producer.
        stated: the caller gave the number, or the one from which it is counted.
        repeated: the number is that of a message which waits, too: this one is not written.
        queued: when it was handed over, by the monotonic clock, in seconds.
        done: told what became of it, in the writer's thread; None: the next flush is told of an error.
    """

    sender: Sender
    content: Content
    sequence_id: int
    stated: bool
    repeated: bool
    queued: float
    done: Done | None

    @property
    def message_id(self) -> MessageId:
        """Its name, by which it can be found as soon as the store has it."""
        # A message whose number was sent before may be another one, sent at another time.
        published = -1 if self.repeated else self.content.published
        identity = Identity(self.sender.name, self.sequence_id, published)
        return MessageId(partition_of(self.sender.topic), topic=self.sender.topic, identity=identity)


def inbox_rows(entries: Sequence[Entry]) -> pa.Table:
    """The rows of `inbox` for some messages, in their order."""
    senders = [(each.sender.topic, each.sender.name, each.sequence_id) for each in entries]
    return _rows(senders, [each.content for each in entries])


def as_received(content: Content, topic: str) -> Message:
    """A message that is to be sent, as whoever receives it will see it; it has no id yet."""
    nowhere, none = np.full(1, -1), np.zeros(1, np.int64)
    return Message(
        Window(_rows([(topic, None, None)], [content]), nowhere, nowhere, none, none), 0, BytesSchema(), topic
    )


def _rows(senders: Sequence[tuple[str, str | None, int | None]], contents: Sequence[Content]) -> pa.Table:
    """Rows by the topic, the name of the producer and the sequence id of each, and its content."""
    topics, names, numbers = zip(*senders, strict=True)
    schema = arrow_schema(INBOX)
    columns: dict[str, Sequence[object]] = {
        "topic": topics,
        "message_key": [each.key for each in contents],
        "properties": _items([each.properties for each in contents]),
        "publish_time": [each.published for each in contents],
        "deliver_at": [each.deliver for each in contents],
        "deliver_after_ms": [None] * len(contents),
        "payload": [each.payload for each in contents],
        "producer_name": names,
        "sequence_id": numbers,
    }
    # Made in their types: a cast would load Arrow's functions of columns, which takes longer than to send.
    return pa.Table.from_arrays([pa.array(columns[each.name], each.type) for each in schema], schema=schema)


def _items(values: Sequence[dict[str, str] | None]) -> list[list[tuple[str, str]] | None]:
    """Maps as Arrow takes them; none where all are empty."""
    return [None if each is None else list(each.items()) for each in (values if any(values) else [None] * len(values))]
