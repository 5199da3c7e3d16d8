"""The loop of settle, by the clocks of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")

from pipeline.config.errors import ClockJumped
from pipeline.config.settings import LiveClock
from pipeline.config.watching import Watch
from pipeline.delta.warehouse import Warehouse
from pipeline.service import instants, settling
from pipeline.service.settling import SettleLoop


class Body:
    """Settle, while the clock of the machine is set forward by a day."""

    def __init__(self) -> None:
        """It is right at first."""
        self.watch, self.wall, self.took = Watch(), 1_000_000, list[int]()

    def step(self, instant: int, *, patient: bool) -> bool:
        """Take a batch."""
        assert patient
        assert not self.took, "it goes on"
        self.took.append(instant)
        self.wall += 86_400_000
        return True


def test_settle_stops_when_the_clock_jumps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Delays would count from the wrong time, and from no earlier one when the clock is right again."""
    body = Body()
    monkeypatch.setattr(instants, "wall_ms", lambda: body.wall)
    monkeypatch.setattr(instants, "monotonic_ms", lambda: 5_000)
    monkeypatch.setattr(settling, "_PAUSE_S", 0)
    monkeypatch.setattr(settling, "_QUIET_S", 0)
    loop = SettleLoop(cast("Any", body), Warehouse(str(tmp_path)), LiveClock())
    assert loop._thread is not None
    loop._thread.join(60)
    assert isinstance(loop.exception(), ClockJumped)
    assert body.took == [1_000_000]
