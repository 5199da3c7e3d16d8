"""`delayline consume`: messages are received, printed, and acknowledged or given back."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.commands.jsonform import json_line, record
from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.consuming.opening import engine_of, open_consumer
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.message import Message
from pipeline.client.subscribing.subscriptions import Subscription, registered
from pipeline.config.errors import PipelineError
from pipeline.config.printed import printable

_LOOK_MS = 1_000
_NOTED = 10_000
_JOIN_S = 30.0
"""So long a consumer may take to get a share of the subscription."""


class DoesNotAcknowledge(PipelineError):
    """The subscription takes no acknowledgements. Print its deliveries with `receive`, or set its policies."""

    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(f"subscription {subscription!r} of topic {topic!r} does not acknowledge")
        self.topic, self.subscription = topic, subscription


@dataclass(frozen=True)
class Choices:
    """What the command line says.

    Attributes:
        name: of the consumer; None: one is drawn.
        follow: wait for more.
        wait_ms: else it ends when nothing came for so long.
        limit: end after so many messages; None: at no number.
        nack_rate: this share of the messages fails, drawn at random.
    """

    name: str | None
    follow: bool
    wait_ms: int
    limit: int | None
    nack_rate: float


@dataclass(frozen=True)
class Says:
    """Where the command says what.

    Attributes:
        echo: takes the line of a message.
        form: gives that line, from the message and what it was answered.
        note: takes a line about how far it is, after every `_NOTED` messages.
    """

    echo: Callable[[str], object]
    form: Callable[[Message, str], str]
    note: Callable[[str], object]


def consume(root: str, name: tuple[str, str], choices: Choices, says: Says) -> tuple[int, int]:
    """Receive, print and acknowledge until there is nothing more; how many were acknowledged, and how many failed.

    Raises:
        SubscriptionNotFound: the registry has no such subscription.
        DoesNotAcknowledge: it takes no acknowledgements.
        ConsumerBusy: another consumer has it, and it is exclusive.
        Timeout: the service does not run, or does not know it.
    """
    topic, subscription = name
    line = _line(root, topic, subscription)
    policies = line.policies
    options = ConsumerOptions(
        consumer_type=ConsumerType(line.type),
        consumer_name=choices.name or "",
        max_unacked=policies.max_unacked,
        unacked_messages_timeout_ms=policies.ack_timeout_ms,
    )
    with open_consumer(engine_of(root), [topic], subscription, options) as consumer:
        return _work(consumer, choices, says)


def _line(root: str, topic: str, subscription: str) -> Subscription:
    found = registered(root, topic, subscription)
    if not found.policies.ack:
        raise DoesNotAcknowledge(topic, subscription)
    return found


def _work(consumer: Consumer, choices: Choices, says: Says) -> tuple[int, int]:
    done = failed = 0
    ends = time.monotonic() + _JOIN_S
    while choices.limit is None or done + failed < choices.limit:
        message = consumer.next_message(_LOOK_MS if choices.follow else choices.wait_ms)
        if message is None:
            # It takes seconds until a consumer has its share; one that others leave nothing to gets none.
            if choices.follow or not (consumer.is_connected() or time.monotonic() > ends):
                continue
            break
        fails = random.random() < choices.nack_rate  # noqa: S311 - a share, not a secret
        says.echo(says.form(message, "nack" if fails else "ack"))
        if fails:
            consumer.negative_acknowledge(message)
            failed += 1
        else:
            consumer.acknowledge(message)
            done += 1
        if (done + failed) % _NOTED == 0:
            says.note(f"{done:,} acknowledged, {failed:,} failed so far")
    return done, failed


def line(message: Message, answer: str) -> str:
    """A message for people, and what it was answered."""
    key = f" [{printable(message.partition_key())}]" if message.partition_key() else ""
    ledger, entry = message.message_id().position
    again = f", redelivery {message.redelivery_count()}" if message.redelivery_count() else ""
    text = message.data().decode(errors="backslashreplace")
    return f"{printable(message.topic_name())} {ledger}:{entry}{key}  {text}  ({answer}{again})"


def as_json(message: Message, answer: str) -> str:
    """The same for scripts."""
    return json_line(
        record(
            topic=message.topic_name(),
            position=message.message_id().position,
            key=message.partition_key() or None,
            properties=message.properties(),
            redelivery_count=message.redelivery_count(),
            answer=answer,
            payload=message.data(),
        )
    )
