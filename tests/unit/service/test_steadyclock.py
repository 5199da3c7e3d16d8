"""The wall clock that stages follow: corrections and sleep are no errors, and a clock that is set is one."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the service needs requirements/all.lock")

from pipeline.config.errors import ClockJumped
from pipeline.service import clock
from pipeline.service.clock import SteadyClock

DAY_MS, JUMP_MS = 86_400_000, 60_000


class Clocks:
    """The wall clock, the clock that counts sleep, and the one that does not; ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the service look at these."""
        self.wall, self.elapsed, self.monotonic = 1_700_000_000_000, 5_000, 5_000
        monkeypatch.setattr(clock, "wall_ms", lambda: self.wall)
        monkeypatch.setattr(clock, "elapsed_ms", lambda: self.elapsed)
        monkeypatch.setattr(clock, "monotonic_ms", lambda: self.monotonic)

    def go(self, ms: int, *, set_by: int = 0, asleep: bool = False) -> None:
        """Time goes on; somebody sets the wall clock; the machine sleeps."""
        self.wall += ms + set_by
        self.elapsed += ms
        self.monotonic += 0 if asleep else ms


def test_corrections_of_seconds_never_end_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds a day ended all stages on the thirtieth day."""
    clocks = Clocks(monkeypatch)
    clock = SteadyClock(JUMP_MS)
    for _ in range(365):
        clocks.go(DAY_MS, set_by=-2_000)
        assert clock.ms() == clocks.wall


def test_a_machine_that_slept_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the morning a laptop's job goes on with what became due in the night."""
    clocks = Clocks(monkeypatch)
    clock = SteadyClock(JUMP_MS)
    clocks.go(8 * 3_600_000, asleep=True)
    assert clock.ms() == clocks.wall


@pytest.mark.parametrize("set_by", [JUMP_MS + 1, -JUMP_MS - 1])
def test_a_clock_that_is_set_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch, set_by: int) -> None:
    """What is due depends on it."""
    clocks = Clocks(monkeypatch)
    clock = SteadyClock(JUMP_MS)
    clocks.go(1_000, set_by=set_by)
    with pytest.raises(ClockJumped):
        clock.ms()
