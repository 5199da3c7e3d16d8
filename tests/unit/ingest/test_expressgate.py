"""What is due at once skips the schedule while that is on time, and never comes before what went there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="ingest needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import LiveClock
from pipeline.delta.deltars import open_table, query
from pipeline.ingest.expressgate import ExpressGate
from schemas import REDELIVERY
from state.units import Ms
from tests.support.job import Clocks
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 1_700_000_000_000
BOUND = T0 + 5_000


class Schedule:
    """A schedule that has let go what is due up to an instant, and reads a version while somebody waits for that."""

    def __init__(self, instant: int, version: int, *, reads_on: bool, let_go: int = -1) -> None:
        """Nobody has waited."""
        self.instant, self.version, self._reads_on, self.waited = instant, version, reads_on, 0
        self.let_go, self.told, self.looked = let_go, let_go, 0

    def is_at(self, instant: int) -> bool:
        """As `Progress`."""
        self.looked += 1
        self.let_go = max(self.let_go, self.told)
        return self.instant >= instant

    def has_let_go(self, version: int) -> bool:
        """As `Progress`."""
        return self.let_go > version

    def has_read(self, version: int, patience_ms: int) -> bool:
        """As `Progress`."""
        if self.version <= version and self._reads_on:
            self.waited, self.version = self.waited + patience_ms, version + 1
        return self.version > version


def bound(schedule: Schedule, express: int | None) -> int:
    """The bound when ingest wrote version 7 of `segments` last, with a bound of its own; None: it wrote none."""
    last = None if express is None else SimpleNamespace(note={"express": express})
    sinks = {"segments": SimpleNamespace(last=last, version=7)}
    return ExpressGate(schedule, sinks, 5_000).bound(T0, T0 + 60_000)  # type: ignore[arg-type]


def test_nothing_skips_a_schedule_that_is_late() -> None:
    """What is due before, and waits in the state, comes first. Nobody waits for a schedule that may be stopped."""
    schedule = Schedule(T0 - 1, 8, reads_on=True)
    assert bound(schedule, None) == bound(schedule, BOUND) == bound(schedule, 0) == schedule.waited == 0
    schedule.instant = T0
    assert bound(schedule, None) == bound(schedule, BOUND) == BOUND


def test_what_went_to_the_schedule_while_it_was_late_is_let_go_first() -> None:
    """It is waited for once; when that does not help the next positions go the same way."""
    schedule = Schedule(T0 + 10_000, 7, reads_on=True)
    assert bound(schedule, T0 + 1) == BOUND
    assert schedule.waited == 0
    assert bound(schedule, 0) == BOUND
    assert schedule.waited == 5_000
    assert bound(Schedule(T0 + 10_000, 7, reads_on=False), 0) == 0
    assert bound(Schedule(T0 + 10_000, 7, reads_on=False), T0) == 0


def test_after_an_outage_nothing_skips_the_schedule_until_that_is_on_time(tmp_path: Path) -> None:
    """A message without a delay came before those of its key that were due during the outage."""
    clocks, stages = Clocks(T0), Stages(str(tmp_path / "warehouse"), clock=LiveClock())
    subscribe(stages.root, Subscription("t", "s", "shared"))

    def take(after: int) -> None:
        stages.instant = clocks.wall
        assert stages.ingest(message("sent", after=after))

    def causes() -> list[str]:
        rows = query("SELECT cause FROM runs ORDER BY released_at", runs=open_table(stages.root, REDELIVERY))
        return [row["cause"] for row in rows]

    with clocks.in_force():
        stages.ingest()
        take(20_000)
        stages.schedule.step(T0 + 10_000)
        take(0)
        assert causes() == ["express"]
        clocks.go_on(60_000)
        stages.restart_all()
        take(0)
        assert causes() == ["express"]
        stages.schedule.step(T0 + 70_000)
        assert causes() == ["express", "due", "due"]
        take(0)
        assert sorted(causes()) == ["due", "due", "express", "express"]


def test_a_schedule_that_rests_lets_pass_what_is_due_at_once() -> None:
    """It keeps nothing of what went its way, and its clock stands. Nobody looks at it for each batch."""
    schedule = Schedule(T0 - 60_000, 8, reads_on=False, let_go=8)
    segments: Any = SimpleNamespace(last=SimpleNamespace(note={"express": 0}), version=7)
    gate = ExpressGate(cast("Any", schedule), {"segments": segments}, 5_000)
    assert gate.bound(Ms(T0), T0 + 60_000) == BOUND
    # What it says now is not due before five seconds are over. By then the schedule has to have let it go.
    segments.version, segments.last = 9, SimpleNamespace(note={"express": BOUND})
    assert gate.bound(Ms(T0 + 4_999), T0 + 60_000) == BOUND + 4_999
    assert schedule.looked == 0
    assert gate.bound(Ms(BOUND), T0 + 60_000) == 0
    schedule.let_go = 10
    assert gate.bound(Ms(BOUND), T0 + 60_000) == BOUND + 5_000
    # A batch that states no time may have written what is due.
    segments.version, segments.last = 10, SimpleNamespace(note={"express": BOUND + 60_000})
    assert gate.bound(Ms(BOUND), T0 + 60_000) == BOUND + 5_000
    segments.version, segments.last = 12, SimpleNamespace(note={})
    assert gate.bound(Ms(BOUND), T0 + 60_000) == 0
    schedule.let_go = 12
    assert gate.bound(Ms(BOUND + 70_000), T0 + 90_000) == 0
    schedule.let_go = 13
    assert gate.bound(Ms(BOUND + 70_000), T0 + 90_000) == T0 + 80_000


def test_who_starts_beside_a_schedule_that_rests_looks_once() -> None:
    """It has no clock of the present to wait for."""
    schedule = Schedule(T0 - 60_000, 8, reads_on=False, let_go=-1)
    schedule.told = 8
    assert bound(schedule, 0) == BOUND
    assert schedule.looked == 1
