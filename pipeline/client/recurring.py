"""Something that is done again and again in a thread of its own, until it is ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Recurring:
    """Calls a function every so many seconds; what it raises is logged, and it is called again."""

    def __init__(self, period_s: float, look: Callable[[], None]) -> None:
        """Begin."""
        self._period_s, self._look, self._lock, self._ended = period_s, look, threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="delayline-topics", daemon=True)
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
            try:
                self.now()
            except Exception:  # noqa: BLE001 - whatever it is, it may be over next time
                _LOG.exception("looking for new topics failed; it is tried again in %s s", self._period_s)
