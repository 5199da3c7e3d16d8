"""The methods of a client by which a program looks at what happened, and at what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from pipeline.client.checks import Opened, checked_topic
from pipeline.client.insight.arguments import HowListed, HowTraced
from pipeline.client.options import spelled_out
from pipeline.config.lazymodule import LazyModule

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.client.insight import pendingrows, topics, trace
    from pipeline.client.insight.topics import TopicState
    from pipeline.client.insight.trace import Trace
else:
    pendingrows, topics, trace = (LazyModule(f"{__package__}.{each}") for each in ("pendingrows", "topics", "trace"))


class Looker(Opened):
    """Looks at messages."""

    @spelled_out(HowTraced)
    def trace(self, topic: str, subscription_name: str | None = None, **how: Unpack[HowTraced]) -> list[Trace]:
        """The history of messages with a key, the newest of them, or of the message at a position; the oldest first.

        Args:
            topic: the topic.
            subscription_name: only what happened to this subscription; None: to all.
            **how: see `HowTraced`.

        Raises:
            InvalidTopicName: the topic has no name.
            BadValue: neither key nor position, or both; the limit is not positive.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks a table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return trace.trace(self._root, checked_topic(topic), subscription_name, **how)

    def topics(self) -> list[TopicState]:
        """All topics, by name: their partitions and subscriptions, how many messages they hold, and how many wait.

        Raises:
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks a table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return topics.topics(self._root)

    @spelled_out(HowListed)
    def pending_rows(
        self, topic: str | None = None, subscription_name: str | None = None, **how: Unpack[HowListed]
    ) -> pa.Table:
        """What waits, a row for each subscription and message, by due time; `delayline.pending_rows` has the columns.

        Args:
            topic: only of this topic, with its partitions; None: of all.
            subscription_name: only for subscriptions of this name.
            **how: see `HowListed`.

        Raises:
            InvalidTopicName: the topic has no name.
            BadValue: both a key and a condition; the condition cannot be followed; the limit is not positive.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks a table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            name = topic if topic is None else checked_topic(topic)
            return pendingrows.pending_rows(self._root, name, subscription_name, **how)
