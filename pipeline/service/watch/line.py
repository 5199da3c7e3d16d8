"""What a person wants to see every few seconds, in one line; and how late deliveries were, from what commits say."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from pipeline.config.stages import IDLE_MS
from pipeline.service.watch.progress import Progress


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


_SILENT_MS = 15_000
"""A stage with nothing to do has a batch every few seconds."""
_WINDOW_MS = 60_000
"""Lateness is told of the last minute: a line's own few seconds may hold one commit."""


@dataclass(frozen=True)
class Line:
    """The figures of one line; None where nothing is known.

    Attributes:
        taken_per_s: messages that ingest took.
        out_per_s: deliveries made visible.
        pending: accepted and not delivered, when it was counted last.
        next_due_s: until the first of those is due; None also when its time has passed since.
        late_p99_s: of the deliveries of the last minute.
        behind_s: how far the slowest clock was behind the wall clock when its last batch ended, 0 when ahead of it;
            of a stage that has told nothing for `_SILENT_MS`, how far it is behind now. People see it above `IDLE_MS`.
    """

    taken_per_s: float
    out_per_s: float
    pending: int | None
    next_due_s: float | None
    late_p99_s: float | None
    behind_s: float | None

    @property
    def moves(self) -> bool:
        """Whether anything came or went."""
        return self.taken_per_s > 0 or self.out_per_s > 0

    def __str__(self) -> str:
        """For people."""
        parts = [f"in {self.taken_per_s:,.0f}/s", f"out {self.out_per_s:,.0f}/s"]
        if self.pending is not None:
            parts.append(f"pending {self.pending:,}")
        if self.next_due_s is not None:
            parts.append(f"next due in {span(self.next_due_s)}")
        if self.late_p99_s is not None:
            parts.append(f"late p99 {span(self.late_p99_s)}")
        if self.behind_s is not None and self.behind_s * 1_000 > IDLE_MS:
            parts.append(f"behind {span(self.behind_s)}")
        return "  ".join(parts)


def span(seconds: float) -> str:
    """A duration in the largest unit that it fills, to a tenth."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _behind_ms(instant_ms: int, ended_ms: int, now_ms: int) -> int:
    return max(0, (ended_ms if now_ms - ended_ms < _SILENT_MS else now_ms) - instant_ms)


class ProgressAggregator:
    """Gathers what was told since the last line. Written by several threads, read by one."""

    def __init__(self, now_ms: int) -> None:
        """Begin the first line now (ms UTC)."""
        self._lock = Lock()
        self._since, self._taken, self._out = now_ms, 0, 0
        self._late = deque[tuple[int, Publication]]()
        self._instants = dict[str, tuple[int, int]]()
        self._pending: int | None = None
        self._next_due: int | None = None

    def progressed(self, batch: Progress) -> None:
        """A batch ended."""
        with self._lock:
            if batch.stage == "ingest":
                self._taken += batch.rows
            if batch.instant_ms is not None:
                self._instants[batch.stage] = batch.instant_ms, batch.ended_ms

    def published(self, part: Publication, committed_ms: int) -> None:
        """A commit made deliveries visible at a time, ms UTC."""
        with self._lock:
            self._out += part.count
            self._late.append((committed_ms, part))
            self._forget(committed_ms)

    def waiting(self, count: int, next_due_ms: int | None) -> None:
        """So many are pending; the first of them is due then, ms UTC."""
        with self._lock:
            self._pending, self._next_due = count, next_due_ms

    def line(self, now_ms: int) -> Line:
        """The figures since the last call; ms UTC."""
        with self._lock:
            seconds = max(1, now_ms - self._since) / 1_000
            self._forget(now_ms)
            behind = max((_behind_ms(*each, now_ms) for each in self._instants.values()), default=None)
            # What was due next when it was counted has been delivered since, unless the clock stands.
            ahead = None if self._next_due is None or self._next_due < now_ms else (self._next_due - now_ms) / 1_000
            late = percentile([part for _, part in self._late], 0.99)
            behind_s = None if behind is None else behind / 1_000
            line = Line(self._taken / seconds, self._out / seconds, self._pending, ahead, late, behind_s)
            self._since, self._taken, self._out = now_ms, 0, 0
        return line

    def _forget(self, now_ms: int) -> None:
        """Leave out what is older than the window. A service may run for weeks without anybody who asks for a line."""
        # The other side as well: after a clock was set back, what was told before seems to come from the future.
        while self._late and abs(self._late[0][0] - now_ms) > _WINDOW_MS:
            self._late.popleft()
