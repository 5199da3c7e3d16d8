"""The methods of a client by which commands are given."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from pipeline.client.checks import Opened, checked_topic
from pipeline.client.commanding.arguments import HowCommanded, HowGiven
from pipeline.client.options import spelled_out
from pipeline.config.lazymodule import LazyModule

if TYPE_CHECKING:
    from pipeline.client.commanding import commands, outcomes
    from pipeline.client.commanding.commands import Command
    from pipeline.client.commanding.outcomes import Outcome
else:
    commands, outcomes = (LazyModule(f"{__package__}.{each}") for each in ("commands", "outcomes"))


class Commander(Opened):
    """Gives commands over messages that wait."""

    @spelled_out(HowGiven, HowCommanded)
    def cancel(self, topic: str, subscription_name: str | None = None, **how: Unpack[HowCommanded]) -> Command:
        """Cancel messages of a topic that wait, for their first delivery or to come again after they failed.

        Args:
            topic: the topic.
            subscription_name: for this subscription only; None: for all that the topic has now.
            **how: see `HowGiven` and `HowCommanded`.

        Raises:
            InvalidTopicName: the topic has no name.
            SubscriptionNotFound: there is no such subscription, or none at all.
            BadValue: not one of key, message, condition and positions; the condition cannot be followed.
            InvalidMessage, Timeout: ingest has refused the message that is named, or does not take it.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks a table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return commands.cancel(self._root, checked_topic(topic), subscription_name, **how)

    @spelled_out(HowGiven, HowCommanded)
    def reschedule(
        self, topic: str, subscription_name: str | None = None, *, to: datetime | int, **how: Unpack[HowCommanded]
    ) -> Command:
        """Give messages of a topic that wait another due time.

        Args:
            topic: the topic.
            subscription_name: for this subscription only; None: for all that the topic has now.
            to: when they are due, with a time zone.
            **how: as for `cancel`.

        Raises:
            BadValue: as for `cancel`; or the time has no zone, or no clock shows it.
            InvalidTopicName, SubscriptionNotFound, AlreadyClosed, NoWarehouse, ConnectError: as for `cancel`.
        """
        with self._answering():
            return commands.reschedule(self._root, checked_topic(topic), subscription_name, to=to, **how)

    @spelled_out(HowGiven, HowCommanded)
    def shift(
        self, topic: str, subscription_name: str | None = None, *, span: timedelta, **how: Unpack[HowCommanded]
    ) -> Command:
        """Let messages of a topic that wait come later by a span of time, or earlier by a negative one.

        Args:
            topic: the topic.
            subscription_name: for this subscription only; None: for all that the topic has now.
            span: how much later.
            **how: as for `cancel`.

        Raises:
            BadValue: as for `cancel`; or the span is none.
            InvalidTopicName, SubscriptionNotFound, AlreadyClosed, NoWarehouse, ConnectError: as for `cancel`.
        """
        with self._answering():
            return commands.shift(self._root, checked_topic(topic), subscription_name, span=span, **how)

    @spelled_out(HowGiven, HowCommanded)
    def release_now(self, topic: str, subscription_name: str | None = None, **how: Unpack[HowCommanded]) -> Command:
        """Let messages of a topic that wait come now; arguments and errors are those of `cancel`."""
        with self._answering():
            return commands.release_now(self._root, checked_topic(topic), subscription_name, **how)

    def undo(self, command_id: str, *, by: str | None = None, reason: str | None = None) -> Command:
        """Take a command back, for those of its messages that it can be taken back for.

        What was cancelled, and neither left out nor delivered, comes at its time. What got another due time, and is not
        delivered, is due again when it was before, unless another command gave it yet another time.

        Raises:
            CommandNotFound: there is no such command, or it is an undo.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks a table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return commands.undo(self._root, command_id, by=by, reason=reason)

    def commands(self, limit: int = 20) -> list[Outcome]:
        """What became of the last commands, the newest first.

        Raises:
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder lacks a table.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return outcomes.outcomes(self._root, limit)
