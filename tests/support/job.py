"""A job without a JVM: stages that follow their clocks, stay away, and are started again after a death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from pipeline.config import timeline
from pipeline.config.errors import ClockAhead, ClockJumped
from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE, SETTLE
from pipeline.service import clock, startup
from pipeline.service.clock import LiveInstants
from pipeline.service.run import a_step_ahead, taking_in
from tests.support.stages import Stages


@dataclass
class Clocks:
    """The wall clock of a machine, and how long it has been up, in ms; both stand until somebody moves them."""

    wall: int
    elapsed: int = 0

    def go_on(self, ms: int) -> None:
        """Time passes, or the machine sleeps."""
        self.wall, self.elapsed = self.wall + ms, self.elapsed + ms

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Meanwhile the stages have this time."""
        with ExitStack() as patches:
            for module in (timeline, clock, startup):
                patches.enter_context(patch.object(module, "wall_ms", lambda: self.wall))
            patches.enter_context(patch.object(clock, "elapsed_ms", lambda: self.elapsed))
            yield


@dataclass
class Job:
    """All stages of a warehouse in one process; some may be away."""

    stages: Stages
    clocks: Clocks
    away: set[str] = field(default_factory=set)
    _instants: dict[str, LiveInstants] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        """Whether its clock is the wall clock, and not one whose instants are given."""
        return isinstance(self.stages.clock, LiveClock)

    def follow(self, death: str | None = None) -> bool:
        """Each stage that is there does what there is to do, one after the other; one may die, and stays dead so long.

        Returns:
            Whether the job goes on: a clock that was set by too much ends it.
        """
        self.stages.die_after(death)
        try:
            for stage in ALL_STAGES:
                if stage not in self.away:
                    self._follow(stage)
        except ClockJumped:
            self.start_again()
            return False
        finally:
            self.stages.die_after(None)
        return True

    def start_again(self) -> None:
        """The process ends, and there is a new one."""
        self.stages.restart_all()
        self._instants.clear()

    def refused(self) -> set[str]:
        """The stages that a start refuses because of the clock."""
        found = set()
        for stage in set(ALL_STAGES) - self.away:
            try:
                self.stages.start(stage)
            except ClockAhead:
                found.add(stage)
        return found

    def _follow(self, stage: str) -> bool:
        """Let a stage come to the present; whether it lives."""
        if stage == DISPATCH:
            return self._dispatch()
        if stage == SETTLE:
            self.stages.instant = self.clocks.wall
            return self.stages.settle()
        for instant in self._instants_of(stage):
            self.stages.instant = instant
            while stage == INGEST and self.stages.has_ingest:
                if not self.stages.ingest():
                    return False
            if stage == SCHEDULE and not self.stages.release():
                return False
        return True

    def _dispatch(self) -> bool:
        self.stages.instant = self.clocks.wall
        while self.stages.has_dispatch:
            if not self.stages.dispatch():
                return False
        return self.stages.publish()

    def _instants_of(self, stage: str) -> Iterator[int]:
        """The instants of a stage up to now, of which the last one is told again when there is none."""
        if not isinstance(self.stages.clock, LiveClock):
            yield self.clocks.wall
            return
        self.stages.start(stage)
        last = self.stages.last_instant(stage)
        if stage not in self._instants:
            asking = taking_in(Options(self.stages.clock)).clock if stage == INGEST else a_step_ahead(self.stages.clock)
            assert isinstance(asking, LiveClock)
            self._instants[stage] = LiveInstants(asking, last)
        instants = self._instants[stage]
        last = last or instants.first()
        yield last
        while (instant := instants.after(last)) > last:
            last = instant
            yield last
