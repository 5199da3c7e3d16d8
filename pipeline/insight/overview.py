"""How a warehouse stands: its job, what waits and when it is due, how late deliveries were, and what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pipeline.client.insight.backlogfigures import BacklogFigures
from pipeline.client.insight.pending import Pending
from pipeline.client.insight.pending import pending as count
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.insight.standing import Standing, standings
from pipeline.client.subscribing.registryview import RegistryView
from pipeline.client.tables.job import Job, job_of
from pipeline.config.settings import HOUR_MS, MINUTE_MS
from pipeline.doctor.examine import Report, examine
from pipeline.insight.duecounts import DueCounts, due_counts
from pipeline.insight.lateness import Lateness, lateness

T = TypeVar("T")
_MINUTES, _HOURS = 60, 7 * 24
_EXAMINED_S, _LATENESS_S = 15.0, 3.0
"""What takes longest, and changes least, is looked at again after so long."""
_REST = 30
"""And after so many times as long as the look took: a large warehouse is looked at less often."""


@dataclass(frozen=True)
class Overview:
    """How a warehouse stands.

    Attributes:
        root: its folder.
        now_ms: when it was looked at, ms UTC.
        job: what runs it.
        standings: its subscriptions.
        pending: what waits for its first delivery, by subscription.
        figures: what that comes to.
        found: what the doctor says.
        hour: what is due in the hour that follows, minute by minute.
        week: what is due in the week that follows, hour by hour.
        late: how late the deliveries of the last hour were.
    """

    root: str
    now_ms: int
    job: Job
    standings: Sequence[Standing]
    pending: Pending
    figures: BacklogFigures
    found: Report
    hour: DueCounts
    week: DueCounts
    late: Lateness

    @property
    def outstanding(self) -> int:
        """Messages that were delivered and are not acknowledged, of subscriptions that acknowledge."""
        return sum(each.outstanding or 0 for each in self.standings)

    @property
    def waiting(self) -> int:
        """Messages that failed and come again."""
        return sum(each.waiting or 0 for each in self.standings)


class OverviewFollower:
    """Looks at a warehouse again and again; several threads may."""

    def __init__(self, root: str) -> None:
        """Look at nothing yet."""
        self.root = root
        self._pending, self._lock = PendingFollower(root), threading.Lock()
        self._kept: dict[str, tuple[float, Any]] = {}

    def look(self, now_ms: int) -> Overview:
        """How it stands at a time, ms UTC.

        Raises:
            NoWarehouse: the folder lacks a table.
        """
        with self._lock:
            pending = self._pending.look()
            found = self._recent("doctor", _EXAMINED_S, lambda: examine(self.root, now_ms))
            late = self._recent("lateness", _LATENESS_S, lambda: lateness(self.root, now_ms, HOUR_MS))
            return overview(self.root, now_ms, pending, found, late, self._pending.registry)

    def _recent(self, name: str, least_s: float, look: Callable[[], T]) -> T:
        """What was seen a short while ago, or is seen now."""
        again, seen = self._kept.get(name, (0, None))
        begun = time.monotonic()
        if begun >= again:
            seen = look()
            ended = time.monotonic()
            self._kept[name] = ended + max(least_s, _REST * (ended - begun)), seen
        return seen  # type: ignore[no-any-return] # it was kept under its own name


def look_back(root: str, as_of: int) -> Overview:
    """How a warehouse stood at an instant that has passed: what waited then, when it was due, and how late it had been.

    What is said of its job, of what is outstanding and of what is wrong is so now.

    Args:
        root: the warehouse.
        as_of: the instant, ms UTC.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: deliveries of that time are deleted.
    """
    then = count(root, as_of=as_of)
    return overview(root, as_of, then, examine(root, as_of), lateness(root, as_of, HOUR_MS))


def overview(
    root: str, now_ms: int, pending: Pending, found: Report, late: Lateness, known: RegistryView | None = None
) -> Overview:
    """How a warehouse stands, by what was counted, found and read of the registry already.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    figures = BacklogFigures.of(pending.backlogs, now_ms)
    return Overview(
        root=root,
        now_ms=now_ms,
        job=job_of(root),
        standings=standings(root, known=known),
        pending=pending,
        figures=figures,
        found=found,
        hour=due_counts(figures.minutes, now_ms, MINUTE_MS, _MINUTES),
        week=due_counts(figures.minutes, now_ms, HOUR_MS, _HOURS),
        late=late,
    )
