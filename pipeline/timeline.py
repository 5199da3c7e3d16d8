"""What time it is for those who read the tables: the wall clock, or the instant of a replay."""

import time

from pipeline.clock import wall_ms
from pipeline.dispatch import Timeline
from pipeline.settings import Clock, LiveClock


def timeline(clock: Clock) -> Timeline:
    """The timeline that goes with a clock. A live one waits for the wall clock, which a lookahead runs ahead of."""
    if isinstance(clock, LiveClock):
        return Timeline(hold=_wait_until, now=lambda _: wall_ms())
    return Timeline(hold=lambda _: None, now=lambda instant: instant)


def _wait_until(instant: int) -> None:
    """Return when the wall clock has reached an instant (ms). It may be set while we wait: look again and again."""
    while (left := instant - wall_ms()) > 0:
        time.sleep(min(left, 50) / 1_000)
