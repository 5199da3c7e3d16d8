"""The functions of a program that a consumer calls, by their types."""

from collections.abc import Callable
from typing import Protocol

from pipeline.client.consuming.consumer import Consumer
from pipeline.client.message import Message

MessageListener = Callable[[Consumer, Message], object]
"""Gets a consumer and a message of it."""


class ConsumerEventListener(Protocol):
    """Is told of a failover consumer."""

    def became_active(self, consumer: Consumer, partition: int) -> None:
        """It is the one that gets the messages of a partition (-1: of the topic)."""
        ...

    def became_inactive(self, consumer: Consumer, partition: int) -> None:
        """It stands by."""
        ...
