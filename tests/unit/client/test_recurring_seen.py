"""What recurs, as who looks at it sees it: a forecast beyond what is planned, the page, and a clone."""

from __future__ import annotations

import warnings
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the stages need requirements/all.lock")

from pipeline.client import public as delayline
from pipeline.client.commanding.commands import cancel
from pipeline.client.insight.recurring import SchedulesFollower, schedules_view
from pipeline.client.subscribing.calendars import set_calendar
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import set_schedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue
from pipeline.config.settings import LONGEST_HORIZON_MS, Settings
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.service.clone import clone
from pipeline.subscriptions.schedules import OCCURRENCE
from pipeline.testing.public import warehouse
from schemas import DELIVERIES, SCHEDULES
from tests.support.stages import Stages

HOUR, DAY = 3_600_000, 86_400_000
START = datetime(2026, 3, 27, 12, tzinfo=UTC)
"""Two days before clocks of Rome go forward."""
LATER = START + timedelta(seconds=30)
"""Nothing occurs then. Where stages work beside a test, what occurs just when a schedule is set comes, or is before the
last change of others."""


def came(root: str) -> Counter[datetime]:
    """When messages were due, by hour."""
    rows = query("SELECT due_time FROM t", t=open_table(root, DELIVERIES))
    return Counter(row["due_time"].replace(minute=0, second=0, microsecond=0) for row in rows)


def test_a_forecast_of_a_week_has_what_is_not_planned_yet_and_then_it_comes() -> None:
    """With jitter, days off, a delay, and windows by two clocks; paused ones and those that are over send nothing."""
    with warehouse(LATER) as made:
        root = made.root
        subscribe(root, Subscription("reminders", "s", tick_ms=1_000))
        subscribe(root, Subscription("night", "s", tick_ms=1_000))
        set_policy(root, "night", window="06:00-22:00", window_zone="property:tz, Europe/Rome", min_delay_ms=HOUR)
        set_calendar(root, "off", ["2026-03-31"])
        every: dict[str, Any] = {"zone": "Europe/Rome", "calendar": "off"}
        set_schedule(root, "daily", "reminders", cron="30 9 * * *", jitter_ms=1_000, **every)
        set_schedule(root, "often", "night", cron="0 */3 * * *", zone="Europe/Rome")
        set_schedule(root, "abroad", "night", cron="0 */5 * * *", properties={"tz": "America/New_York"})
        set_schedule(root, "monthly", "reminders", cron="0 8 1 * *")
        set_schedule(root, "paused", "reminders", cron="0 * * * *", paused=True)
        set_schedule(root, "over", "reminders", cron="0 * * * *", until=LATER + timedelta(hours=2))
        made.run_until_idle()
        begin = int(LATER.timestamp() * 1_000)
        found = delayline.forecast(root, until=begin + 7 * DAY).table().to_pylist()
        told = Counter[datetime]()
        for row in found:
            told[row["minute"].replace(minute=0)] += row["due_count"]
        made.advance(days=7)
        assert {each: count for each, count in told.items() if count} == came(root)
        assert sum(told.values()) > 50


def test_a_schedule_that_is_over_is_refused_when_it_is_set(root: str) -> None:
    """Nothing of it would come, and nobody would say so."""
    with pytest.raises(BadValue, match=r"until = .* or later"):
        set_schedule(root, "over", "reminders", cron="0 9 * * *", until=START - timedelta(days=400))
    assert delayline.Client(root).schedules() == []


def test_a_forecast_of_what_no_job_has_planned_counts_it(tmp_path: Path) -> None:
    """The job has not noticed the schedules yet: when it has planned nothing, and when it has planned others."""
    stages = Stages(str(tmp_path / "warehouse"), Settings(horizon_ms=LONGEST_HORIZON_MS))
    subscribe(stages.root, Subscription("reminders", "s", tick_ms=1_000))
    stages.instant = int(datetime.now(UTC).timestamp() * 1_000)

    def due() -> int:
        return sum(row["due_count"] for row in delayline.forecast(stages.root).table().to_pylist())

    for number, name in enumerate(("often", "also", "both"), 1):
        stages.work()
        set_schedule(stages.root, name, "reminders", every_ms=HOUR)
        assert due() == number * 24


def test_schedules_are_read_again_when_one_has_changed(tmp_path: Path) -> None:
    """Or a calendar: a page asks every three seconds, and a hundred thousand take seconds to read."""
    stages = Stages(str(tmp_path / "warehouse"))
    set_schedule(stages.root, "a", "reminders", every_ms=HOUR)
    follower = SchedulesFollower(stages.root)
    first = follower.look()
    assert follower.look() is first
    set_calendar(stages.root, "off", ["2026-03-31"])
    second = follower.look()
    assert second is not first
    set_schedule(stages.root, "b", "reminders", every_ms=HOUR, calendar="off")
    assert [each.name for each in follower.look().followed] == ["a", "b"]
    assert len(schedules_view(stages.root).rows) == 2


def test_the_page_shows_schedules_and_why_one_is_not_followed(tmp_path: Path) -> None:
    """Those that are not followed first, whatever a stranger wrote."""
    pytest.importorskip("starlette", reason="the page needs requirements/all.lock")
    from tests.support.page import served  # noqa: PLC0415 - the page may not be installed

    stages = Stages(str(tmp_path / "warehouse"))
    root = stages.root
    subscribe(root, Subscription("reminders", "s"))
    stages.instant = int(datetime.now(UTC).timestamp() * 1_000)
    set_schedule(root, "standup", "reminders", cron="0 9 * * 1-5", zone="Europe/Rome")
    set_schedule(root, "quiet", "reminders", every_ms=90 * 60_000, paused=True)
    append(
        root, SCHEDULES, rows_of(SCHEDULES, [{"name": "<b>lost", "topic": "t", "cron": "0 9 * * *", "zone": "Roma"}])
    )
    stages.work()
    with warnings.catch_warnings(), served(root) as visitor:
        words = visitor.get("/schedules").words
        assert "3 of 3 ; planned until" in words.replace("; planned", " ; planned").replace("  ", " ")
        assert "<b>lost not followed : zone = 'Roma'" in words
        assert words.index("lost") < words.index("quiet") < words.index("standup")
        assert "standup reminders 0 9 * * 1-5 Europe/Rome" in words
        assert "quiet reminders every 1h 30m UTC paused" in words
        assert "1 of 3" in visitor.get("/schedules", part="stand").words
        assert "No schedule has that" in visitor.get("/schedules", part="nobody").words


def test_a_clone_goes_on_with_the_schedules_of_its_source_and_each_occurrence_comes_once(tmp_path: Path) -> None:
    """Of what is planned, and of what it plans by itself; the source goes on, too."""
    stages = Stages(str(tmp_path / "warehouse"), Settings(horizon_ms=LONGEST_HORIZON_MS))
    subscribe(stages.root, Subscription("reminders", "s", tick_ms=1))
    stages.instant = int(START.timestamp() * 1_000)
    set_calendar(stages.root, "off", ["2026-03-29"])
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", calendar="off")
    stages.work()
    clone(stages.root, str(tmp_path / "copy"))
    other = Stages(str(tmp_path / "copy"), Settings(horizon_ms=LONGEST_HORIZON_MS))
    for each in (stages, other):
        each.instant = int(START.timestamp() * 1_000)
        each.work()
        for _ in range(4):
            each.instant += DAY
            each.work()
        rows = query("SELECT properties FROM t", t=open_table(each.root, DELIVERIES))
        times = Counter(dict(row["properties"])[OCCURRENCE][8:13] for row in rows)
        assert set(times.values()) == {1}
        # The first one is that of the instant at which it was set.
        assert len(times) == 1 + 4 * 4 - 4


def occurred(root: str) -> list[datetime]:
    """When schedules occurred of which a message came."""
    rows = query("SELECT properties FROM t", t=open_table(root, DELIVERIES))
    return sorted(datetime.fromisoformat(dict(row["properties"])[OCCURRENCE]) for row in rows)


def test_a_clone_as_of_a_time_plans_from_then_on(tmp_path: Path) -> None:
    """A message of a schedule is sent when it occurs, so what was planned ahead is not in such a clone."""
    stages = Stages(str(tmp_path / "warehouse"), Settings(horizon_ms=LONGEST_HORIZON_MS))
    subscribe(stages.root, Subscription("reminders", "s", tick_ms=1))
    stages.instant = int(START.timestamp() * 1_000)
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *")
    set_schedule(stages.root, "seldom", "reminders", cron="30 12 30 3 *")
    stages.work()
    for _ in range(3):
        stages.instant += 6 * HOUR
        stages.work()
    as_of = START + timedelta(hours=12)
    other = Stages(clone(stages.root, str(tmp_path / "copy"), as_of=int(as_of.timestamp() * 1_000)).target)
    assert occurred(other.root) == [START + timedelta(hours=6 * number) for number in range(3)]
    other.instant = int(as_of.timestamp() * 1_000)
    for _ in range(4):
        other.work()
        other.instant += DAY
    seldom = datetime(2026, 3, 30, 12, 30, tzinfo=UTC)
    assert occurred(other.root) == sorted([seldom, *(START + timedelta(hours=6 * number) for number in range(15))])


@pytest.mark.parametrize("changes", [1, 2])
def test_a_clone_knows_what_is_planned_though_schedules_change_meanwhile(tmp_path: Path, changes: int) -> None:
    """Its tables and the plan are of one instant. So an occurrence that somebody cancelled does not come in it."""
    stages = Stages(str(tmp_path / "warehouse"), Settings(horizon_ms=LONGEST_HORIZON_MS))
    subscribe(stages.root, Subscription("reminders", "s", tick_ms=1))
    stages.instant = int(START.timestamp() * 1_000)
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *")
    stages.work()
    cancel(stages.root, "reminders", where="publish_time = '2026-03-27T18:00:00Z'")

    def change(what: str, number: int, _: int | None) -> None:
        for minute in range(changes if (what, number) == ("files", 0) else 0):
            set_schedule(stages.root, "often", "reminders", cron=f"{minute} */8 * * *")
            stages.die_after(None if number else "planner.decided")
            stages.plan()
            stages.die_after(None)
            stages.work()

    other = Stages(clone(stages.root, str(tmp_path / "copy"), on_step=change).target, stages.settings)
    other.instant = stages.instant
    for _ in range(3):
        other.work()
        other.instant += DAY
    assert occurred(other.root) == [START + timedelta(hours=6 * number) for number in range(9) if number != 1]
