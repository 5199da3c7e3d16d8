"""The client: makes producers, consumers and readers of a warehouse. Names and defaults are those of the reference."""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Unpack

from pipeline.client.checks import Closing, answering, check_limit, checked_topic, root_of
from pipeline.client.choices import ConsumerType, InitialPosition, PartitionsRoutingMode, RegexSubscriptionMode
from pipeline.client.commanding.commander import Commander
from pipeline.client.consuming.arguments import HowConsumed
from pipeline.client.insight.looker import Looker
from pipeline.client.message import MessageId
from pipeline.client.options import CLIENT, CONSUMER, PRODUCER, READER, check_kinds, refuse, spelled_out
from pipeline.client.producing.limits import Bounds
from pipeline.client.producing.producer import Producer, Route
from pipeline.client.producing.rows import HowProduced, Sender, sender_of
from pipeline.client.producing.writer import Writer
from pipeline.client.recurring import Recurring, each_of
from pipeline.client.schema import BytesSchema, Schema
from pipeline.client.subscribing.policysetting import SetsPolicies
from pipeline.client.subscribing.schedulesetting import SetsSchedules
from pipeline.client.subscribing.subscriptions import unsubscribe
from pipeline.client.tables.partitions import expanded, topic_partitions
from pipeline.config.errors import NoWarehouse
from pipeline.config.lazymodule import LazyModule
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.topicnames import plain_topic, spelled_like, topic_of
from schemas import CURSORS
from state import DelaylineError
from state.leases import MAX_PRIORITY

if TYPE_CHECKING:
    from pipeline.client.consuming import opening, reader, registering
    from pipeline.client.consuming.consumer import Consumer
    from pipeline.client.consuming.engine import Engine
    from pipeline.client.consuming.reader import Reader, ReaderListener
    from pipeline.client.subscribing import patterns
    from pipeline.client.subscribing.patterns import ConsumedTopics
    from pipeline.client.tables import topiclog
    from pipeline.client.tables.topiclog import TopicLog
else:
    opening, reader, registering = (
        LazyModule(f"{__package__}.consuming.{each}") for each in ("opening", "reader", "registering")
    )
    patterns = LazyModule(f"{__package__}.subscribing.patterns")
    topiclog = LazyModule(f"{__package__}.tables.topiclog")

_LOG = logging.getLogger(__name__)
_BYTES = BytesSchema()
_WHOLE: HowConsumed = {"initial_position": InitialPosition.Earliest}
"""What is new comes from its first message on."""
_LOOK_S, _PATTERN_LOOK_S = 60, 1
"""New partitions, and new topics of a pattern, are noticed within so long."""


class Client(SetsPolicies, SetsSchedules, Commander, Looker, Closing):
    """Everything that a program does with a warehouse. Every method may be called from any thread.

    All producers of a client share one writing thread, so a program needs one client for a warehouse.
    """

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: int = 30,
        memory_limit_bytes: int = 0,
        stats_interval_in_seconds: int = 600,
        **refused: object,
    ) -> None:
        """Look at nothing yet.

        Args:
            service_url: the warehouse: a folder, `file:///...`, `s3://...`, `gs://...`, `abfss://...`.
            operation_timeout_seconds: so long a subscription may take to be registered.
            memory_limit_bytes: of contents that wait to be sent; 0: any number.
            stats_interval_in_seconds: so often the log gets a line with figures, at level INFO; 0: never.
            **refused: options of the reference that cannot be had: their defaults are taken, other values are refused.

        Raises:
            InvalidUrl: it is not the address of a warehouse.
            InvalidConfiguration: an option has a value that cannot be followed; the message says why.
        """
        refuse(CLIENT, refused)
        check_limit("operation_timeout_seconds", operation_timeout_seconds)
        check_limit("memory_limit_bytes", memory_limit_bytes)
        check_limit("stats_interval_in_seconds", stats_interval_in_seconds)
        super().__init__(root_of(service_url))
        self._timeout_s, self._stats_s = operation_timeout_seconds, stats_interval_in_seconds
        self._writer = Writer(self._root, memory_limit_bytes, stats_interval_in_seconds)
        self._made: list[Producer | Reader] = []
        self._consumers: weakref.WeakSet[Producer | Consumer | Reader] = weakref.WeakSet()
        self._looks: weakref.WeakKeyDictionary[Producer | Consumer | Reader, Recurring] = weakref.WeakKeyDictionary()

    @spelled_out(HowProduced)
    def create_producer(
        self, topic: str, producer_name: str | None = None, schema: Schema = _BYTES, **how: Unpack[HowProduced]
    ) -> Producer:
        """Make a producer of a topic.

        Args:
            topic: where its messages go. A topic begins with its first message.
            producer_name: a name by which the log knows it for good: no sequence id is sent twice under it, whatever
                is started again. One process at a time may use it. None: one is drawn, and the log is told nothing.
            schema: encodes contents.
            **how: see `HowProduced`. Options of the reference that cannot be had: their defaults are taken, other
                values are refused.

        Raises:
            InvalidTopicName: the topic has no name.
            BadValue, MessageTooBig: the name of the producer is no text, or too long.
            InvalidConfiguration: an option has a value that cannot be followed; the message says why.
            AlreadyClosed: the client is closed.
            NoWarehouse: there is no inbox.
            ConnectError: the store does not answer.
        """
        self._check_open()
        refuse(PRODUCER, how, HowProduced.__annotations__)
        check_kinds(producer_name=producer_name, schema=schema)
        name, begin = checked_topic(topic), how.get("initial_sequence_id")
        model = sender_of(name, producer_name, how)
        if begin is not None:
            check_limit("initial_sequence_id", begin, -1)

        def make(partition: str) -> Sender:
            return self._begun(replace(model, topic=partition), begin)

        mode = how.get("message_routing_mode", PartitionsRoutingMode.RoundRobinDistribution)
        with answering(self._root):
            names, bounds = topic_partitions(self._root, name), Bounds(self._root)
            route = Route([make(each) for each in names], mode, how.get("message_router"))
        made = Producer(spelled_like(topic, name), route, schema, self._writer.queue, self._forget, bounds)
        self._made.append(made)
        if names != [name]:
            self._looks[made] = Recurring(_LOOK_S, lambda: route.grow(topic_partitions(self._root, name), make))
        return made

    @spelled_out(HowConsumed)
    def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        **how: Unpack[HowConsumed],
    ) -> Consumer:
        """Consume the messages of a subscription, which is registered if it is not there, and acknowledge them.

        What is stated here of redelivery is set for the subscription, also when it is there; what is left out stays
        as it is. The type and the tick must be those of the subscription.

        Args:
            topic: a topic, or several, or a pattern of their names, from which one consumer gets messages. What a
                pattern describes, and more partitions of a topic that has some, are noticed when they come later, too.
                Until a pattern describes any topic, its consumer waits for one.
            subscription_name: the subscription of each of them.
            consumer_type: how consumers share it.
            **how: see `HowConsumed`. Options of the reference that cannot be had: their defaults are taken, other
                values are refused.

        Raises:
            InvalidTopicName: a topic has no name, or there is none.
            InvalidConfiguration: an option has a value that cannot be followed; the message says why.
            AlreadySubscribed: the subscription has another type or tick.
            ConsumerBusy: another consumer has the exclusive subscription.
            Timeout: the service does not run, or did not notice an exclusive subscription in time.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder has no warehouse.
            ConnectError: the store does not answer.
        """
        self._check_open()
        refuse(CONSUMER, how, HowConsumed.__annotations__)
        check_kinds(subscription_name=subscription_name, consumer_type=consumer_type)
        check_limit("receiver_queue_size", how.get("receiver_queue_size", 0))
        check_limit("priority_level", how.get("priority_level", 0), high=MAX_PRIORITY)
        mode = how.get("regex_subscription_mode", RegexSubscriptionMode.PersistentOnly)
        consumed = patterns.ConsumedTopics(self._root, topic, subscription_name, how.get("dead_letter_policy"), mode)
        usual_s = _LOOK_S if consumed.named else _PATTERN_LOOK_S
        period_s = check_limit("pattern_auto_discovery_period", how.get("pattern_auto_discovery_period", usual_s), 1)
        with answering(self._root):
            topics = consumed.look()
            policies = registering.register(self._root, topics, subscription_name, consumer_type, how)
        if not topics:
            _LOG.info("%r: there is no topic that fits %r yet; its consumer waits for one", subscription_name, topic)
        options = registering.consumer_options(consumer_type, how, self._stats_s, consumed.spell)

        wait_s, forget = self._timeout_s, self._forget
        end = partial(self._unsubscribe, consumed.named, subscription_name)
        made = opening.open_consumer(self._engine(), policies, subscription_name, options, wait_s, forget, end)
        self._consumers.add(made)
        if topics != consumed.named or not topics:
            whole = how | _WHOLE
            more = partial(
                registering.register, self._root, name=subscription_name, consumer_type=consumer_type, how=whole
            )
            self._look(made, period_s, partial(_take_on_new, consumed, more))
        return made

    def create_reader(
        self,
        /,
        topic: str,
        start_message_id: MessageId,
        schema: Schema = _BYTES,
        *,
        receiver_queue_size: int = 1_000,
        start_message_id_inclusive: bool = False,
        delayed: bool = False,
        reader_listener: ReaderListener | None = None,
        **refused: object,
    ) -> Reader:
        """Read a topic without a subscription, from a place on.

        Args:
            topic: its name; a topic without messages may get some. Of a topic with partitions all are read.
            start_message_id: `MessageId.earliest`: all that the log holds. `MessageId.latest`: what comes from now on.
                The id of any message: to go on behind it. Not so with partitions or with `delayed`.
            schema: decodes contents.
            receiver_queue_size: so many messages are read at once.
            start_message_id_inclusive: begin with the message itself.
            delayed: hand out each message when it is due, ordered by due time. Otherwise the log as it is.
            reader_listener: called with the reader and each message, in a thread of the reader.
            **refused: options of the reference that cannot be had: their defaults are taken, other values are refused.

        Raises:
            InvalidTopicName: the topic has no name.
            InvalidConfiguration: an option has a value that cannot be followed; the message says why.
            OperationNotSupported: a reader that waits for delays, or reads partitions, begins at no id of a message.
            InvalidMessage: ingest has refused the message of an id that `send` gave.
            Timeout: the job has not taken it.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder has no messages.
            ConnectError: the store does not answer.
        """
        self._check_open()
        refuse(READER, refused)
        check_kinds(schema=schema, start_message_id_inclusive=start_message_id_inclusive, delayed=delayed)
        check_kinds(reader_listener=reader_listener)
        name = checked_topic(topic)
        with answering(self._root):
            logs = _logs_of(self._root, topic)
        made = reader.Reader(
            logs,
            spelled_like(topic, name),
            schema,
            delayed=delayed,
            ahead=max(1, check_limit("receiver_queue_size", receiver_queue_size)),
            inclusive=start_message_id_inclusive,
            forget=self._forget,
        )
        with answering(self._root):
            made.seek(start_message_id)
        self._made.append(made)
        if list(logs) != [made.topic()]:
            self._looks[made] = Recurring(_LOOK_S, lambda: made.take_on(_logs_of(self._root, topic)))
        if reader_listener is not None:
            made.listen(reader_listener)
        return made

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of a topic's partitions; of a topic without any, its own name. They are spelled as the topic is.

        Raises:
            InvalidTopicName: the topic has no name.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder has no registry.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return [spelled_like(topic, each) for each in topic_partitions(self._root, checked_topic(topic))]

    def refresh_topics(self) -> None:
        """Look for new partitions and new topics now, and not only once a minute.

        Raises:
            NoWarehouse: the folder has no registry.
        """
        for each in list(self._looks.values()):
            each.now()

    def close(self) -> None:
        """Close all producers, consumers and readers; what was sent is in the store, or its error is raised.

        Raises:
            DelaylineError: the first error among messages without a callback since the last flush.
        """
        try:
            each_of(each.close for each in [*self._made, *self._consumers])
        finally:
            self.shutdown()

    def shutdown(self) -> None:
        """End at once: what waits to be sent is refused with `AlreadyClosed`, and consumers leave."""
        self._closed = True
        for look in list(self._looks.values()):
            look.end()
        self._writer.queue.shut()
        for each in [*self._made, *self._consumers]:
            if not isinstance(each, Producer):
                with suppress(DelaylineError):
                    each.close()

    def _begun(self, sender: Sender, initial_sequence_id: int | None) -> Sender:
        """Let a producer go on from its last message, or from where the caller says."""
        stored = self._writer.stored(sender)
        sender.acked = sender.queued = stored
        sender.numbered = stored if initial_sequence_id is None else initial_sequence_id
        return sender

    def _unsubscribe(self, asked: list[str], name: str, made: Consumer) -> None:
        """End the subscription of a consumer, also of partitions that it has not noticed."""
        mine = {each.topic for each in made.topic_consumers}
        mine |= registering.registered_for(self._root, [*asked, *expanded(self._root, asked)], name)
        # That of a topic ends those of its partitions, too.
        wholes = [each for each in mine if topic_of(each) == each or topic_of(each) not in mine]
        each_of(partial(unsubscribe, self._root, each, name) for each in sorted(wholes))

    def _look(self, made: Consumer, period_s: int, look: Callable[[Consumer], None]) -> None:
        """Look for new topics of a consumer for as long as the program has it: else others are to get its messages."""
        known = weakref.ref(made)

        def look_again() -> None:
            if (held := known()) is not None:
                look(held)

        self._looks[made] = recurring = Recurring(period_s, look_again)
        weakref.finalize(made, recurring.end).atexit = False

    def _engine(self) -> Engine:
        try:
            return opening.engine_of(self._root)
        except FileNotFoundError as error:
            raise NoWarehouse(self._root, CURSORS.name) from error

    def _forget(self, made: Producer | Consumer | Reader) -> None:
        if (look := self._looks.pop(made, None)) is not None:
            look.end()
        self._consumers.discard(made)
        if made in self._made:
            self._made.remove(made)


def _take_on_new(consumed: ConsumedTopics, more: Callable[[list[str]], dict[str, Policies]], held: Consumer) -> None:
    """Let a consumer get the messages of topics that came since, whose subscriptions are registered by a function."""

    def take(new: str) -> None:
        opening.listen_to(held, more([new]))

    # One that cannot be subscribed keeps no other one away.
    each_of(partial(take, each) for each in consumed.look({each.topic for each in held.topic_consumers}))


def _logs_of(root: str, topic: str) -> dict[str, TopicLog]:
    """The log of a topic, or those of its partitions, by their names as the topic is spelled."""
    logs = (topiclog.TopicLog(root, each) for each in topic_partitions(root, plain_topic(topic)))
    return {spelled_like(topic, each.topic): each for each in logs}
