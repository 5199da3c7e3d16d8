"""Figures of what a consumer gets, one line in the log now and then."""

from __future__ import annotations

import logging

import pyarrow.compute as pc

from pipeline.client.tables.rows import Rows

_LOG = logging.getLogger(__name__)


class ConsumerStats:
    """Counts what was handed out and what was said of it, and tells when its interval is over.

    Attributes:
        settled: messages that were acknowledged since the last line.
        failed: messages that were given back, or timed out.
    """

    def __init__(self, interval_s: int, now: int) -> None:
        """Begin to count at an instant (ms); an interval of 0 never ends."""
        self._interval_ms, self._begun = interval_s * 1_000, now
        self._messages = self._bytes = self._again = self.settled = self.failed = 0

    def handed(self, rows: Rows) -> None:
        """Count rows that the application got."""
        if self._interval_ms:
            self._messages += len(rows)
            self._again += int((rows.counts > 0).sum())
            self._bytes += pc.sum(pc.binary_length(rows.table.column("payload"))).as_py() or 0

    def tell(self, now: int, who: tuple[str, str, str], queued: int, held: int) -> None:
        """Log the line when it is time, and begin anew.

        Args:
            now: the instant, ms.
            who: topic, subscription, consumer.
            queued: messages that were read and not handed out.
            held: messages that were handed out and not settled.
        """
        passed_ms = now - self._begun
        if not self._interval_ms or passed_ms < self._interval_ms:
            return
        _LOG.info(
            "consumer %s/%s %s: received %d messages (%.1f a second) of %d bytes, %d of them again; %d acknowledged, "
            "%d failed; %d are queued, %d not settled",
            *(*who, self._messages, self._messages * 1_000 / passed_ms, self._bytes, self._again),
            *(self.settled, self.failed, queued, held),
        )
        self._begun = now
        self._messages = self._bytes = self._again = self.settled = self.failed = 0
