"""Nothing that somebody else writes, and no stage that stands, lets the planner stand still."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from deltalake import write_deltalake

from pipeline.client.commanding.commands import cancel
from pipeline.client.exceptions import ScheduleNotFound
from pipeline.client.subscribing.schedules import delete_schedule, schedule, schedules, set_schedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.errors import BadValue, ColumnGone
from pipeline.config.settings import HOUR_MS, MINUTE_MS
from pipeline.delta.deltars import append, open_table, path_of, query, rows_of
from pipeline.planner import planner
from pipeline.planner.cursors import Cursors
from pipeline.planner.planner import Planner
from pipeline.planner.waiting import Waiting
from pipeline.subscriptions.scheduleplans import FOLDER
from pipeline.subscriptions.schedules import MOST_BYTES, Schedule
from schemas import INBOX, SCHEDULES, SUBSCRIPTIONS
from tests.support.recurring import begun, came, go
from tests.support.stages import Stages

SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
T0 = int(datetime(2026, 6, 1, 12, 0, 0, 500_000, tzinfo=UTC).timestamp() * 1_000)
GOOD = {"name": "good", "topic": "reminders", "cron": "0 13 * * *", "payload": "good"}


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse with one subscription."""
    return begun(str(tmp_path / "warehouse"), T0)


def written(stages: Stages, rows: pa.Table) -> None:
    """Another writer puts a table of its own in the place of that of schedules."""
    write_deltalake(path_of(stages.root, SCHEDULES), rows, mode="overwrite", schema_mode="overwrite")


def test_a_line_that_ingest_refuses_stops_no_command(stages: Stages) -> None:
    """Nobody ever joins by it, so it gets nothing that is withdrawn from others."""
    set_schedule(stages.root, "daily", "reminders", cron="0 13 * * *", payload="old")
    stages.work()
    columns = {"topic": "reminders", "type": "shared", "tick_ms": 1, "active": True, "policies": None}
    lost = {**columns, "subscription": "lost", "start": "9999999999999999999@0:0"}
    append(stages.root, SUBSCRIPTIONS, rows_of(SUBSCRIPTIONS, [lost]))
    stages.work()
    set_schedule(stages.root, "daily", "reminders", cron="0 13 * * *", payload="new")
    stages.work()
    assert cancel(stages.root, "reminders", where="true", dry_run=True).selection.subscriptions == {"s": 2}
    go(stages, HOUR)
    assert came(stages) == {("new", "01T13:00"): 1}


def test_a_line_that_ingest_has_yet_to_see_is_waited_for(stages: Stages) -> None:
    """It would get what is withdrawn from the others."""
    stages.ingest({"topic": "reminders", "payload": b"x", "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)})
    subscribe(stages.root, Subscription("reminders", "new", tick_ms=1))
    with pytest.raises(BadValue) as refused:
        cancel(stages.root, "reminders", where="true")
    assert (refused.value.field, refused.value.value) == ("subscription", "new")


def test_a_table_without_names_is_refused_and_others_come_when_they_have_one(stages: Stages) -> None:
    """Any writer may put another table in its place. What was planned is taken back, and planned anew."""
    set_schedule(stages.root, "daily", "reminders", cron="0 13 * * *", payload="old")
    stages.work()
    written(stages, pa.table({"topic": ["reminders"], "cron": ["0 13 * * *"]}))
    stages.work()
    (state,) = schedules(stages.root)
    assert (state.name, state.schedule) == ("", None)
    assert "name" in (state.error or "")
    with pytest.raises(ScheduleNotFound):
        schedule(stages.root, "daily")
    with pytest.raises(ScheduleNotFound):
        delete_schedule(stages.root, "daily")
    with pytest.raises(ColumnGone):
        set_schedule(stages.root, "daily", "reminders", cron="0 13 * * *")
    written(stages, rows_of(SCHEDULES, [GOOD]))
    stages.work()
    go(stages, HOUR)
    assert came(stages) == {("good", "01T13:00"): 1}


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("name", pa.array([7, 8]), "a text"),
        ("start", pa.array([None, datetime(2026, 1, 1)], pa.timestamp("us")), "a time with its time zone"),  # noqa: DTZ001
        ("start", pa.array([None, 5]), "a time with its time zone"),
        ("every_ms", pa.array([None, 1.5]), "a whole number"),
        ("jitter_ms", pa.array([None, "x"]), "a whole number"),
        ("limit", pa.array([None, True]), "a whole number"),
        ("paused", pa.array([None, "yes"]), "true, false"),
        ("properties", pa.array([None, "x"]), "texts by name"),
        ("properties", pa.array([None, {"a": 1}]), "a text"),
        ("days_off", pa.array([None, ["2026-06-01"]]), "days as"),
        ("payload", pa.array([None, b"x"]), "a text"),
        ("payload", pa.array([None, "x" * (MOST_BYTES + 1)]), f"{MOST_BYTES} bytes"),
        ("name", pa.array(["good", "n" * 100_000]), "at most 200"),
    ],
)
def test_a_row_with_something_else_in_a_column_is_refused_alone(
    stages: Stages, column: str, value: pa.Array, allowed: str
) -> None:
    """The table is any writer's, and so are its types."""
    plain = {"name": ["good", "odd"], "topic": ["reminders"] * 2, "cron": ["0 13 * * *"] * 2}
    written(stages, pa.table(plain | {column: value}))
    go(stages, 0)
    states = {each.name: each.error for each in schedules(stages.root)}
    refused = [error for error in states.values() if error is not None]
    assert all(allowed in error and len(error) < 500 for error in refused)
    go(stages, HOUR)
    assert len(came(stages)) == len(states) - len(refused)
    assert len(refused) == (2 if column == "name" and pa.types.is_integer(value.type) else 1)


def test_a_change_that_waits_for_ingest_is_said_and_lets_nothing_be_missed(
    stages: Stages, caplog: pytest.LogCaptureFixture
) -> None:
    """Ingest stands for three days. Until the change is followed the schedule counts as it was."""
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", payload="old", catch_up="none")
    stages.plan()
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", payload="new", catch_up="none")
    with caplog.at_level(logging.WARNING, "pipeline.planner.waiting"):
        for _ in range(3 * 24):
            stages.instant += HOUR
            stages.plan()
    assert len(caplog.messages) > 2
    assert "ingest has yet to take version 1 of inbox" in caplog.messages[0]
    stages.work()
    go(stages, 12 * HOUR)
    assert sum(count for (payload, _), count in came(stages).items() if payload == "old") == 3 * 4
    assert sum(count for (payload, _), count in came(stages).items() if payload == "new") == 2
    caplog.clear()
    go(stages, 2 * DAY)
    assert caplog.messages == []


def test_a_change_that_a_clock_decided_that_was_ahead_counts_when_it_is_right(stages: Stages) -> None:
    """The planner died then. The change does not wait until that time, and nothing is missed until then."""
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", payload="old")
    stages.work()
    stages.instant += 3 * DAY
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", payload="new")
    # What was missed by that clock is planned first, and taken.
    stages.plan()
    stages.ingest()
    stages.die_after("planner.decided")
    assert not stages.plan()
    stages.die_after(None)
    stages.restart_all()
    stages.instant -= 3 * DAY
    stages.work()
    for _ in range(8):
        go(stages, 12 * HOUR)
    assert [payload for payload, _ in came(stages).elements()] == ["new"] * 2 * 8


def test_a_step_of_a_replay_that_is_longer_than_a_day_misses_nothing(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock stands for a week, but no job was down."""
    own = Planner(stages.warehouse, lambda: stages.instant, step_ms=7 * DAY)
    monkeypatch.setattr(stages, "_planner", own)
    set_schedule(stages.root, "daily", "reminders", cron="0 13 * * *", catch_up="none")
    stages.work()
    for _ in range(4):
        go(stages, 7 * DAY)
    assert len(came(stages)) == 28


def test_a_file_that_a_power_cut_left_empty_is_as_one_that_is_gone(stages: Stages) -> None:
    """What was planned is taken back, and planned anew."""
    set_schedule(stages.root, "often", "reminders", cron="0 */2 * * *")
    for text in ("", "{}", json.dumps({"plans": [{"number": 1, "more": 2}], "change": None})):
        stages.work()
        (Path(stages.root) / FOLDER / "plan.json").write_text(text)
        stages.restart_all()
    stages.work()
    go(stages, 6 * HOUR)
    assert sorted(came(stages).values()) == [1, 1, 1]


def test_what_was_missed_long_ago_is_not_gone_through() -> None:
    """Of a schedule that comes each second a year has thirty million."""
    cursors, year = Cursors(DAY), 366 * DAY
    seconds: dict[str, Any] = {"topic": "t", "every_ms": SECOND, "catch_up_within_ms": HOUR}
    for catch_up in ("all", "latest", "none"):
        cursors.begin(Schedule(catch_up, **seconds, catch_up=catch_up), T0)
    found = {schedule.name: times for schedule, times in cursors.until(T0 + year, T0 + year)}
    assert {name: len(times) for name, times in found.items()} == {"all": 3_601, "latest": 2, "none": 1}


def test_a_commit_has_no_more_text_than_this_process_holds(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that comes each minute with a long text has a commit for each few of them."""
    monkeypatch.setattr(planner, "_BYTES", 1 << 20)
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, [{**GOOD, "cron": "* * * * *", "payload": "x" * 20_000}]))
    stages.plan()
    opened = open_table(stages.root, INBOX)
    (rows,) = query("SELECT COUNT(*) AS n FROM t", t=opened)
    assert rows["n"] in (1_440, 1_441)
    assert 1_440 * 20_000 / (1 << 20) < opened.version() + 1 < 40


def test_a_change_that_waits_is_said_after_a_minute_and_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    """Not before: most changes wait for a moment. One that waits later has a minute of its own."""

    def said(instants: range) -> list[int]:
        found = []
        for now in instants:
            caplog.clear()
            waiting.waits("ingest", now)
            found += [now] if caplog.messages else []
        return found

    waiting = Waiting()
    assert said(range(0, 2 * HOUR_MS + MINUTE_MS, MINUTE_MS // 2)) == [MINUTE_MS, MINUTE_MS + HOUR_MS]
    waiting.over()
    assert said(range(5 * HOUR_MS, 5 * HOUR_MS + 2 * MINUTE_MS, 1_000)) == [5 * HOUR_MS + MINUTE_MS]
