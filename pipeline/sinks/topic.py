"""What a sink asks of a broker. Each broker has one module that answers it with the broker's own means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pipeline.subscriptions.destination import Destination
from pipeline.subscriptions.sinkplaces import Place, TurnPlace

Row = tuple[TurnPlace, Mapping[str, Any]]
"""A delivery: columns, and the place behind it."""


class PlaceForgotten(Exception):
    """The broker does not know any more up to where a sink has published."""


class Refused(Exception):
    """The broker does not take a message, and will not take it later.

    Either make room for it (a limit of the topic, as a rule), or let the sink go on without it: the policy
    `sink_refused` is `reject` then.
    """

    def __init__(self, problem: str, order: TurnPlace | None = None) -> None:
        """Say what the broker said, and name the place of the message; None: one of those that were published together.

        All before the message are published, or none is, as after any other failure.
        """
        super().__init__(problem)
        self.order = order


class Topic(Protocol):
    """A connection to a topic. A failed call ends it, and another one is made.

    Attributes:
        columns: of `deliveries`, that a message is made of.
        keeps_place: whether the broker keeps the place, with the messages. Where it does not, the sink notes it
            behind `confirm`.
        most: messages that are published together, at most.
    """

    columns: Sequence[str]
    keeps_place: bool
    most: int

    @property
    def passed(self) -> int:
        """A turn of which the broker has messages, where it can tell more than the place does; else 0."""

    def resume(self, noted: Place, *, begun: bool) -> Place:
        """Where to go on.

        Args:
            noted: the place that the sink has noted; the broker may be further on.
            begun: whether an earlier connection has begun.

        Raises:
            PlaceForgotten: it had begun, and the broker does not know the place.
        """

    def publish(self, rows: Sequence[Row], place: Place) -> None:
        """Write messages, all of them or raise, and the place behind them if the broker keeps it.

        Raises:
            Refused: of one of them; also by `confirm`.

        Where it does not, they may be on their way. Nothing is sent behind a message that failed.
        """

    def confirm(self) -> None:
        """Wait until the broker has all that was published, or raise."""

    def close(self) -> None:
        """Let go."""


Connect = Callable[[Destination, str, str], Topic]
"""Makes a connection to a topic, from the names of the producer and of the place."""
