"""Listeners: functions that are given each message, or are told what became of a consumer."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, Self, TypeVar

from pipeline.client.checks import Closing, checked_timeout
from pipeline.client.exceptions import AlreadyClosed, OperationNotSupported, SubscriptionNotFound, Timeout
from pipeline.client.message import Message
from pipeline.client.tables.job import JobHint
from pipeline.config.errors import AlreadySubscribed
from pipeline.config.threads import end_at_exit

_LOG = logging.getLogger(__name__)
_LOOK_MS, _PAUSE_S, _JOIN_S = 500, 1.0, 0.05
M = TypeVar("M")
_IN_THREAD = threading.local()
"""The worker whose thread it is."""
MessageListener = Callable[[Any, Message], object]
"""As `pipeline.client.consuming.listeners` has it, which knows what a consumer is."""


class EventListener(Protocol):
    """As `ConsumerEventListener` there."""

    def became_active(self, consumer: Any, partition: int) -> None:  # noqa: ANN401 - a consumer
        """It is the one that gets the messages of a partition (-1: of the topic)."""
        ...

    def became_inactive(self, consumer: Any, partition: int) -> None:  # noqa: ANN401 - a consumer
        """It stands by."""
        ...


class Worker:
    """Gives messages to a listener, one after the other, in a thread.

    Attributes:
        taken: how many messages it took, by those who hand them out; 0: they do not count.
        given: how many of them the listener is done with.
    """

    def __init__(
        self,
        take: Callable[[int], Message | None],
        give: Callable[[Message], object],
        queued: Callable[[], bool] = lambda: False,
    ) -> None:
        """Nothing is given yet.

        Args:
            take: gives the next message; None when none came for so long, ms.
            give: the listener.
            queued: whether there is a message that `take` would give now.
        """
        self._take, self._listener, self._queued, self.taken, self.given = take, give, queued, 0, 0
        self._goes, self._ended, self.waits = threading.Event(), threading.Event(), False
        self._goes.set()
        self._thread = threading.Thread(target=self._run, name="delayline-listener", daemon=True)
        end_at_exit(self._thread, self._ended, self._goes)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pause(self) -> None:
        """Give no more until `resume`."""
        self._goes.clear()

    def resume(self) -> None:
        """Go on."""
        self._goes.set()

    @property
    def is_at_rest(self) -> bool:
        """Whether the listener is done with all that it could be given, or gets none now."""
        # In this order: what leaves the queue is counted before the queue is looked at again.
        stands = self._ended.is_set() or not self._goes.is_set()
        return stands or (not self._queued() and self.given == self.taken)

    @property
    def ends(self) -> bool:
        """Whether it takes no more: nobody waits for a message on its behalf."""
        return self._ended.is_set()

    def end(self) -> None:
        """End, after the message that the listener has now."""
        self._ended.set()
        self._goes.set()

    def stop(self) -> None:
        """End, and wait for that; a listener may stop itself, and others.

        No listener waits for one that waits, too: two of them may stop each other.
        """
        self.end()
        mine: Worker | None = getattr(_IN_THREAD, "worker", None)
        if mine is None:
            if self._thread.is_alive():
                self._thread.join()
        elif mine is not self:
            mine.waits = True
            while self._thread.is_alive() and not self.waits:
                self._thread.join(_JOIN_S)
            mine.waits = False

    def _run(self) -> None:
        _IN_THREAD.worker = self
        while not self._ended.is_set():
            self._goes.wait()
            try:
                message = None if self._ended.is_set() else self._take(_LOOK_MS)
            except (AlreadyClosed, SubscriptionNotFound, AlreadySubscribed):
                return
            except BaseException:  # noqa: BLE001 - whatever the store says, and panics of delta-rs
                _LOG.exception("the listener gets no message for now; the next one is asked for again")
                self._ended.wait(_PAUSE_S)
                continue
            paused = not self._goes.is_set()
            self._goes.wait()
            # What was taken before a pause that only the end ends comes again, to others.
            if message is not None and not (paused and self._ended.is_set()):
                self._give(message)
            self.given += message is not None

    def _give(self, message: Message) -> None:
        try:
            self._listener(message)
        except BaseException:  # noqa: BLE001 - whatever the application raises, `sys.exit` too: others wait for messages
            _LOG.exception("the listener failed at %r, which comes again if it is not acknowledged", message)


class Announcer:
    """Tells an application what became of a consumer, in order, in a thread of its own: it may take its time."""

    def __init__(self) -> None:
        """The first call starts the thread."""
        self._calls = SimpleQueue[Callable[[], object] | None]()
        self._thread: threading.Thread | None = None

    def tell(self, call: Callable[[], object]) -> None:
        """Call a function behind the ones before. What it raises is logged."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="delayline-consumer-events", daemon=True)
            self._thread.start()
        self._calls.put(call)

    def end(self) -> None:
        """End behind the last call; nobody waits for that."""
        self._calls.put(None)

    def _run(self) -> None:
        while self._call_next():
            pass

    def _call_next(self) -> bool:
        # Not in `_run`: while the thread waits it holds no call, and so no consumer.
        call = self._calls.get()
        if call is None:
            return False
        try:
            call()
        except BaseException:  # noqa: BLE001 - whatever the application raises; the next call comes all the same
            _LOG.exception("a consumer_event_listener failed")
        return True


class Receiver(Closing):
    """Hands out messages: to whoever asks, or all of them to a listener. A consumer is one, and a reader.

    Attributes:
        root: the warehouse.
    """

    root: str
    _worker: Worker | None = None

    @abstractmethod
    def _next(self, timeout_millis: int | None) -> Message | None:
        """The next message; None: none came for so long. Without a limit it waits for one."""

    def listen(self, listener: Callable[[Self, Message], object]) -> Worker:
        """Give each message to a function from now on, in a thread of its own, by the worker that this gives."""
        self._worker = Worker(self._next, partial(listener, self), self._has_queued)
        self._worker.start()
        return self._worker

    def _has_queued(self) -> bool:
        """Whether it has a message for the listener that it has not handed out."""
        return False

    def _counting(self, take: Callable[[], M | None]) -> Callable[[], M | None]:
        """A function that takes messages; those for a listener are counted."""
        worker = self._worker
        if worker is None:
            return take

        def counted() -> M | None:
            message = take()
            worker.taken += message is not None
            return message

        return counted

    def _received(self, operation: str, listener: str, timeout_millis: int | None) -> Message:
        """The next message, for a method of this name; `listener` names the option that takes messages from it.

        Raises:
            Timeout: none came for so long.
            OperationNotSupported: a listener gets the messages.
        """
        self._refuse_beside(listener, operation)
        found = self._next(checked_timeout("timeout_millis", timeout_millis))
        if found is None:
            raise Timeout(operation, timeout_millis or 0, JobHint(self.root))
        return found

    def _refuse_beside(self, listener: str, operation: str) -> None:
        """Refuse a method that would take messages from a listener.

        Raises:
            OperationNotSupported: there is one.
        """
        if self._worker is not None:
            raise OperationNotSupported(operation, f"a {listener} gets the messages")

    def _end_listening(self, lock: threading.Condition | None = None) -> None:
        """End the listener, if there is one. Its thread may wait for a message, by a lock: it is woken."""
        if self._worker is not None:
            self._worker.end()
            if lock is not None:
                with lock:
                    lock.notify_all()
            self._worker.stop()
