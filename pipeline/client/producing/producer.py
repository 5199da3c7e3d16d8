"""Producing: messages of one topic, sent by the client's one writer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pipeline.client.checks import Closing, span_ms, time_us
from pipeline.client.choices import PartitionsRoutingMode
from pipeline.client.clock import clock_of
from pipeline.client.exceptions import (
    ClientError,
    InvalidConfiguration,
    InvalidMessage,
    MemoryBufferIsFull,
    ProducerQueueIsFull,
    Result,
)
from pipeline.client.message import RESERVED, MessageId
from pipeline.client.options import NOT_RUN, SEND, refuse, spelled_out
from pipeline.client.producing.limits import Bounds, check_texts
from pipeline.client.producing.queue import Queue
from pipeline.client.producing.rows import Content, Done, MessageRouter, Sender, as_received
from pipeline.client.schema import Schema
from pipeline.config.errors import BadValue, check_text
from pipeline.subscriptions.records import EVENT_TIME, ORDERING_KEY, REPLACES
from pipeline.subscriptions.topicnames import partition_for, topic_of
from state.buckets import MAX_TIME

if TYPE_CHECKING:
    import asyncio

Callback = Callable[[Result, MessageId | None], object]
"""Told how a message of `send_async` fared, in the client's writing thread: it should be quick."""


class How(TypedDict, total=False):
    """What may be said of a message beside its content; all of it may be left out.

    Attributes:
        properties: texts by name. Two names are taken: `delayline.event_time` and `delayline.ordering_key`.
        partition_key: its key. The hash of it names the partition. An empty one is none, as in the reference.
        ordering_key: by which a key-shared subscription orders, instead of the key; the same.
        sequence_id: its number, larger than the one before; else they are counted. A producer with a name sends no
            number twice.
        event_timestamp: when it happened, ms since the epoch.
        deliver_at: not before this time; with its time zone, or ms since 1970, as the reference has it.
        replaces: the key of what this message takes the place of, and its own key: none of the topic's messages comes
            that waits with that key (`docs/keys.md`).
        deliver_after: not before so long after now; a negative span, which is over, means at once. Not together with
            `deliver_at`.
        replication_clusters: None; refused, since a warehouse is not replicated by messages.
        disable_replication: False; the same.
    """

    properties: Mapping[str, str] | None
    partition_key: str | None
    ordering_key: str | None
    sequence_id: int | None
    event_timestamp: int | None
    deliver_at: datetime | int | None
    deliver_after: timedelta | None
    replaces: str | None
    replication_clusters: list[str] | None
    disable_replication: bool


class Route:
    """The senders of a producer: one, or one for each partition.

    A router says where a message goes. Without one a key always goes to the same partition, until there are more of
    them, and without a key partitions take turns, or all messages go to one that is drawn.

    Attributes:
        senders: in the order of partitions.
    """

    def __init__(
        self, senders: Sequence[Sender], mode: PartitionsRoutingMode, router: MessageRouter | None = None
    ) -> None:
        """Begin with these partitions."""
        self.senders, self._router = list(senders), router
        self._turn = None if mode is PartitionsRoutingMode.UseSinglePartition else count()
        self._single = random.randrange(len(self.senders))  # noqa: S311 - spreads producers, not a secret

    def of(self, content: Content) -> Sender:
        """The sender of a message.

        Raises:
            InvalidConfiguration: the router does not give the number of a partition.
        """
        senders = self.senders
        if len(senders) == 1:
            return senders[0]
        if self._router is not None:
            number = int(self._router(as_received(content, topic_of(senders[0].topic)), len(senders)))
            if not 0 <= number < len(senders):
                raise InvalidConfiguration("message_router", number, f"it must give 0..{len(senders) - 1}")
            return senders[number]
        if content.key is not None:
            return senders[partition_for(content.key, 0, len(senders))]
        return senders[(self._single if self._turn is None else next(self._turn)) % len(senders)]

    def grow(self, topics: Sequence[str], make: Callable[[str], Sender]) -> None:
        """Take partitions that are new."""
        known = {each.topic for each in self.senders}
        new = [make(each) for each in topics if each not in known]
        self.senders = [*self.senders, *new]


class Producer(Closing):
    """Sends messages to a topic. `Client.create_producer` makes it; every method may be called from any thread."""

    def __init__(
        self, topic: str, route: Route, schema: Schema, queue: Queue, forget: Callable[[Producer], None], bounds: Bounds
    ) -> None:
        """Belong to a client.

        Args:
            topic: its topic.
            route: has a sender for each partition of it.
            schema: encodes contents.
            queue: of the client.
            forget: called when it is closed.
            bounds: what ingest takes at most.
        """
        self._bounds, self._clock = bounds, clock_of(bounds.root)
        self._topic, self._route, self._schema, self._queue, self._forget = topic, route, schema, queue, forget
        self._name, self._closed = route.senders[0].name, False

    def topic(self) -> str:
        """Where its messages go."""
        return self._topic

    def producer_name(self) -> str:
        """Its name: the one that was given, or one that was drawn."""
        return self._name

    def last_sequence_id(self) -> int:
        """The largest number of a message that the store has, also from an earlier producer of this name; -1: none.

        Each partition has numbers of its own: this is the largest of them.
        """
        return max(each.acked for each in self._route.senders)

    def is_connected(self) -> bool:
        """Whether it takes messages. There is no connection: it does until it is closed."""
        return not self._closed

    @spelled_out(How)
    def send(self, content: object, **how: Unpack[How]) -> MessageId:
        """Send a message; wait until the store has it.

        Args:
            content: what the schema encodes; without one, bytes. None: a message without a value.
            **how: see `How`.

        Returns:
            Where it stands in `inbox`. Ingest gives it its position later.

        Raises:
            InvalidMessage: it cannot be as it is.
            MessageTooBig: its payload, its key or its properties are too large.
            AlreadyClosed: the producer or the client is closed.
            ProducerQueueIsFull: too many wait already, and the producer was not told to wait, too.
            Timeout: the store did not take it within `send_timeout_millis`.
            DelaylineError: the store refused it.
        """
        self._queue.may_wait("send")
        answer = Future[MessageId]()
        self.put(content, partial(answered, answer), how, hurry=True)
        return answer.result()

    @spelled_out(How)
    def send_async(self, content: object, callback: Callback | None, **how: Unpack[How]) -> None:
        """Send a message in the background.

        Args:
            content: what the schema encodes; without one, bytes. None: a message without a value.
            callback: told `Result.Ok` and the id when the store has the message, else the error and None. It runs in
                the thread that writes. None: `flush` raises what went wrong.
            **how: see `How`.

        Raises:
            InvalidMessage: it cannot be as it is.
            InvalidConfiguration: the callback is an `async def`.
            MessageTooBig: its payload, its key or its properties are too large.
            AlreadyClosed: the producer or the client is closed.
        """
        if iscoroutinefunction(callback):
            raise InvalidConfiguration("callback", callback, NOT_RUN)
        done = None if callback is None else partial(_call, callback)
        try:
            self.put(content, done, how)
        except (ProducerQueueIsFull, MemoryBufferIsFull) as error:
            if callback is None:
                raise
            callback(error.result, None)

    def put(self, content: object, done: Done | None, how: How, *, hurry: bool = False) -> None:
        """Send a message in the background, as `send_async` does; what it cannot take raises here.

        Raises:
            InvalidMessage: it cannot be as it is.
            MessageTooBig: its payload, its key or its properties are too large.
            AlreadyClosed: the producer or the client is closed.
            ProducerQueueIsFull: too many wait already, and the producer was not told to wait, too.
            MemoryBufferIsFull: the same of bytes.
        """
        number, built = self._built(content, how)
        self._queue.put(self._route.of(built), built, number, done, hurry=hurry)

    def flush(self) -> None:
        """Wait until all that was sent before is decided, and its callbacks were called.

        Raises:
            DelaylineError: the first error among messages without a callback.
        """
        self._queue.flush(self._route.senders)

    def close(self) -> None:
        """Flush, and take no more messages. A second call does nothing.

        Raises:
            DelaylineError: the first error among messages without a callback since the last flush.
        """
        self._closed = True
        for each in self._route.senders:
            self._queue.close(each)
        self._forget(self)
        self._queue.flush(self._route.senders)

    def _built(self, content: object, how: How) -> tuple[int | None, Content]:
        """The number of a message, if it has one, and the message.

        Raises:
            InvalidMessage: it cannot be as it is.
        """
        payload, published = None if content is None else self._schema.encode(content), self._clock.wall_us()
        size = 0 if payload is None else len(payload)
        if not how:
            self._bounds.check(size, 0)
            return None, Content(payload, published)
        refuse(SEND, how, _KNOWN)
        key, number = _key(how), how.get("sequence_id")
        if number is not None:
            _check("sequence_id", number)
        deliver = _deliver(how.get("deliver_at"), how.get("deliver_after"), published)
        self._bounds.check(size, 0 if deliver is None else max(0, -(-(deliver - published) // 1_000)))
        properties = _properties(how)
        check_texts(key, properties)
        return number, Content(payload, published, deliver, key, properties)


def answered(
    answer: Future[MessageId] | asyncio.Future[MessageId], error: Exception | None, message_id: MessageId | None
) -> None:
    """Tell who waits what became of a message; who was cancelled is told nothing."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(message_id or MessageId.earliest)


_KNOWN = frozenset(How.__annotations__) - frozenset(SEND)


def _call(callback: Callback, error: Exception | None, message_id: MessageId | None) -> None:
    known = error.result if isinstance(error, ClientError) else Result.UnknownError
    callback(Result.Ok if error is None else known, message_id)


def _deliver(at: datetime | int | None, after: timedelta | None, published: int) -> int | None:
    """The time asked for, in microseconds since the epoch."""
    if after is not None:
        if at is not None:
            raise InvalidMessage("deliver_after", after, "one of deliver_at and deliver_after")
        if not isinstance(after, timedelta):
            raise InvalidMessage("deliver_after", after, "a timedelta")
        now = -(-published // 1_000)
        # A span that is over means at once, however long ago it was.
        at = max(0, now + span_ms(after))
        if at > MAX_TIME:
            raise InvalidMessage("deliver_after", after, f"a timedelta of at most {MAX_TIME - now} ms")
    if at is None:
        return None
    try:
        return time_us("deliver_at", at)
    except BadValue as error:
        raise InvalidMessage(error.field, error.value, error.allowed) from error


def _key(how: How) -> str | None:
    key, replaces = how.get("partition_key"), how.get("replaces")
    _check_text("partition_key", key)
    _check_text("replaces", replaces)
    if replaces is not None and not replaces:
        raise InvalidMessage("replaces", replaces, "a key, which is not empty")
    if replaces is not None and key not in (None, "", replaces):
        raise InvalidMessage("partition_key", key, f"{replaces!r}, which `replaces` names, or nothing")
    return (key or None) if replaces is None else replaces


def _properties(how: How) -> dict[str, str] | None:
    asked = how.get("properties") or {}
    if not isinstance(asked, Mapping):
        raise InvalidMessage("properties", asked, "texts by name")
    properties: dict[Any, str] = dict(asked)
    for name, text in properties.items():
        if not isinstance(name, str) or name in RESERVED:
            raise InvalidMessage("properties", name, f"texts as names, and others than {' and '.join(RESERVED)}")
        _check_text("property", name)
        _check_text(f"property {name}", text)
    if (happened := how.get("event_timestamp")) is not None:
        _check("event_timestamp", happened)
        properties[EVENT_TIME] = str(happened)
    ordering = how.get("ordering_key")
    _check_text("ordering_key", ordering)
    if ordering:
        properties[ORDERING_KEY] = ordering
    if (replaces := how.get("replaces")) is not None:
        properties[REPLACES] = replaces
    return properties or None


def _check(field: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TIME:
        raise InvalidMessage(field, value, f"a whole number in 0..{MAX_TIME}")


def _check_text(field: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise InvalidMessage(field, value, "a text")
    try:
        check_text(field, value)
    except BadValue as error:
        raise InvalidMessage(field, value, error.allowed) from error
