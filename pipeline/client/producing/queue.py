"""What waits for the store, from all producers of a client, and the thread that takes it away turn by turn.

The thread begins with the first message and ends when nothing came for a while; a process that ends flushes first.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from math import inf

from pipeline.client.checks import PROCESS, check_process
from pipeline.client.exceptions import (
    AlreadyClosed,
    ClientError,
    MemoryBufferIsFull,
    OperationNotSupported,
    ProducerQueueIsFull,
)
from pipeline.client.message import MessageId
from pipeline.client.producing.rows import Content, Done, Entry, Sender

_LOG = logging.getLogger(__name__)
_IDLE_S = 10.0
_TURN_ROWS, _TURN_BYTES = 100_000, 32 << 20
"""Limits of one commit."""


class Queue:
    """First in, first out. Every method may be called from any thread."""

    def __init__(self, write: Callable[[Sequence[Entry]], None], most_bytes: int) -> None:
        """Hold nothing.

        Args:
            write: called in the thread with a turn; it calls `sent` or `failed` for each message before it returns.
            most_bytes: of payloads that may wait; 0: any number.
        """
        self._write, self._most_bytes = write, most_bytes
        self._lock = threading.Lock()
        self._work, self._moved = threading.Condition(self._lock), threading.Condition(self._lock)
        self._waiting = deque[Entry]()
        self._held, self._bytes, self._begin_at = 0, 0, inf
        self._decided: list[Sequence[Entry]] = []
        self._thread: threading.Thread | None = None
        self._closed, self._process = False, PROCESS.pid
        self._at_exit = _flusher(weakref.ref(self))

    def put(self, sender: Sender, content: Content, sequence_id: int | None, done: Done | None, *, hurry: bool) -> None:
        """Take a message; when there is no room, wait or refuse it, as its producer asked for.

        Args:
            sender: whose it is.
            content: the message.
            sequence_id: its number; None: the next one.
            done: told what became of it, in the thread; None: the next flush is told of an error.
            hurry: it shall not wait for others.

        Raises:
            AlreadyClosed: the producer or the client is closed.
            ProducerQueueIsFull: too many messages wait.
            MemoryBufferIsFull: too many bytes wait.
            OperationNotSupported: called in a process that was made by `fork`.
        """
        check_process(self._process, "send")
        with self._lock:
            while (full := self._full(sender, content.size)) is not None:
                if not sender.blocks or threading.current_thread() is self._thread:
                    raise full
                self._moved.wait()
            queued = time.monotonic()
            self._append(sender, content, sequence_id, queued, done)
            enough = sender.waiting >= sender.batch or sender.waiting_bytes >= sender.batch_bytes
            self._begin(queued if hurry or enough else queued + sender.delay_s)

    def flush(self, senders: Iterable[Sender]) -> None:
        """Wait until it is known what became of all that was put before.

        Raises:
            OperationNotSupported: called from a callback, which would wait for itself.
            DelaylineError: the first error since the last flush that nobody was told of.
        """
        senders = list(senders)
        self.may_wait("flush")
        check_process(self._process, "flush")
        with self._lock:
            goals = [(each, each.put) for each in senders]
            if any(each.decided < goal for each, goal in goals):
                self._begin(time.monotonic())
            while any(each.decided < goal for each, goal in goals):
                self._moved.wait()
            errors = [each.error for each in senders if each.error is not None]
            for each in senders:
                each.error = None
        if errors:
            raise errors[0]

    def flush_all(self) -> None:
        """Wait until nothing waits any more; what goes wrong is told to those who sent it.

        A process that was made by `fork` has no thread that writes: what waits is its parent's to send.
        """
        if PROCESS.pid != self._process:
            return
        with self._lock:
            while self._held:
                self._begin(time.monotonic())
                self._moved.wait()

    def may_wait(self, call: str) -> None:
        """Refuse a call that would wait for the thread in which it is made.

        Raises:
            OperationNotSupported: it would.
        """
        if threading.current_thread() is self._thread:
            raise OperationNotSupported(call, "a callback may not wait for what only its own thread does")

    def close(self, sender: Sender) -> None:
        """Take no more from a producer."""
        if PROCESS.pid != self._process:
            return
        with self._lock:
            sender.closed = True
            self._moved.notify_all()

    def shut(self) -> None:
        """Take no more at all; what waits is refused."""
        if PROCESS.pid != self._process:
            return
        with self._lock:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._work.notify_all()
            self._moved.notify_all()
        atexit.unregister(self._at_exit)
        self._tell(left, AlreadyClosed("client"), repeat(None))

    def sent(self, entries: Sequence[Entry], ids: Sequence[MessageId]) -> None:
        """Tell that messages are in the log, with their ids."""
        last = dict[Sender, int]()
        self._decided.append(entries)
        for each in entries:
            last[each.sender] = max(last.get(each.sender, -1), each.sequence_id)
        for sender, number in last.items():
            self.known(sender, number)
        self._tell(entries, None, ids)

    def failed(self, entries: Sequence[Entry], error: Exception) -> None:
        """Tell that messages will not be sent, nor any of the same producers that wait behind them.

        Were those sent, a message that is sent again with its number would seem to be an old one.
        """
        self._decided.append(entries)
        with self._lock:
            senders = {each.sender for each in entries}
            behind = [each for each in self._waiting if each.sender in senders]
            self._waiting = deque(each for each in self._waiting if each.sender not in senders)
            for each in senders:
                each.queued = each.acked
        self._tell([*entries, *behind], error, repeat(None))

    def known(self, sender: Sender, stored: int) -> None:
        """Note that the log has the messages of a producer up to a number."""
        with self._lock:
            sender.acked, sender.queued = max(sender.acked, stored), max(sender.queued, stored)
            if not sender.counts_on:
                sender.numbered = max(sender.numbered, stored)

    def _full(self, sender: Sender, size: int) -> Exception | None:
        """Why a message cannot be taken now.

        Raises:
            AlreadyClosed: nothing will be taken any more.
        """
        if self._closed or sender.closed:
            raise AlreadyClosed("client" if self._closed else f"producer {sender.name!r}")
        if sender.waiting >= sender.most:
            return ProducerQueueIsFull(sender.name, sender.most)
        if self._most_bytes and self._bytes and self._bytes + size > self._most_bytes:
            return MemoryBufferIsFull(self._most_bytes)
        return None

    def _append(self, sender: Sender, content: Content, stated: int | None, queued: float, done: Done | None) -> None:
        number = sender.numbered + 1 if stated is None else stated
        repeated = sender.named and number <= sender.queued
        sender.numbered, sender.queued = max(sender.numbered, number), max(sender.queued, number)
        known = sender.counts_on or stated is not None
        self._waiting.append(Entry(sender, content, number, known, repeated, queued, done))
        size = content.size
        sender.put += 1
        sender.waiting += 1
        sender.waiting_bytes += size
        self._held += 1
        self._bytes += size

    def _begin(self, at: float) -> None:
        """Let the next turn begin at an instant, if not before."""
        if at < self._begin_at:
            self._begin_at = at
            self._work.notify()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="delayline-producers", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while turn := self._take():
            try:
                self._write(turn)
            except BaseException as error:  # noqa: BLE001 - a panic of delta-rs: who sent is told, and waits for nothing
                _LOG.exception("a turn of the producers failed")
                known = {id(each) for entries in self._decided for each in entries}
                self.failed([each for each in turn if id(each) not in known], _failure(error))
            finally:
                self._decided, turn = [], []  # Contents may be large, and the next turn may be hours away.

    def _take(self) -> list[Entry]:
        """The messages of the next turn; none: the thread ends."""
        with self._lock:
            while (left := self._left()) > 0:
                if self._closed or not (self._work.wait(left) or self._waiting):
                    self._thread = None
                    return []
            turn, size = list[Entry](), 0
            while self._waiting and len(turn) < _TURN_ROWS and size <= _TURN_BYTES:
                turn.append(self._waiting.popleft())
                size += turn[-1].content.size
            self._begin_at = time.monotonic() if self._waiting else inf
            return turn

    def _left(self) -> float:
        """Seconds until the next turn; while nothing waits, until the thread ends."""
        if not self._waiting:
            # Whoever flushed while the last turn was written asked for one that has nothing to do.
            self._begin_at = inf
            return _IDLE_S
        return self._begin_at - time.monotonic()

    def _tell(self, entries: Sequence[Entry], error: Exception | None, ids: Iterable[MessageId | None]) -> None:
        """Make room, then tell each message's sender, then whoever waits for all of them."""
        counts, sizes = dict[Sender, int](), dict[Sender, int]()
        for each in entries:
            counts[each.sender] = counts.get(each.sender, 0) + 1
            sizes[each.sender] = sizes.get(each.sender, 0) + each.content.size
        with self._lock:
            for sender, count in counts.items():
                sender.waiting -= count
                sender.waiting_bytes -= sizes[sender]
                self._bytes -= sizes[sender]
            self._moved.notify_all()
        for each, id_ in zip(entries, ids, strict=False):
            if each.done is None:
                each.sender.error = each.sender.error or error
                continue
            try:
                each.done(error, id_)
            except BaseException:  # noqa: BLE001 - a program's own, `sys.exit` too; the other messages are not to blame
                _LOG.exception("a callback of producer %s failed", each.sender.name)
        with self._lock:
            self._held -= len(entries)
            for sender, count in counts.items():
                sender.decided += count
            self._moved.notify_all()


def _failure(error: BaseException) -> Exception:
    """An error for those who wait: one that ends a process is for the thread in which it was raised."""
    return error if isinstance(error, Exception) else ClientError(f"{type(error).__name__}: {error}")


def _flusher(queue: weakref.ref[Queue]) -> Callable[[], None]:
    """Sends what waits when the process ends."""

    def flush() -> None:
        if (found := queue()) is not None:
            found.flush_all()

    atexit.register(flush)
    return flush
