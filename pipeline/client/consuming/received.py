"""Messages out of a batch of rows: each is made when the application gets it, from columns that were read at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from pipeline.client.message import Message, MessageId
from pipeline.client.schema import Schema
from pipeline.client.tables.rows import Rows

_MOST_ROWS, _MOST_BYTES = 1_024, 1 << 20


def window_rows(rows: Rows) -> int:
    """How many of some rows a window takes: a message that is kept keeps all of its window."""
    size: int = rows.table.nbytes
    return max(1, min(_MOST_ROWS, len(rows), _MOST_BYTES * len(rows) // max(1, size)))


class Window:
    """Some rows, with those columns as Python's values that everybody asks for."""

    def __init__(self, rows: Rows) -> None:
        """Take rows: copies of them, so that nothing else is kept by a message that is kept."""
        self.ledgers, self.entries = rows.ledgers.tolist(), rows.entries.tolist()
        self.counts, self.slots = rows.counts.tolist(), rows.slots.tolist()
        self.payloads: list[bytes | None] = rows.table.column("payload").to_pylist()
        self._table = rows.table.drop_columns(["payload"]).take(pa.array(range(len(rows))))

    @cached_property
    def published(self) -> list[int | None]:
        """When each was sent, microseconds."""
        return self._longs("publish_time")

    @cached_property
    def keys(self) -> list[str | None]:
        """The key of each."""
        keys: list[str | None] = self._table.column("message_key").to_pylist()
        return keys

    @cached_property
    def asked(self) -> list[int | None]:
        """The delivery time that was asked for, the same; None: at once."""
        return self._longs("deliver_at")

    def row(self, number: int) -> Mapping[str, Any]:
        """All columns of a row."""
        row: dict[str, Any] = self._table.slice(number, 1).to_pylist()[0]
        return {**row, "payload": self.payloads[number]}

    def _longs(self, column: str) -> list[int | None]:
        values: list[int | None] = self._table.column(column).cast(pa.int64()).to_pylist()
        return values


class Owner(Protocol):
    """The consumer of one topic that got a message."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def life(self) -> int:
        """The life of the subscription in which it gets messages."""

    def holds(self, message: Received) -> bool:
        """Whether it has a message, and nobody has settled it."""


class Received(Message):
    """A message of a window. What is seldom asked for is looked up in its row then."""

    __slots__ = ("_known", "_number", "_window", "consumer", "life")

    def __init__(self, window: Window, number: int, schema: Schema, consumer: Owner) -> None:
        """A row of a window.

        Args:
            window: the window.
            number: of the row in it.
            schema: decodes its content.
            consumer: which got it.
        """
        self._window, self._number, self._schema, self.consumer = window, number, schema, consumer
        self._known: Mapping[str, Any] | None = None
        self.life = consumer.life

    @property
    def _row(self) -> Mapping[str, Any]:  # type: ignore[override] # Message keeps its row, this one looks it up
        if self._known is None:
            self._known = self._window.row(self._number)
        return self._known

    @property
    def position(self) -> tuple[int, int]:
        """Ledger and entry."""
        return self._window.ledgers[self._number], self._window.entries[self._number]

    def data(self) -> bytes:
        """The bytes sent."""
        return self._window.payloads[self._number] or b""

    def partition_key(self) -> str:
        """The key; empty when there is none."""
        return self._window.keys[self._number] or ""

    def publish_timestamp(self) -> int:
        """When it was sent, ms since the epoch."""
        return (self._window.published[self._number] or 0) // 1_000

    def deliver_at(self) -> int:
        """The time asked for, ms since the epoch; 0: at once."""
        asked: int | None = self._window.asked[self._number]
        return 0 if asked is None else asked // 1_000

    def redelivery_count(self) -> int:
        """How often it came before."""
        count: int = self._window.counts[self._number]
        return count

    def topic_name(self) -> str:
        """Its topic."""
        return self.consumer.topic

    def message_id(self) -> MessageId:
        """Its name."""
        return MessageId.of(self.topic_name(), *self.position)
