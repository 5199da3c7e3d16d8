"""After an outage: what is due waits until ingest has taken what came meanwhile and may be due before it."""

import sys
from collections.abc import Callable

from pipeline.config.stages import INGEST
from pipeline.config.wallclock import monotonic_ms
from pipeline.delta.checkpoints import Checkpoint, Progress
from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse
from schemas import INBOX

_NEAR_MS = 2_000
"""Ingest has caught up when what is new is taken so soon."""
_PATIENCE_MS = 60_000
"""An ingest that does no batch for so long is not waited for: it may be stopped, for maintenance or for good."""


class CatchUp:
    """Says whether the schedule's clock has to stand still, since ingest has not caught up yet after a start."""

    def __init__(self, ingest: Progress, newest: Callable[[], int], clock: Callable[[], int] = monotonic_ms) -> None:
        """Begin with what is there now.

        Args:
            ingest: how far ingest is.
            newest: the newest version of the inbox.
            clock: a clock that is never set, ms.
        """
        self._ingest, self._newest, self._clock = ingest, newest, clock
        self._version, self._begun, self._last_ms = newest(), clock(), sys.maxsize
        self._progress, self._since = ingest.version, self._begun
        self._is_over = False

    @classmethod
    def of(cls, warehouse: Warehouse) -> "CatchUp":
        """The catch-up of the ingest of a warehouse, in whichever job that runs."""
        files, inbox = warehouse.files, warehouse.path(INBOX)
        ingest = Progress(Checkpoint(files, warehouse.checkpoint(INGEST)))
        return cls(ingest, lambda: newest(files, inbox))

    def lasts(self) -> bool:
        """Whether ingest has to catch up. Once it has, it is not looked at any more."""
        self._is_over = self._is_over or self._ends()
        return not self._is_over

    def _ends(self) -> bool:
        now, progress = self._clock(), self._ingest.version
        if progress != self._progress:
            self._progress, self._since = progress, now
        if progress <= self._version:
            return now - self._since >= _PATIENCE_MS
        took = now - self._begun
        # Where it takes no shorter than before, ingest is as far as it comes under this load.
        if took <= _NEAR_MS or took > self._last_ms // 2:
            return True
        self._version, self._begun, self._last_ms = self._newest(), now, took
        return False
