"""The clocks of the stages, and what ingest calls now."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.config import timeline as module
from pipeline.config.options import Options
from pipeline.config.settings import DAY_MS, HOUR_MS, LiveClock, Settings, VirtualClock
from pipeline.config.timeline import timeline
from pipeline.service.run import a_step_ahead, in_steps, taking_in
from state.units import Ms

T0 = 1_700_000_000_000


@pytest.mark.parametrize(
    ("wall", "last", "now"),
    [
        (T0 + 4_000, 0, T0 + 4_000),
        (T0 - 3_000, 0, T0),
        (T0 + 2_000, T0 + 2_500, T0 + 2_500),
        (T0 + 36_000_000, 0, T0 + 60_000),
        (T0 + 36_000_000, T0 + 59_000, T0 + 60_000),
    ],
    ids=["between two ticks", "behind its clock", "stepped back", "after an outage", "and then"],
)
def test_ingest_takes_at_the_time_it_is_but_paced(
    monkeypatch: pytest.MonkeyPatch, wall: int, last: int, now: int
) -> None:
    """Never back, and never further than a step from what the clock has said."""
    monkeypatch.setattr(module, "wall_ms", lambda: wall)
    assert timeline(LiveClock(max_step_ms=60_000)).within_a_step(Ms(T0), Ms(last)) == now


def test_a_virtual_clock_is_taken_at_its_word() -> None:
    """Whatever was before: a replay gives the same again."""
    assert timeline(VirtualClock()).within_a_step(Ms(T0), Ms(T0 + 9)) == T0


@pytest.mark.parametrize(("ahead", "step"), [(10_000, 5_000), (0, 100), (150, 100), (3 * HOUR_MS, 60_000)])
def test_clocks_go_in_steps_of_half_the_lookahead(ahead: int, step: int) -> None:
    """A tick costs a batch or two; what it finds is prepared half a lookahead before it is due, or earlier."""
    clock = LiveClock(lookahead_ms=ahead)
    found = in_steps(clock)
    assert isinstance(found, LiveClock)
    assert (found.resolution_ms, found.lookahead_ms) == (step, ahead)
    assert in_steps(VirtualClock()) == VirtualClock()


def test_a_long_step_is_only_for_the_way_back() -> None:
    """How often a clock ticks, and what ingest loads ahead, do not depend on it."""
    short, long = (Options(LiveClock(lookahead_ms=3 * HOUR_MS, max_step_ms=step)) for step in (60_000, HOUR_MS))
    grids = {clock.resolution_ms for clock in map(in_steps, (short.clock, long.clock)) if isinstance(clock, LiveClock)}
    assert grids == {60_000}
    assert taking_in(short).settings == taking_in(long).settings


@pytest.mark.parametrize(("ahead", "lookahead_ms"), [(10_000, 15_000), (0, 100), (DAY_MS, DAY_MS)])
def test_the_schedule_is_told_an_instant_a_step_early(ahead: int, lookahead_ms: int) -> None:
    """It is the watermark of the batch after it: what is due within half a lookahead has been released at each tick."""
    found = a_step_ahead(LiveClock(lookahead_ms=ahead))
    assert isinstance(found, LiveClock)
    assert found.lookahead_ms == lookahead_ms
    assert a_step_ahead(VirtualClock()) == VirtualClock()


def test_ingest_has_near_what_the_schedule_will_ask_for() -> None:
    """Its own clock does not run ahead, and is up to a step behind: without a horizon parked messages came too late."""
    options = taking_in(Options(LiveClock(lookahead_ms=10_000), Settings(horizon_ms=0)))
    assert isinstance(options.clock, LiveClock)
    assert (options.clock.lookahead_ms, options.clock.resolution_ms) == (0, 5_000)
    assert options.settings.horizon_ms == 20_000
    plain = Options(VirtualClock())
    assert taking_in(plain) == plain
