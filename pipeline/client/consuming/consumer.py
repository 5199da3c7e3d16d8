"""A consumer, with the names of the reference's Python client."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from threading import Condition
from typing import TypeVar

import pyarrow as pa

from pipeline.client.checks import MOST, PROCESS, check_process, checked_count, checked_delay, checked_timeout
from pipeline.client.consuming.batch import Batch, Kept, taken_rows
from pipeline.client.consuming.consumerlistener import Announcer, Receiver
from pipeline.client.consuming.consumertopics import Named, address_of, counts, fail, placed, settle, sought
from pipeline.client.consuming.engine import Engine
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.received import Received
from pipeline.client.consuming.topicconsumer import TopicConsumer
from pipeline.client.exceptions import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidMessage,
    OperationNotSupported,
    Timeout,
)
from pipeline.client.message import Message, MessageId
from pipeline.client.subscribing.seeking import begin_anew, checked_where
from pipeline.client.tables.job import JobHint
from pipeline.client.tables.rows import COLUMNS
from pipeline.client.tables.topiclog import TopicLog
from pipeline.storage.arrays import arrow_schema
from schemas import DELIVERIES

_LOOK_S = 1.0
"""Who waits looks so often, whether he is told of something or not."""
_SEEK_MS = 30_000
"""So long the service may take to begin what was sought."""
_ARROW_ROWS = 1 << 16
_LISTENER = "message_listener"
"""The option that has messages given to a function."""
_SCHEMA = pa.schema([arrow_schema(DELIVERIES.columns).field(name) for name in COLUMNS])
T = TypeVar("T")


class Consumer(Receiver):
    """Gets the messages of a subscription, and acknowledges them. Every method may be called from any thread.

    What is not acknowledged comes again: after `negative_acknowledge`, after the acknowledgement timeout, or for
    another consumer when this one is gone.

    Attributes:
        engine: what turns it.
        topic_consumers: what it is for each of its topics; none: no topic fits its pattern yet.
        options: how it works.
        lock: guards what it has for the application.
        events: tells its `consumer_event_listener`.
    """

    def __init__(
        self,
        engine: Engine,
        subscription: str,
        options: ConsumerOptions,
        on_close: Callable[[Consumer], None] | None = None,
        on_unsubscribe: Callable[[Consumer], None] | None = None,
    ) -> None:
        """A consumer of no topic yet; `open_consumer` makes it, and lets it take on topic consumers with its lock.

        Args:
            engine: which turns the topic consumers.
            subscription: of each topic.
            options: how it works; it has a name.
            on_close: called once it is closed.
            on_unsubscribe: takes the subscription out of the registry.
        """
        self.engine, self.options, self.lock, self._subscription = engine, options, Condition(), subscription
        self.root = engine.root
        self.topic_consumers, self._first = list[TopicConsumer](), 0
        self.kept = Kept(self.lock)
        self._on_close, self._on_unsubscribe = on_close, on_unsubscribe
        self._closed, self.events, self._process = False, Announcer(), PROCESS.pid
        weakref.finalize(self, self.events.end).atexit = False

    # ---- who it is

    def topic(self) -> str:
        """The topic, as the program spells it; of several ones their names, with commas between."""
        return ",".join(each.spelled for each in self.topic_consumers)

    def subscription_name(self) -> str:
        """The subscription."""
        return self._subscription

    def consumer_name(self) -> str:
        """The name by which others see it."""
        return self.options.consumer_name

    def is_connected(self) -> bool:
        """Whether it has a part of its subscription now."""
        return not self._closed and any(each.owns for each in self.topic_consumers)

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits for one.

        Args:
            timeout_millis: for so long at most; None: for ever.

        Raises:
            Timeout: none came.
            AlreadyClosed: the consumer is closed.
            SubscriptionNotFound: somebody has ended the subscription, of all its topics.
            AlreadySubscribed: the same, and it was made anew with another type.
            OperationNotSupported: a listener gets the messages.
        """
        return self._received("receive", _LISTENER, timeout_millis)

    def next_message(self, timeout_millis: int | None) -> Received | None:
        """The next message; None: none came in time.

        Raises:
            AlreadyClosed: the consumer is closed.
            OperationNotSupported: a listener gets the messages.
        """
        self._refuse_beside(_LISTENER, "receive")
        return self._next(checked_timeout("timeout_millis", timeout_millis))

    def batch_receive(self, max_num_messages: int | None = None, timeout_millis: int | None = None) -> list[Message]:
        """Several messages, as soon as one of the limits is reached; none when none came in time.

        What a call had when it was interrupted, the next `receive` or `batch_receive` gives.

        Args:
            max_num_messages: so many at most; None: by the policy of the consumer; 0 or a negative number is no limit.
            timeout_millis: waits for so long; None: by the policy of the consumer; a negative number is no limit.

        Raises:
            AlreadyClosed: the consumer is closed.
            OperationNotSupported: a listener gets the messages.
        """
        self._refuse_beside(_LISTENER, "batch_receive")
        batch = Batch(self.options.batch_receive_policy, max_num_messages, timeout_millis)
        with self.kept.unless_done(batch):
            while batch.has_room and (message := self._next(batch.left_ms)) is not None:
                batch.add(message)
        return list(batch.messages)

    def batch_receive_arrow(self, max_num_messages: int = _ARROW_ROWS, timeout_millis: int | None = None) -> pa.Table:
        """Several messages as rows, without an object for each; no rows when none came in time.

        The columns are those of `deliveries` that a message has. Give the table, or some rows of it, to `acknowledge`.

        Args:
            max_num_messages: so many at most; 0 or a negative number is no limit: all that was read ahead.
            timeout_millis: waits for so long for the first one; None: for ever.

        Raises:
            AlreadyClosed: the consumer is closed.
            OperationNotSupported: a listener gets the messages.
        """
        self._refuse_beside(_LISTENER, "batch_receive_arrow")
        most = checked_count(max_num_messages)
        found = self._waited(lambda: self._take_rows(most), checked_timeout("timeout_millis", timeout_millis))
        return _SCHEMA.empty_table() if found is None else found

    # ---- what became of them

    def acknowledge(self, message: Named | pa.Table) -> None:
        """A message, or all of a table, is done with. To say so twice changes nothing.

        Raises:
            AlreadyClosed: the consumer is closed.
            InvalidMessage: it is nothing that this consumer gets.
            Timeout: it is an id that `send` gave, and the job has not taken the message.
        """
        if isinstance(message, MessageId):
            message = placed(self.root, self.topic_consumers, message)
        with self._opened():
            settle(self.topic_consumers, message)

    def acknowledge_cumulative(self, message: Named) -> None:
        """All that this consumer was handed up to a message is done with, in the order in which it was handed.

        A message that came again counts where it came last. What failed and still waits is done with, too, as in the
        reference. A message that was received before a seek says nothing. An id does not know when it was received: it
        names the message as it was handed since.

        Raises:
            AlreadyClosed: the consumer is closed.
            CumulativeAcknowledgementNotAllowedError: others get messages of this subscription at the same time.
            InvalidMessage: this consumer was not handed it.
        """
        message = placed(self.root, self.topic_consumers, message)
        with self._opened():
            topic_consumer, place = address_of(self.topic_consumers, message)
            if not self.options.kind.alone:
                raise CumulativeAcknowledgementNotAllowedError(self.subscription_name(), self.options.kind)
            if counts(topic_consumer, message) and not topic_consumer.tracker.acknowledge_upto(place):
                raise InvalidMessage("message", str(message), "one that this consumer was handed and has not settled")

    def negative_acknowledge(self, message: Named | pa.Table, delay_ms: int | timedelta | None = None) -> None:
        """A message, or each of a table, failed and is to come again, unless it has come again since it was received.

        Args:
            message: the message, its id, or rows of `batch_receive_arrow`.
            delay_ms: after so long, ms or a `timedelta`, and at once if that has passed; None: by the consumer's
                `negative_ack_redelivery_delay_ms`, or else the subscription's backoff.

        Raises:
            AlreadyClosed: the consumer is closed.
            InvalidMessage: it is nothing that this consumer gets.
            InvalidConfiguration: the delay is none, or too long.
        """
        usual = self.options.negative_ack_redelivery_delay_ms
        after_ms = usual if delay_ms is None else checked_delay("delay_ms", delay_ms)
        message = placed(self.root, self.topic_consumers, message)
        with self._opened():
            fail(self.topic_consumers, message, after_ms)

    def reconsume_later(self, message: Named, delay_ms: int | timedelta) -> None:
        """A message is to come again after a delay (ms, or a `timedelta`). It counts as a redelivery.

        Raises:
            AlreadyClosed: the consumer is closed.
            InvalidMessage: it is nothing that this consumer gets.
            InvalidConfiguration: the delay is none, or too long.
        """
        self.negative_acknowledge(message, checked_delay("delay_ms", delay_ms))

    def redeliver_unacknowledged_messages(self) -> None:
        """All that was handed out and not acknowledged comes again at once.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        with self._opened():
            self.kept.drop(self.topic_consumers)
            for topic_consumer in self.topic_consumers:
                topic_consumer.tracker.fail_all()

    # ---- places in the log

    def get_last_message_id(self) -> MessageId:
        """The newest message that the log of the topic has, due or not; of a topic without any `MessageId.earliest`.

        Raises:
            AlreadyClosed: the consumer is closed.
            OperationNotSupported: it has several topics.
        """
        self._opened()
        if len(self.topic_consumers) != 1:
            raise OperationNotSupported("get_last_message_id", "each topic has a log of its own")
        return TopicLog(self.root, self.topic_consumers[0].topic).last_id()

    def seek(self, messageid: MessageId | int) -> None:
        """Let the subscription begin anew at a place of the log, for all its consumers; waits until it has.

        All behind a message come, and with `start_message_id_inclusive` the message itself, each at its time. What was
        open is dropped, and nothing said of it counts any more. What retention has deleted does not come.

        Args:
            messageid: an id (`MessageId.earliest`, `MessageId.latest`, or that of a message; of several topics only the
                topic of the message is sought), or a time of publication in ms since the epoch.

        Raises:
            AlreadyClosed: the consumer is closed.
            InvalidMessage: it is no id of its topics, or neither an id nor a time.
            SubscriptionNotFound: somebody has ended the subscription.
            Timeout: the service does not run. The subscription is sought as soon as it does.
        """
        where = checked_where(placed(self.root, self.topic_consumers, messageid))
        with self._opened():
            topic_consumers = sought(self.topic_consumers, where)
        begin = partial(begin_anew, self.root, inclusive=self.options.start_message_id_inclusive)
        lives = {each: begin(*each.named, where) for each in topic_consumers}
        with self._opened():
            self.kept.drop(topic_consumers)
        if not self._waited(lambda: all(each.life >= life for each, life in lives.items()) or None, _SEEK_MS):
            raise Timeout("seek: the job does not run: it", _SEEK_MS, JobHint(self.root))

    def pause_message_listener(self) -> None:
        """Give the listener no more messages until `resume_message_listener`."""
        if self._worker is not None:
            self._worker.pause()

    def resume_message_listener(self) -> None:
        """Go on giving messages to the listener."""
        if self._worker is not None:
            self._worker.resume()

    # ---- the end

    def unsubscribe(self) -> None:
        """Close, and take the subscription out of the registry: its messages are not kept for it any more.

        Raises:
            AlreadyClosed: the consumer is closed.
        """
        with self._opened():
            forget = self._on_unsubscribe
        self.close()
        if forget is not None:
            forget(self)

    def close(self) -> None:
        """Say what was acknowledged, and leave; others get the rest at once. A second call does nothing.

        Raises:
            DelaylineError: what was acknowledged cannot be appended.
        """
        if PROCESS.pid != self._process:
            return
        # What a listener has now it may still acknowledge.
        self._end_listening(self.lock)
        with self.lock:
            if self._closed:
                return
            self._closed = True
            self.lock.notify_all()
        try:
            self.engine.remove(self.topic_consumers)
        finally:
            self.events.end()
            if self._on_close is not None:
                self._on_close(self)

    def take_on(self, topic_consumers: Sequence[TopicConsumer]) -> None:
        """Get messages of more topics, with the same lock; a consumer that is closed lets them go."""
        with self.lock:
            if not self._closed:
                self.topic_consumers = [*self.topic_consumers, *topic_consumers]
                self._let_go_of(topic_consumers)
                return
        self.engine.remove(topic_consumers)

    def _let_go_of(self, topic_consumers: Sequence[TopicConsumer]) -> None:
        """When nobody has this consumer any more, its slots are for others."""
        weakref.finalize(self, self.engine.forget, tuple(topic_consumers)).atexit = False

    def _opened(self) -> Condition:
        check_process(self._process, "this call")
        if self._closed:
            raise AlreadyClosed("consumer")
        return self.lock

    def _next(self, timeout_millis: int | None) -> Received | None:
        return self._waited(self._counting(self._take), timeout_millis)

    def _has_queued(self) -> bool:
        with self.lock:
            return any(each.tracker.queue.size and not each.tracker.is_paused for each in self.topic_consumers)

    def _waited(self, take: Callable[[], T | None], timeout_millis: int | None) -> T | None:
        """What `take` gives, as soon as it gives something; None: it did not in time."""
        ends = None if timeout_millis is None else time.monotonic() + timeout_millis / 1_000
        woken = False
        check_process(self._process, "receive")
        with self.lock:
            while True:
                if self._closed:
                    raise AlreadyClosed("consumer")
                found = take()
                if found is not None:
                    return found
                failures = [each.failure for each in self.topic_consumers if each.failure is not None]
                if failures and len(failures) == len(self.topic_consumers):
                    raise failures[0]
                if not woken:
                    self.engine.wake()
                left = _LOOK_S if ends is None else min(_LOOK_S, ends - time.monotonic())
                if left <= 0 or (self._worker is not None and self._worker.ends):
                    return None
                woken = self.lock.wait(left)

    def _take(self) -> Received | None:
        if (kept := self.kept.take()) is not None:
            return kept
        for topic_consumer in self._in_turn():
            found = topic_consumer.tracker.take_one(topic_consumer)
            if found is not None:
                if topic_consumer.tracker.queue.size == self.options.receiver_queue_size // 2:
                    self.engine.wake()
                return found
        return None

    def _take_rows(self, most: int) -> pa.Table | None:
        rows, is_low = taken_rows(self._in_turn(), most if most > 0 else MOST, self.options.receiver_queue_size)
        if is_low:
            self.engine.wake()
        return rows

    def _in_turn(self) -> Iterable[TopicConsumer]:
        """The topic consumers; another one is first each time."""
        if len(self.topic_consumers) == 1:
            return self.topic_consumers
        self._first = (self._first + 1) % max(1, len(self.topic_consumers))
        return self.topic_consumers[self._first :] + self.topic_consumers[: self._first]
