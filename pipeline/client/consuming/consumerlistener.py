"""Listeners: functions that are given each message, or are told what became of a consumer."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from pipeline.client.checks import Closing
from pipeline.client.exceptions import AlreadyClosed, OperationNotSupported, Timeout
from pipeline.client.message import Message

if TYPE_CHECKING:
    from pipeline.client.consuming.consumer import Consumer

_LOG = logging.getLogger(__name__)
_LOOK_MS, _PAUSE_S = 500, 1.0
MessageListener = Callable[["Consumer", Message], object]
"""Gets a consumer and a message of it."""


class ConsumerEventListener(Protocol):
    """Is told of a failover consumer."""

    def became_active(self, consumer: Consumer, partition: int) -> None:
        """It is the one that gets the messages of a partition (-1: of the topic)."""
        ...

    def became_inactive(self, consumer: Consumer, partition: int) -> None:
        """It stands by."""
        ...


class Worker:
    """Gives messages to a listener, one after the other, in a thread."""

    def __init__(self, take: Callable[[int], Message | None], give: Callable[[Message], object]) -> None:
        """Nothing is given yet.

        Args:
            take: gives the next message; None when none came for so long, ms.
            give: the listener.
        """
        self._take, self._listener = take, give
        self._goes, self._ended = threading.Event(), threading.Event()
        self._goes.set()
        self._thread = threading.Thread(target=self._run, name="delayline-listener", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pause(self) -> None:
        """Give no more until `resume`."""
        self._goes.clear()

    def resume(self) -> None:
        """Go on."""
        self._goes.set()

    def stop(self) -> None:
        """End, after the message that the listener has now; a listener may stop itself."""
        self._ended.set()
        self._goes.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._goes.wait()
            try:
                message = None if self._ended.is_set() else self._take(_LOOK_MS)
            except AlreadyClosed:
                return
            except Exception:  # noqa: BLE001 - whatever the store says
                _LOG.exception("the listener gets no message for now; the next one is asked for again")
                self._ended.wait(_PAUSE_S)
                continue
            self._goes.wait()
            if message is not None:
                self._give(message)

    def _give(self, message: Message) -> None:
        try:
            self._listener(message)
        except Exception:  # noqa: BLE001 - whatever the application raises
            _LOG.exception("the listener failed at %r, which comes again if it is not acknowledged", message)


class Receiver(Closing):
    """Hands out messages: to whoever asks, or all of them to a listener. A consumer is one, and a reader."""

    _worker: Worker | None = None

    @abstractmethod
    def _next(self, timeout_millis: int | None) -> Message | None:
        """The next message; None: none came for so long. Without a limit it waits for one."""

    def listen(self, listener: Callable[[Self, Message], object]) -> None:
        """Give each message to a function from now on, in a thread of its own."""
        self._worker = Worker(self._next, partial(listener, self))
        self._worker.start()

    def _received(self, operation: str, listener: str, timeout_millis: int | None) -> Message:
        """The next message, for a method of this name; `listener` names the option that takes messages from it.

        Raises:
            Timeout: none came for so long.
            OperationNotSupported: a listener gets the messages.
        """
        self._refuse_beside(listener, operation)
        found = self._next(timeout_millis)
        if found is None:
            raise Timeout(operation, timeout_millis or 0)
        return found

    def _refuse_beside(self, listener: str, operation: str) -> None:
        """Refuse a method that would take messages from a listener.

        Raises:
            OperationNotSupported: there is one.
        """
        if self._worker is not None:
            raise OperationNotSupported(operation, f"a {listener} gets the messages")

    def _end_listening(self) -> None:
        if self._worker is not None:
            self._worker.stop()
