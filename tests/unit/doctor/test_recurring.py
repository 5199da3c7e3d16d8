"""`delayline doctor`: schedules that stand still, windows that nobody follows, machines with other rules of zones."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import set_schedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.delta.deltars import append, open_table, rows_of
from pipeline.doctor import check_recurring
from pipeline.doctor.examine import examine
from pipeline.doctor.look import Finding
from pipeline.subscriptions.policies import Policies
from schemas import SCHEDULES, SUBSCRIPTIONS
from tests.support.invoked import invoke
from tests.support.stages import Stages

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse with one subscription, whose clock shows the present: commits of tables are at that time."""
    made = Stages(str(tmp_path / "warehouse"))
    subscribe(made.root, Subscription("reminders", "s", tick_ms=1))
    made.instant = int(datetime.now(UTC).timestamp() * 1_000)
    made.work()
    return made


def findings(stages: Stages, after_ms: int = 0) -> list[Finding]:
    """What is said of what recurs, so long after the time of the stages."""
    found = examine(stages.root, stages.instant + after_ms).findings
    return [each for each in found if each.check in ("recurring", "zone_rules", "settled")]


def whats(stages: Stages, after_ms: int = 0) -> list[tuple[str, str]]:
    """Words and subjects."""
    return [(each.what, each.subject) for each in findings(stages, after_ms)]


def put(stages: Stages, **row: Any) -> None:  # noqa: ANN401 - columns
    """Another writer appends a row."""
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, [row]))


def test_a_schedule_that_is_not_followed_is_found_until_it_is_set_right(stages: Stages) -> None:
    """An unknown zone, two rows of a name, a row without one: the finding says why."""
    assert findings(stages) == []
    put(stages, name="lost", topic="reminders", cron="0 9 * * *", zone="Europe/Roma")
    stages.work()
    (found,) = findings(stages)
    assert (found.what, found.subject) == ("schedule_refused", "lost")
    assert "zone = 'Europe/Roma'" in found.text
    command, _, _ = found.remedy.removeprefix("set it right with ").partition(", or")
    right = [*shlex.split(command)[1:], "lost", "text", "--topic", "reminders", "--cron", "0 9 * * *"]
    assert invoke([*right, "--zone", "Europe/Rome"]).exit_code == 0
    stages.work()
    assert findings(stages) == []


def test_many_schedules_that_are_not_followed_are_counted(stages: Stages) -> None:
    """A hundred lines would hide all else."""
    rows = [{"name": f"{number}", "topic": "reminders", "cron": "never"} for number in range(30)]
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, rows))
    stages.work()
    found = findings(stages)
    assert len(found) == 11
    assert "20 more schedules" in found[-1].text


def test_a_change_that_nobody_follows_is_found_until_the_stages_start(stages: Stages) -> None:
    """No job runs: what was set comes never."""
    set_schedule(stages.root, "daily", "reminders", cron="0 9 * * *")
    assert whats(stages, MINUTE // 2) == []
    assert whats(stages, 2 * MINUTE) == [("schedules_behind", "schedules")]
    stages.work()
    assert whats(stages, 2 * MINUTE) == []


def test_what_is_planned_to_less_than_now_is_found_until_the_stages_start(stages: Stages) -> None:
    """A day of it is planned, and the next one of what comes less often: who has more than that misses it."""
    set_schedule(stages.root, "yearly", "reminders", cron="0 9 1 1 *")
    stages.work()
    assert whats(stages, 30 * DAY) == []
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *")
    stages.work()
    assert whats(stages, 23 * HOUR) == []
    (found,) = findings(stages, 27 * HOUR)
    assert (found.what, found.subject) == ("schedules_behind", "schedules")
    assert "1 schedules miss" in found.text
    stages.instant += 27 * HOUR
    stages.work()
    assert findings(stages) == []


def test_a_window_that_is_not_followed_is_found_until_it_is_set(stages: Stages) -> None:
    """Any writer may write the policies of a topic; messages come at night meanwhile."""
    line = {"topic": "reminders", "subscription": "", "type": "topic", "start": "latest", "tick_ms": 1, "active": False}
    append(stages.root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [{**line, "policies": {"window": "at night"}}]))
    (found,) = findings(stages)
    assert (found.what, found.subject) == ("policy_refused", "reminders")
    assert "window = 'at night'" in found.text
    command, _, _ = found.remedy.partition(" with what is allowed")
    assert invoke([*shlex.split(command)[1:], "--window", "08:00-20:00"]).exit_code == 0
    assert findings(stages) == []


def test_other_rules_of_zones_are_found_until_all_have_one_release(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of who plans, who takes in, who lets come again, and of this machine; where nobody has a zone nothing is said."""
    monkeypatch.setattr(check_recurring, "RULES", "1999a")
    assert findings(stages) == []
    set_policy(stages.root, "reminders", window="Mo-Su 00:00-24:00")
    stages.ingest({"topic": "reminders", "payload": b"x"})
    (found,) = findings(stages)
    assert (found.what, found.subject) == ("other_zone_rules", "tzdata")
    assert "this machine 1999a" in found.text
    monkeypatch.undo()
    assert findings(stages) == []
    set_schedule(stages.root, "daily", "reminders", cron="0 9 * * *")
    monkeypatch.setattr("pipeline.planner.planner.RULES", "1999b")
    stages.work()
    assert "the planner 1999b" in findings(stages)[0].text


def test_settle_notes_its_rules_of_zones(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed comes again by them."""
    subscribe(stages.root, Subscription("reminders", "acks", tick_ms=1, policies=Policies(ack=True)))
    set_policy(stages.root, "reminders", window="Mo-Su 00:00-24:00")
    monkeypatch.setattr("pipeline.settle.stage.RULES", "1999c")
    stages.ingest({"topic": "reminders", "payload": b"x"})
    stages.instant += timedelta(minutes=1) // timedelta(milliseconds=1)
    stages.work()
    assert "settle 1999c" in findings(stages)[0].text
    assert open_table(stages.root, SCHEDULES).version() == 0
