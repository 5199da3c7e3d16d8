"""Names that are let go and come back: what was planned by one definition does not come by the next one as well."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.subscribing.schedules import delete_schedule, set_schedule
from pipeline.config.stages import INGEST
from pipeline.planner.planner import Planner
from pipeline.subscriptions.scheduleplans import FOLDER
from tests.support.recurring import begun, came, go, set_by_writer
from tests.support.stages import Stages

HOUR = 3_600_000
T0 = int(datetime(2026, 6, 1, 12, 0, 0, 500_000, tzinfo=UTC).timestamp() * 1_000)


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse with one subscription."""
    return begun(str(tmp_path / "warehouse"), T0)


def stop_late(stages: Stages, monkeypatch: pytest.MonkeyPatch, *, dispatched: bool) -> None:
    """The planner stops for three hours between its decision and its command; the others, or the schedule, go on."""

    def stopped(step: str, _: int) -> None:
        if step == "planner.decided":
            stages.instant = T0 + 3 * HOUR
            stages.release()
            if dispatched:
                stages.dispatch()
                stages.publish()

    planner = Planner(stages.warehouse, lambda: stages.instant, observe=stopped)
    monkeypatch.setattr(stages, "_planner", planner)
    stages.work()
    stages.work()
    stages.restart(INGEST)


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_command_that_came_too_late_loses_and_repeats_nothing(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, *, dispatched: bool
) -> None:
    """What dispatch has taken comes by the definition before, all else by the new one."""
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *", payload="old")
    stages.work()
    set_schedule(stages.root, "often", "reminders", cron="0 */2 * * *", payload="new")
    stop_late(stages, monkeypatch, dispatched=dispatched)
    go(stages, 2 * HOUR)
    old = [("old", "01T13:00"), ("old", "01T14:00"), ("old", "01T15:00")] if dispatched else []
    # An hour of the new definition that the old one had delivered is not there again.
    new = [("new", "01T16:00")] if dispatched else [("new", "01T14:00"), ("new", "01T16:00")]
    assert came(stages) == Counter([*old, *new])


def test_what_is_set_again_behind_a_command_that_came_too_late_repeats_nothing(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row says that it was set before the last hour that had come by the schedule that was deleted."""
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *", payload="old")
    stages.work()
    delete_schedule(stages.root, "often")
    stop_late(stages, monkeypatch, dispatched=True)
    set_at = datetime.fromtimestamp(T0 / 1_000 + 2 * 3600, UTC)
    set_by_writer(stages, {"name": "often", "cron": "0 * * * *", "payload": "new", "catch_up": "all", "set_at": set_at})
    go(stages, HOUR)
    assert came(stages) == {("old", f"01T{hour}:00"): 1 for hour in (13, 14, 15)} | {("new", "01T16:00"): 1}


def test_what_was_let_go_long_ago_repeats_nothing(stages: Stages) -> None:
    """The file names it no more; the row of the new definition says that it was set before that."""
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *", payload="old")
    stages.work()
    go(stages, HOUR)
    delete_schedule(stages.root, "often")
    stages.work()
    stages.instant += 2 * HOUR
    set_schedule(stages.root, "other", "reminders", cron="0 0 1 1 *")
    stages.work()
    set_at = datetime.fromtimestamp(T0 / 1_000, UTC)
    set_by_writer(stages, {"name": "often", "cron": "0 * * * *", "payload": "new", "catch_up": "all", "set_at": set_at})
    go(stages, HOUR)
    assert came(stages) == {("old", "01T13:00"): 1} | {("new", f"01T{hour}:00"): 1 for hour in (14, 15, 16)}


def test_a_plan_of_an_earlier_version_is_read(stages: Stages) -> None:
    """It does not say which names were let go: what is new counts behind its last change."""
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *", payload="old")
    stages.work()
    delete_schedule(stages.root, "often")
    stages.work()
    path = Path(stages.root) / FOLDER / "plan.json"
    known = json.loads(path.read_text())
    assert [each.pop("let_go") for each in known["plans"]][-1:] == [{"often": T0 + 1}]
    known["plans"][-1]["bound"] = T0 + 2 * HOUR
    path.write_text(json.dumps(known))
    stages.restart_all()
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *", payload="new")
    stages.work()
    go(stages, 3 * HOUR)
    assert came(stages) == {("new", "01T15:00"): 1}
