"""Watching a running pipeline: the seam through which dispatch tells what became visible, and how late that was."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.settings import check


class Watch(Protocol):
    """Who wants to know what the stages do. Called from their threads, so it answers at once and raises nothing."""

    def took(self, stage: str, rows: int) -> None:
        """A stage read rows of its source by itself, which Spark has not counted."""
        ...

    def published(self, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int) -> None:
        """A commit made deliveries visible.

        Args:
            count: how many.
            first_due_ms: the earliest due time among them, ms UTC.
            last_due_ms: the latest, ms UTC.
            committed_ms: when the commit was there, ms UTC.
        """
        ...


@dataclass(frozen=True)
class Unwatched:
    """The watch that looks away."""

    def took(self, stage: str, rows: int) -> None:
        """Forget it."""

    def published(self, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int) -> None:
        """Forget it."""


@dataclass(frozen=True)
class Watching:
    """How a process may be watched from outside; nothing of it is needed for its work.

    Attributes:
        metrics_port: Prometheus finds the metrics at this port of all addresses; None: nowhere.
        progress_log: a line of JSON for each batch is appended to this file; None: to none of ours.
    """

    metrics_port: int | None = None
    progress_log: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no port."""
        if self.metrics_port is not None:
            check("run.metrics_port", self.metrics_port, 1, 65_535)


@dataclass(frozen=True)
class Publication:
    """How late the deliveries of one commit were.

    A commit is told with its earliest and its latest due time; what lies between is taken as evenly spread.

    Attributes:
        count: deliveries.
        least_s: lateness of the one that was due last, seconds.
        most_s: lateness of the one that was due first, seconds.
    """

    count: int
    least_s: float
    most_s: float

    @classmethod
    def of(cls, count: int, first_due_ms: int, last_due_ms: int, committed_ms: int) -> "Publication":
        """From what `Watch.published` is told."""
        return cls(count, (committed_ms - last_due_ms) / 1_000, (committed_ms - first_due_ms) / 1_000)

    @property
    def sum_s(self) -> float:
        """The lateness of all of them together, seconds."""
        return self.count * (self.least_s + self.most_s) / 2

    def within(self, bound_s: float) -> float:
        """How many were at most so late."""
        if bound_s >= self.most_s:
            return self.count
        if bound_s <= self.least_s:
            return 0
        return self.count * (bound_s - self.least_s) / (self.most_s - self.least_s)


def percentile(parts: Sequence[Publication], share: float) -> float | None:
    """The lateness in seconds, to the ms, that this share of the deliveries had at most; None without deliveries."""
    wanted = share * sum(part.count for part in parts)
    if not wanted:
        return None
    low, high = min(part.least_s for part in parts), max(part.most_s for part in parts)
    while high - low > 0.001:
        middle = (low + high) / 2
        if sum(part.within(middle) for part in parts) < wanted:
            low = middle
        else:
            high = middle
    return high
