"""What time it is for those who read the tables: the wall clock, or the instant of a replay."""

from dataclasses import dataclass

from pipeline.clock import wall_ms
from pipeline.settings import Clock, LiveClock


@dataclass(frozen=True)
class Timeline:
    """The time that decides what may be visible.

    `live`: it is the wall clock, which goes on by itself, and which a lookahead runs ahead of. Else it is the instant
    of a release: what a virtual clock releases is due.
    """

    live: bool

    def now(self, instant: int) -> int:
        """The time, ms UTC, for what was released at an instant."""
        return wall_ms() if self.live else instant


def timeline(clock: Clock) -> Timeline:
    """The timeline that goes with a clock."""
    return Timeline(isinstance(clock, LiveClock))
