"""How late deliveries were, from what each commit says."""

from collections.abc import Sequence
from dataclasses import dataclass


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
