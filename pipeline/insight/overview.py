"""How a warehouse stands: its job, what waits and when it is due, how late deliveries were, and what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass

from pipeline.client.insight.backlogfigures import BacklogFigures
from pipeline.client.insight.pending import Pending
from pipeline.client.insight.pending import pending as count
from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.client.insight.standing import Standing, standings
from pipeline.client.subscribing.registryview import RegistryView
from pipeline.client.tables.job import Job, job_of
from pipeline.config.settings import HOUR_MS, MINUTE_MS
from pipeline.delta.deltars import KeptTables, kept_open
from pipeline.doctor.examine import Report, examine
from pipeline.insight.duecounts import DueCounts, due_counts
from pipeline.insight.lateness import Lateness, lateness

_MINUTES, _HOURS = 60, 7 * 24
_EXAMINED_S, _LATENESS_S = 15.0, 3.0
"""What takes longest, and changes least, is looked at again after so long."""
PATIENCE_S = 0.5
"""So long a page waits for the doctor when it is opened."""
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
        found: what the doctor said last; None: she looks for the first time, and has not ended.
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
    found: Report | None
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

    def __init__(self, root: str, patience_s: float | None = None) -> None:
        """Look at nothing yet.

        Args:
            root: the warehouse.
            patience_s: so long the first look waits for the doctor, who takes the longer the more was delivered; later
                ones tell what she said last. None: a look waits for her when it is time that she looks again.
        """
        self.root = root
        self._pending, self._lock = PendingFollower(root), threading.Lock()
        self._doctor = _Doctor(root, patience_s)
        self._late, self._late_again = Lateness(0), 0.0
        self._tables: KeptTables = {}

    def look(self, now_ms: int) -> Overview:
        """How it stands at a time, ms UTC.

        Raises:
            NoWarehouse: the folder lacks a table.
        """
        with self._lock, kept_open(self._tables):
            pending, begun = self._pending.look(), time.monotonic()
            if begun >= self._late_again:
                self._late = lateness(self.root, now_ms, HOUR_MS)
                self._late_again = _again(begun, _LATENESS_S)
            found = self._doctor.report(now_ms)
            return overview(self.root, now_ms, pending, found, self._late, self._pending.registry)


class _Doctor:
    """Looks in a thread of her own, now and then."""

    def __init__(self, root: str, patience_s: float | None) -> None:
        self._root, self._patience_s = root, patience_s
        self._running: Future[Report] | None = None
        self._last: Report | None = None
        self._again = 0.0

    def report(self, now_ms: int) -> Report | None:
        """What she said last; None: she has not ended for the first time.

        Raises:
            NoWarehouse: there is no table.
        """
        if self._running is None and time.monotonic() >= self._again:
            self._running = Future()
            threading.Thread(target=self._examine, args=(self._running, now_ms), daemon=True).start()
            wait([self._running], self._patience_s if self._last is None or self._patience_s is None else 0)
        if self._running is not None and self._running.done():
            ended, self._running = self._running, None
            self._last = ended.result()
        return self._last

    def _examine(self, running: Future[Report], now_ms: int) -> None:
        begun = time.monotonic()
        try:
            found = examine(self._root, now_ms)
        except BaseException as error:  # noqa: BLE001 - whoever looks gets it
            running.set_exception(error)
        else:
            self._again = _again(begun, _EXAMINED_S)
            running.set_result(found)


def _again(begun: float, least_s: float) -> float:
    """When to look again after a look that ends now."""
    ended = time.monotonic()
    return ended + max(least_s, _REST * (ended - begun))


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
    root: str, now_ms: int, pending: Pending, found: Report | None, late: Lateness, known: RegistryView | None = None
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
