"""What is due at once skips the schedule while that is on time, and never comes before what went there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="ingest needs requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import LiveClock
from pipeline.delta.deltars import open_table, query
from pipeline.ingest.expressgate import ExpressGate
from schemas import REDELIVERY
from tests.support.job import Clocks
from tests.support.stages import Stages
from tests.support.stream import message

T0 = 1_700_000_000_000
BOUND = T0 + 5_000


class Schedule:
    """A schedule that has let go what is due up to an instant, and reads a version while somebody waits for that."""

    def __init__(self, instant: int, version: int, *, reads_on: bool) -> None:
        """Nobody has waited."""
        self.instant, self.version, self._reads_on, self.waited = instant, version, reads_on, 0

    def is_at(self, instant: int) -> bool:
        """As `Progress`."""
        return self.instant >= instant

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
