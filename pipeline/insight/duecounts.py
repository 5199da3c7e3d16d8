"""What is due when: counts of minutes put together to equal spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.client.insight.minutecounts import MinuteCounts


@dataclass(frozen=True)
class DueCounts:
    """How many messages are due in spans that follow each other.

    Attributes:
        begin: the start of the first span, ms UTC.
        span_ms: how long each of them is.
        counts: messages of each span.
    """

    begin: int
    span_ms: int
    counts: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """The start of each span, ms UTC."""
        return [self.begin + number * self.span_ms for number in range(len(self.counts))]

    @property
    def total(self) -> int:
        """Messages of all spans."""
        return sum(self.counts)


def due_counts(minutes: MinuteCounts, now_ms: int, span_ms: int, spans: int) -> DueCounts:
    """What is due from the span of a time on; what is overdue is in none.

    Args:
        minutes: messages by their minute.
        now_ms: a time in the first span, ms UTC.
        span_ms: how long each is, a number of whole minutes.
        spans: how many there are.
    """
    begin = now_ms // span_ms * span_ms
    bounds = np.searchsorted(minutes.starts, begin + np.arange(spans + 1) * span_ms)
    below = np.concatenate([[0], np.cumsum(minutes.counts)])[bounds]
    return DueCounts(begin, span_ms, tuple(np.diff(below).tolist()))
