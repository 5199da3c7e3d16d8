"""The loop of settle, by the clocks of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")

from pipeline.config.errors import ClockJumped
from pipeline.config.options import StageListener
from pipeline.config.settings import LiveClock, VirtualClock
from pipeline.config.threads import Panic
from pipeline.delta.warehouse import Warehouse
from pipeline.service import clock, settling
from pipeline.service.settling import SettleLoop


class Body:
    """Settle, while the clock of the machine is set forward by a day."""

    def __init__(self) -> None:
        """It is right at first."""
        self.watch, self.wall, self.took = StageListener(), 1_000_000, list[int]()

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
    monkeypatch.setattr(clock, "wall_ms", lambda: body.wall)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 5_000)
    monkeypatch.setattr(settling, "_PAUSE_S", 0)
    monkeypatch.setattr(settling, "_QUIET_S", 0)
    loop = SettleLoop(cast("Any", body), Warehouse(str(tmp_path)), LiveClock())
    assert loop._thread is not None
    loop._thread.join(60)
    assert isinstance(loop.exception(), ClockJumped)
    assert body.took == [1_000_000]


class Panicking:
    """Settle, in which delta-rs panics: PyO3's panics are no `Exception`."""

    def __init__(self) -> None:
        """Nobody watches."""
        self.watch = StageListener()

    def step(self, instant: int, *, patient: bool) -> bool:
        """Take a batch."""
        raise PanicException(f"at {instant}, {patient}")


class PanicException(BaseException):
    """Stands for `pyo3_runtime.PanicException`."""


@pytest.mark.parametrize("live", [True, False])
def test_a_panic_ends_settle_and_is_known(tmp_path: Path, *, live: bool) -> None:
    """Its thread was gone and the stage went on for whoever looked: nothing was settled any more."""
    warehouse = Warehouse(str(tmp_path))
    loop = SettleLoop(cast("Any", Panicking()), warehouse, LiveClock() if live else VirtualClock())
    if live:
        assert loop._thread is not None
        loop._thread.join(60)
    else:
        Path(warehouse.root, "_clock").mkdir()
        Path(loop._instants).write_text("5\n", encoding="utf-8")
        with pytest.raises(Panic):
            loop.processAllAvailable()
    assert not loop.isActive
    failed = loop.exception()
    assert isinstance(failed, Panic)
    assert isinstance(failed.__cause__, PanicException)
