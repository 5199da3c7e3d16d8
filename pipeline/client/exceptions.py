"""What the client raises, named as in Apache Pulsar's Python client; one family with all other errors of this project.

`except PulsarException` of a program that moved over catches every error that delayline raises on purpose. What is
wrong with an argument is a `ValueError`, too, since the reference raises that; of a message a `TypeError` as well.
"""

from __future__ import annotations

from enum import Enum

from pipeline.config.errors import NotAllowed, PipelineError
from pipeline.config.spelling import shown
from state import DelaylineError

PulsarException = DelaylineError
"""The root of all errors, under the name that programs know."""


class Result(Enum):
    """What a callback of `send_async` is told."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    ConnectError = 5
    ConsumerBusy = 13
    AlreadyClosed = 15
    InvalidMessage = 16
    ProducerBusy = 19
    InvalidTopicName = 21
    InvalidUrl = 22
    OperationNotSupported = 24
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    CumulativeAcknowledgementNotAllowedError = 37
    MemoryBufferIsFull = 43

    def __str__(self) -> str:
        """The name alone."""
        return self.name


class ClientError(PipelineError):
    """Root of what a `Client`, and all that it makes, raises about its use. The message says what to change."""

    @property
    def result(self) -> Result:
        """What a callback is told of it."""
        return Result.__members__.get(type(self).__name__, Result.UnknownError)


class Timeout(ClientError):
    """Something did not happen in time. A message that timed out may have been sent all the same: see its cause."""

    def __init__(self, what: str, allowed_ms: float, hint: object = "") -> None:
        super().__init__(f"{what} took longer than {allowed_ms:.0f} ms")
        self.what, self.allowed_ms, self.hint = what, allowed_ms, hint

    def __str__(self) -> str:
        """What took too long, and a hint. Only who prints it makes the hint look for its text."""
        return f"{super().__str__()}{self.hint}"


class ConnectError(ClientError):
    """The store does not answer. Try again; `__cause__` has what it said."""

    def __init__(self, what: str, cause: object) -> None:
        super().__init__(f"{what}: {cause}")
        self.what = what


class AlreadyClosed(ClientError):
    """The object, or its client, was closed before. Make another one."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class ConsumerBusy(ClientError):
    """Another consumer has this exclusive subscription. Close it first, or subscribe as failover or shared."""

    def __init__(self, topic: str, subscription: str, holder: str) -> None:
        super().__init__(f"subscription {subscription!r} of topic {topic!r} is held by consumer {holder!r}")
        self.topic, self.subscription, self.holder = topic, subscription, holder


class ProducerBusy(ClientError):
    """Another producer of this name sends to this topic, with the same sequence ids. Give each a name of its own."""

    def __init__(self, topic: str, name: str, stored: int) -> None:
        super().__init__(f"producer {name!r} of topic {topic!r}: another one has sent up to sequence id {stored}")
        self.topic, self.name, self.stored = topic, name, stored


class ProducerQueueIsFull(ClientError):
    """So many messages of a producer wait for the store already. Wait, or use `block_if_queue_full`."""

    def __init__(self, name: str, allowed: int) -> None:
        super().__init__(f"producer {name!r}: more messages wait than max_pending_messages = {allowed}")
        self.name, self.allowed = name, allowed


class MemoryBufferIsFull(ClientError):
    """Messages of so many bytes wait for the store already. Wait, or use `block_if_queue_full`."""

    def __init__(self, allowed: int) -> None:
        super().__init__(f"more bytes of messages wait than memory_limit_bytes = {allowed}")
        self.allowed = allowed


class InvalidConfiguration(ClientError, ValueError):
    """An option has a value that cannot be followed here; the message says why. Leave it out, or change it."""

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(f"{option} = {shown(value)}: {why}")
        self.option, self.value, self.why = option, value, why


class InvalidMessage(NotAllowed, ClientError, TypeError):
    """A message, or the id of one, cannot be as it is; nothing was sent or changed."""


class MessageTooBig(ClientError):
    """A part of a message has more bytes than it may have; nothing was sent. Send less, or raise the setting."""

    def __init__(self, field: str, size: int, allowed: int) -> None:
        super().__init__(f"{field} of {size} bytes, allowed: {allowed}")
        self.field, self.size, self.allowed = field, size, allowed


class InvalidTopicName(ClientError, ValueError):
    """A topic needs a name that is not empty and is text."""

    def __init__(self, topic: object) -> None:
        super().__init__(f"topic = {shown(topic)}, allowed: a name")
        self.topic = topic


class InvalidUrl(ClientError, ValueError):
    """The address is not that of a warehouse. Name a folder, `file:///...` or `s3://...`."""

    def __init__(self, url: object) -> None:
        super().__init__(f"url = {url!r}, allowed: a folder, file:///..., s3://... (a warehouse has no broker)")
        self.url = url


class TopicNotFound(ClientError):
    """No topic fits."""

    def __init__(self, topic: object, nearest: str | None = None) -> None:
        super().__init__(f"there is no topic {topic!r}{_hint(nearest)}")
        self.topic, self.nearest = topic, nearest


class CommandNotFound(ClientError):
    """There is no command that could be undone under this id. `delayline commands` lists them."""

    def __init__(self, command_id: str) -> None:
        super().__init__(f"command_id = {command_id!r}, allowed: the id of a cancel whose messages are not deleted yet")
        self.command_id = command_id


ANY = "(any)"
"""Stands for all topics, or all subscriptions, where none of them is what was asked for."""


class SubscriptionNotFound(ClientError):
    """The topic has no active subscription of that name. `subscribe` registers one."""

    def __init__(self, topic: str, subscription: str, nearest: str | None = None) -> None:
        where = "no topic has a" if topic == ANY else f"topic {topic!r} has no"
        name = "" if subscription == ANY else f" {subscription!r}"
        super().__init__(f"{where} subscription{name}{_hint(nearest)}")
        self.topic, self.subscription, self.nearest = topic, subscription, nearest


class CalendarNotFound(ClientError):
    """There is no calendar of that name. `set_calendar` makes one; `calendars` gives those there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no calendar {name!r}")
        self.name = name


class ScheduleNotFound(ClientError):
    """There is no schedule of that name. `set_schedule` makes one; `schedules` lists those there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}")
        self.name = name


class OperationNotSupported(ClientError):
    """The call cannot be followed here, or not on this object; the message says why."""

    def __init__(self, call: str, why: str) -> None:
        super().__init__(f"{call}: {why}")
        self.call, self.why = call, why


class CumulativeAcknowledgementNotAllowedError(ClientError):
    """Consumers of a shared subscription have their messages in no common order. Acknowledge each by itself."""

    def __init__(self, subscription: str, type_: str) -> None:
        super().__init__(f"subscription {subscription!r} is {type_}: cumulative acknowledgement needs one consumer")
        self.subscription, self.type = subscription, type_


def _hint(nearest: str | None) -> str:
    return "" if nearest is None else f"; did you mean {nearest!r}?"
