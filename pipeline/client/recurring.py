"""What is done again and again in the background, and what is done to all of several things."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from pipeline.config.threads import end_at_exit, errors_logged

_LOG = logging.getLogger(__name__)


class Recurring:
    """Calls a function every so many seconds, in its thread; what that raises is logged, and it is called again."""

    def __init__(self, period_s: float, look: Callable[[], None]) -> None:
        """Begin; the first call is after so many seconds."""
        self._period_s, self._look, self._lock, self._ended = period_s, look, threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="delayline-topics", daemon=True)
        end_at_exit(self._thread, self._ended)
        self._thread.start()

    def now(self) -> None:
        """Call it at once, in this thread; one call at a time."""
        with self._lock:
            if not self._ended.is_set():
                self._look()

    def end(self) -> None:
        """Call it no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            message = f"looking for new topics failed; it is tried again in {self._period_s} s"
            with errors_logged(_LOG, message, self._ended, 0):
                self.now()


def each_of(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls, also when one of them fails; the first error is raised at the end."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others have to be made, too
            first = first or error
    if first is not None:
        raise first
