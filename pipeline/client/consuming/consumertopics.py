"""Which of a consumer's topics a message is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.checks import checked_columns, checked_place
from pipeline.client.consuming.received import Received
from pipeline.client.consuming.topicconsumer import TopicConsumer
from pipeline.client.consuming.unackedtracker import ROUND
from pipeline.client.exceptions import InvalidMessage, OperationNotSupported
from pipeline.client.message import Message, MessageId
from pipeline.client.subscribing.seeking import Where
from pipeline.client.tables.events import runs_of
from pipeline.client.tables.topiclog import TopicLog
from pipeline.storage.arrays import longs
from pipeline.subscriptions.topicnames import plain_topic
from state.runs import MAX_ENTRY, MAX_LEDGER

T = TypeVar("T")
Named = Message | MessageId
"""A message, or the name of one."""


def consumer_of(topic_consumers: Sequence[TopicConsumer], message: Named) -> TopicConsumer:
    """The topic consumer that a message is of.

    Raises:
        InvalidMessage: it is of none.
        OperationNotSupported: it does not say of which of several topics it is.
    """
    if isinstance(message, Received):
        for each in topic_consumers:
            if each is message.consumer:
                return each
    if not isinstance(message, (Message, MessageId)):
        raise InvalidMessage("message", message, "a message, or its id")
    topic = plain_topic(message.topic_name())
    if not topic and len(topic_consumers) > 1:
        raise OperationNotSupported("acknowledge", "an id without its topic may be of each of several: give it a topic")
    found = [topic_consumer for topic_consumer in topic_consumers if not topic or topic_consumer.topic == topic]
    if len(found) != 1:
        raise InvalidMessage("message", str(message), f"one of {','.join(each.topic for each in topic_consumers)}")
    return found[0]


def placed(root: str, topic_consumers: Sequence[TopicConsumer], message: T) -> T | MessageId:
    """What was given, or instead of an id of `send` the id with the position, which is waited for.

    Raises:
        InvalidMessage: it is of none of the topics, or ingest has refused it.
        Timeout: ingest has not taken it.
    """
    if not isinstance(message, MessageId) or not message.is_sent:
        return message
    topic = consumer_of(topic_consumers, message).topic
    return MessageId.of(topic, *TopicLog(root, topic).position_of(message), message.identity)


def settle(topic_consumers: Sequence[TopicConsumer], message: Named | pa.Table) -> None:
    """A message, or all of a table, is done with, in the life of the subscription in which it came.

    Another consumer of the process may have got it, and this one may not have heard of that life yet.

    Raises:
        InvalidMessage: it is of none of the topic consumers.
    """
    if isinstance(message, pa.Table):
        for topic_consumer, life, rows in by_topic(topic_consumers, message):
            if life == topic_consumer.life:
                topic_consumer.tracker.acknowledge_table(rows)
            else:
                topic_consumer.settle_in(life, runs_of(longs(rows, "ledger_id"), longs(rows, "entry_id")))
        return
    if isinstance(message, Received):
        # Nearly each message comes this way.
        for each in topic_consumers:
            if each is message.consumer and message.life == each.life:
                each.tracker.acknowledge(message.position)
                return
    topic_consumer, place = address_of(topic_consumers, message)
    if not isinstance(message, Received) or message.life == topic_consumer.life:
        topic_consumer.tracker.acknowledge(place)
    else:
        topic_consumer.settle_in(message.life, runs_of(*np.array([place], np.int64).T))


def fail(topic_consumers: Sequence[TopicConsumer], message: Named | pa.Table, after_ms: int | None) -> None:
    """A message, or each of a table, failed, and is to come again after so long; None: by the policies.

    What has come again since it was received is another delivery, of which nothing is said.

    Raises:
        InvalidMessage: it is of none of the topic consumers.
    """
    if isinstance(message, pa.Table):
        for topic_consumer, life, rows in by_topic(topic_consumers, message):
            if life == topic_consumer.life:
                topic_consumer.tracker.fail_table(rows, after_ms)
        return
    topic_consumer, place = address_of(topic_consumers, message)
    if counts(topic_consumer, message):
        # An id names no round.
        count = message.redelivery_count() if isinstance(message, Received) else None
        topic_consumer.tracker.fail(place, after_ms, count)


def by_topic(
    topic_consumers: Sequence[TopicConsumer], table: pa.Table
) -> Iterator[tuple[TopicConsumer, int, pa.Table]]:
    """The rows of a table of each topic consumer, by the life of its subscription: the present one if they name none.

    Raises:
        InvalidMessage: a column is missing, or has what no position can be.
    """
    needed = ["topic", "ledger_id", "entry_id"][len(topic_consumers) == 1 :]
    table = checked_columns(table, [*needed, *(each for each in ("life", ROUND) if each in table.column_names)])
    for column, most in (("ledger_id", MAX_LEDGER), ("entry_id", MAX_ENTRY)):
        numbers = longs(table, column)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) <= most:
            raise InvalidMessage(column, [int(numbers.min()), int(numbers.max())], f"numbers in 0..{most}")
    for topic_consumer in topic_consumers:
        own = (
            table if len(topic_consumers) == 1 else table.filter(pc.equal(table.column("topic"), topic_consumer.topic))
        )
        if "life" not in own.column_names:
            yield topic_consumer, topic_consumer.life, own
            continue
        lives = own.column("life")
        for life in pc.unique(lives).to_pylist():
            yield topic_consumer, life, own.filter(pc.equal(lives, life))


def sought(topic_consumers: Sequence[TopicConsumer], where: Where) -> Sequence[TopicConsumer]:
    """The topic consumers in whose topics a place is.

    Raises:
        InvalidMessage: it is in none.
        OperationNotSupported: it does not say of which of several topics it is.
    """
    if isinstance(where, int) or where in (MessageId.earliest, MessageId.latest):
        return topic_consumers
    return [consumer_of(topic_consumers, where)]


def counts(topic_consumer: TopicConsumer, message: Named) -> bool:
    """Whether a message is of the present life of its subscription; what was received before a seek is not."""
    return not isinstance(message, Received) or message.life == topic_consumer.life


def address_of(topic_consumers: Sequence[TopicConsumer], message: Named) -> tuple[TopicConsumer, tuple[int, int]]:
    """The topic consumer that a message is of, and its ledger and entry.

    Raises:
        InvalidMessage: it is of none, or there can be no message with them.
    """
    topic_consumer = consumer_of(topic_consumers, message)
    if isinstance(message, Received):
        return topic_consumer, message.position
    named = message if isinstance(message, MessageId) else message.message_id()
    return topic_consumer, checked_place(named, named.position)
