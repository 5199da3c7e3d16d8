"""What time it is for those who read the tables: the wall clock, or the instant of a replay."""

from dataclasses import dataclass

from pipeline.config.settings import Clock, LiveClock
from pipeline.config.wallclock import wall_ms
from state.units import Ms


@dataclass(frozen=True)
class Timeline:
    """The time that decides what may be visible.

    `live`: it is the wall clock, which goes on by itself, and which a lookahead runs ahead of. Else it is the instant
    of a release: what a virtual clock releases is due. `step_ms` is the longest step of the clock.
    """

    live: bool
    step_ms: int = 0

    def within_a_step(self, instant: Ms, last: Ms) -> Ms:
        """The time, ms UTC: at most a step of the clock after its last instant, not before it, nor before `last`.

        The clock is paced: a machine that was down for a day, or woke up in another year, comes to the present step by
        step.
        """
        return max(instant, last, Ms(min(wall_ms(), instant + self.step_ms))) if self.live else instant

    def now(self, instant: Ms) -> Ms:
        """The time, ms UTC, for what was released at an instant."""
        return wall_ms() if self.live else instant


def timeline(clock: Clock) -> Timeline:
    """The timeline that goes with a clock."""
    return Timeline(live=True, step_ms=clock.max_step_ms) if isinstance(clock, LiveClock) else Timeline(live=False)
