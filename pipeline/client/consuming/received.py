"""Messages out of a batch of rows: each is made when the application gets it, from columns that were read at once."""

from __future__ import annotations

from typing import Protocol

from pipeline.client.message import Message, Window
from pipeline.client.schema import Schema
from pipeline.client.tables.rows import Rows

_MOST_ROWS, _MOST_BYTES = 1_024, 1 << 20


def first_window(rows: Rows) -> Window:
    """The first of some rows, a limited number of them: a message that is kept keeps all of its window."""
    size: int = rows.table.nbytes
    first = rows.part(0, max(1, min(_MOST_ROWS, len(rows), _MOST_BYTES * len(rows) // max(1, size))))
    return Window(first.table, first.ledgers, first.entries, first.counts, first.slots)


class Owner(Protocol):
    """The consumer of one topic that got a message."""

    @property
    def spelled(self) -> str:
        """Its topic, as the program spells it."""

    @property
    def life(self) -> int:
        """The life of the subscription in which it gets messages."""

    def holds(self, message: Received) -> bool:
        """Whether it has a message, and nobody has settled it."""


class Received(Message):
    """A message that a consumer got, in a life of its subscription."""

    __slots__ = ("consumer", "life")

    def __init__(self, window: Window, number: int, schema: Schema, consumer: Owner) -> None:
        """A row of a window, as in `Message`, and the consumer that got it."""
        self._window, self._number, self._schema, self.consumer = window, number, schema, consumer
        self.life = consumer.life

    def topic_name(self) -> str:
        """Its topic."""
        return self.consumer.spelled
