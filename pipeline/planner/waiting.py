"""What a change of schedules waits for, said in the log when it waits for long."""

from __future__ import annotations

import logging

from pipeline.config.settings import HOUR_MS, MINUTE_MS

_LOG = logging.getLogger(__name__)


class Waiting:
    """A change that waits: it is said after a minute, and each hour again."""

    def __init__(self) -> None:
        """Nothing waits yet."""
        self._said_at: int | None = None

    def over(self) -> None:
        """It waits no more."""
        self._said_at = None

    def waits(self, for_what: str, now: int) -> None:
        """It waits, at a time (ms UTC)."""
        if self._said_at is None:
            self._said_at = now + MINUTE_MS - HOUR_MS
        if now - self._said_at >= HOUR_MS:
            _LOG.warning("a change of schedules waits: %s", for_what)
            self._said_at = now
