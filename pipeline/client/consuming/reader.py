"""Reading a topic without a subscription: nothing is registered, nothing is acknowledged, each reader has its place.

A message can be had twice over: as what the log holds, or as what has become due. By default a reader hands out the log
in the order (ledger, entry), whatever its messages ask for; so do readers of the reference. With `delayed=True` it
hands out what is due, in the order (due time, ledger, entry), and waits for the rest, as a consumer does. Of a topic
with partitions each is read in its own order.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from pipeline.client.clock import clock_of
from pipeline.client.consuming.consumerlistener import Receiver
from pipeline.client.consuming.received import first_window
from pipeline.client.exceptions import AlreadyClosed, OperationNotSupported
from pipeline.client.message import Message, MessageId
from pipeline.client.schema import Schema
from pipeline.client.subscribing.seeking import checked_where
from pipeline.client.tables.job import JobWatch
from pipeline.client.tables.rows import Rows
from pipeline.client.tables.topiclog import START, Place, TopicLog
from pipeline.client.tables.untaken import is_under_way, sent
from pipeline.config.wallclock import monotonic_ms
from state import TimeBucketIndex
from state.buckets import MAX_TIME

_LOG = logging.getLogger(__name__)
ReaderListener = Callable[["Reader", Message], object]
"""Gets a reader and a message of it."""
_LOOK_MS, _TAKEN_MS = 50, 5_000
"""Who waits looks so often: at the log's next entry, by its name. So long it waits for what was sent already."""
_BEGIN = -(1 << 43)
"""Before each time of publication, ms."""


class _Part:
    """A topic, or a partition of one: how far its log is read, and what was found there."""

    def __init__(self, log: TopicLog, *, delayed: bool) -> None:
        self.log, self._delayed = log, delayed
        self._after, self._since, self._index = START, _BEGIN, TimeBucketIndex(tick_ms=1)

    def begin(self, after: Place, since: int) -> None:
        """Go on behind a position, with what was sent since an instant."""
        self._after, self._since = after, since
        self._index.clear()
        self.log.forget()

    @property
    def next_due(self) -> int | None:
        """When the next message is due; None: none is known."""
        return self._index.next_due

    def take(self, now: int, most: int, give: Callable[[Rows], None]) -> None:
        """Give the next rows, what came to the log since among them, if there are any now.

        Whatever ends it in between, Ctrl-C too, they are there for the next call.
        """
        if (found := self.log.places(self._after, self._since)) is not None and len(found[0]):
            ledgers, entries, dues = found
            self._index.add(ledgers, entries, dues if self._delayed else dues * 0)
            ledger = int(ledgers.max())
            self._after = (ledger, int(entries[ledgers == ledger].max()))
        while len(due := self._index.pop_due(min(now, MAX_TIME), most)):
            try:
                rows = self.log.rows(due.ledger_ids, due.entry_ids)
                if len(rows):
                    give(rows)
                    return
            except BaseException:
                self._index.add(due.ledger_ids, due.entry_ids, due.due)
                raise


class Reader(Receiver):
    """Gets the messages of a topic from a place on. Every method may be called from any thread."""

    def __init__(
        self,
        logs: Mapping[str, TopicLog],
        topic: str,
        schema: Schema,
        *,
        delayed: bool = False,
        ahead: int = 1_000,
        inclusive: bool = False,
        now: Callable[[], int] | None = None,
        forget: Callable[[Reader], None] = lambda _: None,
    ) -> None:
        """A reader that was not sent anywhere; `Client.create_reader` makes it and seeks.

        Args:
            logs: of the topic, or of each of its partitions, by the name that their messages give.
            topic: its name.
            schema: decodes contents.
            delayed: whether a message is handed out when it is due.
            ahead: so many messages are read at once.
            inclusive: whether a message that is sought is handed out, too.
            now: the clock, ms UTC; None: that of the warehouse.
            forget: called when it is closed.
        """
        self._topic, self._schema, self._delayed = topic, schema, delayed
        self._ahead, self._inclusive, self._forget = ahead, inclusive, forget
        self.root = next(iter(logs.values())).root
        self._now = now or clock_of(self.root).wall
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._parts, self._ready = dict[str, _Part](), deque[Message]()
        self.take_on(logs)

    def take_on(self, logs: Mapping[str, TopicLog]) -> None:
        """Read partitions that are new, too, from their first message on."""
        with self._lock:
            new = {name: _Part(log, delayed=self._delayed) for name, log in logs.items() if name not in self._parts}
            self._parts = {**self._parts, **new}

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

    def fetch(self) -> bool:
        """Read what the next messages are, unless they are known; whether `take_ready` has one now.

        Raises:
            AlreadyClosed: the reader is closed.
        """
        with self._lock:
            self._check_open()
            return self._there()

    def take_ready(self) -> Message | None:
        """The next message, if it was read already; waits for nothing, not even for a call of another thread.

        Raises:
            AlreadyClosed: the reader is closed.
            OperationNotSupported: a listener gets the messages.
        """
        self._refuse_beside("reader_listener", "read_next")
        self._check_open()
        with suppress(IndexError):
            return self._ready.popleft()
        return None

    def _next(self, timeout_millis: int | None) -> Message | None:
        ends = None if timeout_millis is None else monotonic_ms() + timeout_millis
        watch = JobWatch(self.root, _LOG.warning)
        while True:
            with self._lock:
                self._check_open()
                if self._there():
                    return self._ready.popleft()
                dues = [due for each in self._parts.values() if (due := each.next_due) is not None]
                next_due = min(dues, default=None)
            left = _LOOK_MS if ends is None else min(_LOOK_MS, ends - monotonic_ms())
            if left <= 0:
                return None
            watch.look(news=next_due is not None)
            self._closed.wait(max(1, min(left, left if next_due is None else next_due - self._now())) / 1_000)

    def has_message_available(self) -> bool:
        """Whether the next message can be had now.

        What was sent before the call counts: it is waited for until the job has taken it, five seconds at most.

        Raises:
            AlreadyClosed: the reader is closed.
        """
        with self._lock:
            self._check_open()
            if self._there():
                return True
        self._await_sent()
        with self._lock:
            self._check_open()
            return self._there()

    def seek(self, messageid: MessageId | int) -> None:
        """Go on from another place.

        Args:
            messageid: an id (`MessageId.earliest`, `MessageId.latest`, or that of a message), or a time of publication
                in ms since the epoch, from which on messages are handed out. `MessageId.latest` is behind what was sent
                before, as far as the job takes it within five seconds.

        Raises:
            OperationNotSupported: the id is that of a message, and the reader waits for delays: what lies before it
                in the log may still be due. Or the topic has partitions, each with a log of its own.
            InvalidMessage: ingest has refused the message of an id that `send` gave.
            Timeout: the job has not taken it.
            AlreadyClosed: the reader is closed.
        """
        where = checked_where(messageid)
        if where == MessageId.latest:
            self._await_sent()
        # To find a message may take long, and meanwhile others read.
        parts = list(self._parts.values())
        places = [
            (START, where) if isinstance(where, int) else (self._place(each.log, where), _BEGIN) for each in parts
        ]
        with self._lock:
            self._check_open()
            for each, place in zip(parts, places, strict=True):
                each.begin(*place)
            self._ready.clear()

    def close(self) -> None:
        """End; a second call does nothing."""
        self._closed.set()
        self._end_listening()
        self._forget(self)

    def _place(self, log: TopicLog, message_id: MessageId) -> Place:
        """The position behind which an id sends the reader."""
        if message_id == MessageId.earliest:
            return START
        if message_id == MessageId.latest:
            return log.last()
        if self._delayed:
            raise OperationNotSupported(
                "seek",
                "what lies before a message in the log may be due after it; use MessageId.earliest, MessageId.latest, "
                "a time, a reader with delayed=False, or a subscription",
            )
        if len(self._parts) > 1:
            why = f"{self._topic!r} has partitions, each with a log of its own; read one of them, or use a time"
            raise OperationNotSupported("seek", why)
        ledger, entry = log.position_of(message_id)
        return ledger, entry - self._inclusive

    def _await_sent(self) -> None:
        """Wait for what the inbox has of the topic, but not for long: the job may not run."""
        topics, upto, ends = [each.log.topic for each in self._parts.values()], sent(self.root), monotonic_ms()
        ends += _TAKEN_MS
        while is_under_way(self.root, topics, upto) and monotonic_ms() < ends:
            if self._closed.wait(_LOOK_MS / 1_000):
                return

    def _there(self) -> bool:
        """Whether a message is ready; reads what came, and rows of what is due, of each partition in turn."""
        if self._ready:
            return True
        for name in list(self._parts):
            part = self._parts.pop(name)
            self._parts[name] = part
            part.take(self._now(), self._ahead, partial(self._make_ready, name))
            if self._ready:
                return True
        return False

    def _make_ready(self, topic: str, rows: Rows) -> None:
        """Messages of rows wait for the next calls: all of them, or none."""
        messages = list[Message]()
        while len(rows):
            window = first_window(rows)
            count = len(window.payloads)
            messages += (Message(window, each, self._schema, topic) for each in range(count))
            rows = rows.part(count, len(rows))
        self._ready.extend(messages)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise AlreadyClosed("reader")
