"""What the consumers of a process say, appended in one commit a turn: commits are what a warehouse has few of."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
from deltalake.exceptions import DeltaError

from pipeline.client.clock import Clock
from pipeline.config.errors import PipelineError
from pipeline.config.threads import errors_logged
from pipeline.delta.deltars import append
from schemas import CONSUMER_EVENTS

_LOG = logging.getLogger(__name__)
_LEAST_MS, _TIMES = 100, 4
"""Between two commits: so long, and so many times as long as each of the last two took. A single slow commit
is ignored, because the length of leases follows this interval."""
_LONGEST_MS, _RAREST_MS = 10_000, 60_000
_LOOK_MS = 1_000
"""So often the thread looks whether it shall end."""


class EventWriter:
    """Appends rows to `consumer_events` in the order in which they were given; what fails is appended again.

    Appending rows twice changes nothing: that is how settle and leases take them.

    Attributes:
        version: of the table, after the last commit; -1: there was none.
        asked: how often rows were given.
        done: how many of these are in the table.
        interval_ms: between two commits, at least.
        given: wakes the thread.
    """

    def __init__(self, root: str, clock: Clock) -> None:
        self._root, self._clock = root, clock
        self._waiting: list[pa.Table] = []
        self._lock, self._committing, self.given = threading.Lock(), threading.Lock(), threading.Event()
        self._not_before, self._soonest, self._failures, self._hurry = 0, 0, 0, False
        self._took_ms = 0
        self.version, self.asked, self.done = -1, 0, 0
        self.interval_ms = _LEAST_MS

    def add(self, rows: pa.Table, *, hurry: bool = False) -> None:
        """Append these, behind all that waits.

        Args:
            rows: the rows.
            hurry: somebody waits for them. They wait once as long as the last commit took, not four times.
        """
        if rows.num_rows:
            with self._lock:
                self._waiting.append(rows)
                self._hurry = self._hurry or hurry
                self.asked += 1

    def begin(self) -> bool:
        """Let the thread append what waits; whether anything does."""
        if self._waiting:
            self.given.set()
        return bool(self._waiting)

    def run(self, ended: threading.Event) -> None:
        """Append, commit after commit, until the end; who turns consumers need not wait for the store then."""
        while not ended.is_set():
            if (left_s := self._left_ms() / 1_000) > 0:
                self.given.wait(left_s)
                self.given.clear()
                continue
            with errors_logged(_LOG, "consumer_events: an append failed; it is tried again", ended, _LOOK_MS / 1_000):
                self.flush()

    def _left_ms(self) -> int:
        """How long the next commit has to wait; while nothing waits, how long the thread sleeps."""
        with self._lock:
            due = self._soonest if self._hurry else self._not_before
            return due - self._clock.now() if self._waiting else _LOOK_MS

    def flush(self, *, at_once: bool = False) -> bool:
        """Append what waits, if it is time; whether it was appended.

        Args:
            at_once: do not wait for the time, and raise when it fails.

        Raises:
            DelaylineError: the table cannot be written to; only when it was to be at once.
            DeltaError: the same, by delta-rs.
            OSError: the same, by the file system.
        """
        with self._committing:
            return self._flush(at_once=at_once)

    def _flush(self, *, at_once: bool) -> bool:
        if not self._waiting or (self._left_ms() > 0 and not at_once):
            return False
        with self._lock:
            waiting, self._hurry = list(self._waiting), False
        began = self._clock.now()
        try:
            self.version = append(self._root, CONSUMER_EVENTS, pa.concat_tables(waiting))
        except (PipelineError, DeltaError, OSError) as error:
            self._failed(error)
            if at_once:
                raise
            return False
        with self._lock:
            del self._waiting[: len(waiting)]
            self.done += len(waiting)
        took = self._clock.now() - began
        usual, self._took_ms = min(took, self._took_ms), took
        self.interval_ms = min(_RAREST_MS, max(_LEAST_MS, _TIMES * usual))
        self._not_before, self._failures = began + self.interval_ms, 0
        self._soonest = began + max(_LEAST_MS, 2 * usual)
        return True

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        pause = min(_LONGEST_MS, _LEAST_MS * 2**self._failures)
        self._not_before = self._soonest = self._clock.now() + pause
        _LOG.warning("consumer_events: append %d failed, again in %d ms: %s", self._failures, pause, error)
