"""Figures of what a client sends, one line in the log now and then."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pipeline.client.producing.rows import Entry

_LOG = logging.getLogger(__name__)


class Stats:
    """Counts turns, and tells when its interval is over."""

    def __init__(self, interval_s: float) -> None:
        """Begin to count; an interval of 0 never ends."""
        self._interval_s, self._begun, self._slowest_s = interval_s, time.monotonic(), 0.0
        self._turns = self._messages = self._bytes = 0

    def turn(self, entries: Sequence[Entry], took_s: float) -> None:
        """Count a turn that has ended."""
        self._turns += 1
        self._messages += len(entries)
        self._bytes += sum(len(each.content.payload) for each in entries)
        self._slowest_s = max(self._slowest_s, took_s)
        passed_s = time.monotonic() - self._begun
        if self._interval_s and passed_s >= self._interval_s:
            _LOG.info(
                "sent %d messages (%.1f a second) of %d bytes in %d commits, the slowest in %.0f ms",
                *(self._messages, self._messages / passed_s, self._bytes, self._turns, self._slowest_s * 1_000),
            )
            self._begun, self._slowest_s = time.monotonic(), 0.0
            self._turns = self._messages = self._bytes = 0
