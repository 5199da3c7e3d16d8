"""Reading a topic without a subscription: nothing is registered, nothing is acknowledged, each reader has its place.

A message can be had twice over: as what has become due, or as what the log holds. By default a reader hands out what is
due, in the order (due time, ledger, entry), and waits for the rest, as a consumer does. With `delayed=False` it hands
out the log in the order (ledger, entry), whatever its messages ask for; so do readers of the reference.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pipeline.client.clock import clock_of
from pipeline.client.consuming.consumerlistener import Receiver
from pipeline.client.consuming.received import first_window
from pipeline.client.exceptions import AlreadyClosed, OperationNotSupported
from pipeline.client.message import Message, MessageId
from pipeline.client.schema import Schema
from pipeline.client.subscribing.seeking import checked_where
from pipeline.client.tables.topiclog import START, Place, TopicLog
from pipeline.config.wallclock import monotonic_ms
from state import TimeBucketIndex
from state.buckets import MAX_TIME

ReaderListener = Callable[["Reader", Message], object]
"""Gets a reader and a message of it."""
_LOOK_MS = 50
"""Who waits looks so often: at the log's next entry, by its name."""
_BEGIN = -(1 << 43)
"""Before each time of publication, ms."""


class Reader(Receiver):
    """Gets the messages of a topic from a place on. Every method may be called from any thread."""

    def __init__(
        self,
        log: TopicLog,
        topic: str,
        schema: Schema,
        *,
        delayed: bool = True,
        ahead: int = 1_000,
        inclusive: bool = False,
        now: Callable[[], int] | None = None,
        forget: Callable[[Reader], None] = lambda _: None,
    ) -> None:
        """A reader that was not sent anywhere; `Client.create_reader` makes it and seeks.

        Args:
            log: of the topic.
            topic: its name.
            schema: decodes contents.
            delayed: whether a message is handed out when it is due.
            ahead: so many messages are read at once.
            inclusive: whether a message that is sought is handed out, too.
            now: the clock, ms UTC; None: that of the warehouse.
            forget: called when it is closed.
        """
        self._log, self._topic, self._schema, self._delayed = log, topic, schema, delayed
        self._ahead, self._inclusive, self._forget = ahead, inclusive, forget
        self._now = now or clock_of(log.root).wall
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._after, self._since = START, _BEGIN
        self._index, self._ready = TimeBucketIndex(tick_ms=1), deque[Message]()

    def topic(self) -> str:
        """The topic."""
        return self._topic

    def is_connected(self) -> bool:
        """Whether it is open. There is no connection."""
        return not self._closed.is_set()

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits for one.

        Args:
            timeout_millis: for so long at most; None: for ever.

        Raises:
            Timeout: none came.
            AlreadyClosed: the reader is closed.
            OperationNotSupported: a listener gets the messages.
        """
        return self._received("read_next", "reader_listener", timeout_millis)

    def _next(self, timeout_millis: int | None) -> Message | None:
        ends = None if timeout_millis is None else monotonic_ms() + timeout_millis
        while True:
            with self._lock:
                self._check_open()
                if self._there():
                    return self._ready.popleft()
                next_due = self._index.next_due
            left = _LOOK_MS if ends is None else min(_LOOK_MS, ends - monotonic_ms())
            if left <= 0:
                return None
            self._closed.wait(max(1, min(left, left if next_due is None else next_due - self._now())) / 1_000)

    def has_message_available(self) -> bool:
        """Whether the next message can be had now.

        Raises:
            AlreadyClosed: the reader is closed.
        """
        with self._lock:
            self._check_open()
            return self._there()

    def seek(self, messageid: MessageId | int) -> None:
        """Go on from another place.

        Args:
            messageid: an id (`MessageId.earliest`, `MessageId.latest`, or that of a message), or a time of publication
                in ms since the epoch, from which on messages are handed out.

        Raises:
            OperationNotSupported: the id is that of a message, and the reader waits for delays: what lies before it
                in the log may still be due.
            InvalidMessage: it is an id that `send` gave.
            AlreadyClosed: the reader is closed.
        """
        where = checked_where(messageid)
        with self._lock:
            self._check_open()
            if isinstance(where, int):
                self._after, self._since = START, where
            else:
                self._after, self._since = self._place(where), _BEGIN
            self._index.clear()
            self._ready.clear()
            self._log.forget()

    def close(self) -> None:
        """End; a second call does nothing."""
        self._closed.set()
        self._end_listening()
        self._forget(self)

    def _place(self, message_id: MessageId) -> Place:
        """The position behind which an id sends the reader."""
        if message_id == MessageId.earliest:
            return START
        if message_id == MessageId.latest:
            return self._log.last()
        ledger, entry = message_id.position
        if self._delayed:
            raise OperationNotSupported(
                "seek",
                "what lies before a message in the log may be due after it; use MessageId.earliest, MessageId.latest, "
                "a time, a reader with delayed=False, or a subscription",
            )
        return ledger, entry - self._inclusive

    def _there(self) -> bool:
        """Whether a message is ready; reads what came, and rows of what is due."""
        if self._ready:
            return True
        if (found := self._log.places(self._after, self._since)) is not None and len(found[0]):
            ledgers, entries, dues = found
            self._index.add(ledgers, entries, dues if self._delayed else dues * 0)
            ledger = int(ledgers.max())
            self._after = (ledger, int(entries[ledgers == ledger].max()))
        while not self._ready:
            due = self._index.pop_due(min(self._now(), MAX_TIME), self._ahead)
            if not len(due):
                return False
            try:
                rows = self._log.rows(due.ledger_ids, due.entry_ids)
            except Exception:
                self._index.add(due.ledger_ids, due.entry_ids, due.due)
                raise
            while len(rows):
                window = first_window(rows)
                count = len(window.payloads)
                self._ready.extend(Message(window, each, self._schema, self._topic) for each in range(count))
                rows = rows.part(count, len(rows))
        return True

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise AlreadyClosed("reader")
