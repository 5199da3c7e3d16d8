"""The planner: what it plans, what it takes back, what was missed, and what strangers leave."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from deltalake import CommitProperties, Transaction, write_deltalake

from pipeline.client.subscribing.calendars import set_calendar
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import delete_schedule, pause_schedule, schedules, set_schedule
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.settings import LONGEST_HORIZON_MS, Settings
from pipeline.config.wallclock import wall_ms
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.maintenance.cutlogs import cut_log
from pipeline.planner import planner, takeback
from pipeline.planner.planner import Planner
from pipeline.subscriptions.scheduleplans import FOLDER, NAME
from pipeline.subscriptions.schedules import OCCURRENCE, SCHEDULE
from pipeline.testing.warehouse import warehouse
from schemas import CALENDARS, DELIVERIES, INBOX, SCHEDULES
from tests.support.recurring import begun, came, go, set_by_writer
from tests.support.stages import Stages

SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
T0 = int(datetime(2026, 6, 1, 12, 0, 0, 500_000, tzinfo=UTC).timestamp() * 1_000)


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse with one subscription."""
    return begun(str(tmp_path / "warehouse"), T0)


def sent(stages: Stages) -> list[dict[str, Any]]:
    """The rows of the inbox, by occurrence."""
    return query("SELECT * FROM t ORDER BY publish_time", t=open_table(stages.root, INBOX))


def test_a_warehouse_without_schedules_is_left_alone(stages: Stages) -> None:
    """Nothing is read, written or remembered for what nobody uses."""
    go(stages, DAY)
    assert sent(stages) == []
    assert not (Path(stages.root) / FOLDER).exists()
    assert stages.next_instant is None


def test_a_day_is_planned_and_the_next_one_of_each(stages: Stages) -> None:
    """So what comes in a month can be seen today."""
    set_schedule(stages.root, "often", "reminders", cron="0 */8 * * *")
    set_schedule(stages.root, "monthly", "reminders", cron="0 9 28 * *")
    stages.work()
    planned = [(dict(row["properties"])[SCHEDULE], dict(row["properties"])[OCCURRENCE][5:13]) for row in sent(stages)]
    assert planned == [
        ("often", "06-01T16"),
        ("often", "06-02T00"),
        ("often", "06-02T08"),
        ("often", "06-02T16"),
        ("monthly", "06-28T09"),
    ]


def test_the_clock_of_a_test_stops_at_what_is_planned(stages: Stages) -> None:
    """A program's own test turns it by a year, and nothing is missed."""
    set_schedule(stages.root, "daily", "reminders", cron="0 9 * * *")
    stages.work()
    while stages.instant < T0 + 10 * DAY:
        stages.instant = min(T0 + 10 * DAY, stages.next_instant or T0 + 10 * DAY)
        stages.work()
    rows = query("SELECT due_time, released_at FROM t", t=open_table(stages.root, DELIVERIES))
    assert len(rows) == 10
    assert all(row["due_time"] == row["released_at"] for row in rows)


@pytest.mark.parametrize(
    ("how", "missed"),
    [
        ({"catch_up": "all", "catch_up_within_ms": 10 * DAY}, 11),
        ({"catch_up": "all", "catch_up_within_ms": DAY}, 4),
        ({"catch_up": "latest"}, 1),
        ({"catch_up": "none"}, 0),
    ],
)
def test_what_was_missed_is_caught_up_as_the_schedule_says(stages: Stages, how: dict[str, Any], missed: int) -> None:
    """No job ran for four days; a day of them had been planned."""
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", **how)
    stages.work()
    planned = len(sent(stages))
    go(stages, 4 * DAY + SECOND)
    before = [row for row in sent(stages) if row["publish_time"].timestamp() * 1_000 < stages.instant]
    assert (planned, len(before)) == (5, 5 + missed)


def test_what_is_missed_is_caught_up_though_maintenance_was_there(stages: Stages) -> None:
    """By what the schedule was before an outage, however much was set meanwhile."""
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", catch_up="all", catch_up_within_ms=10 * DAY)
    set_calendar(stages.root, "holidays", ["2026-12-25"])
    stages.work()
    planned = len(sent(stages))
    for number in range(60):
        set_schedule(stages.root, "other", "reminders", cron=f"{number} 9 28 2 *")
        set_calendar(stages.root, "other", [f"2027-03-{1 + number % 28:02d}"])
    gone = [cut_log(stages.warehouse, table, wall_ms() + 1) for table in (SCHEDULES, CALENDARS)]
    stages.restart_all()
    go(stages, 4 * DAY + SECOND)
    often = [row for row in sent(stages) if dict(row["properties"])[SCHEDULE] == "often"]
    before = [row for row in often if row["publish_time"].timestamp() * 1_000 < stages.instant]
    assert (planned, len(before), gone) == (5, 5 + 11, [0, 0])


def test_a_row_that_cannot_be_followed_is_listed(stages: Stages) -> None:
    """Any writer may append, and makes mistakes."""
    set_schedule(stages.root, "good", "reminders", every_ms=HOUR, payload="good")
    rows: list[dict[str, Any]] = [
        {"name": "odd", "topic": "reminders", "cron": "61 * * * *"},
        {"name": "lost", "topic": "reminders", "cron": "0 9 * * *", "zone": "Europe/Roma"},
        {"name": "twice", "topic": "reminders", "cron": "0 9 * * *"},
        {"name": "twice", "topic": "reminders", "cron": "0 10 * * *"},
        {"name": None, "topic": None},
    ]
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, rows))
    stages.work()
    set_schedule(stages.root, "odd", "reminders", cron="30 12 * * *", payload="set right")
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, [{"name": "odder", "topic": "t", "cron": "61 * * * *"}]))
    stages.work()
    go(stages, HOUR)
    assert came(stages) == {("good", "01T13:00"): 1, ("set right", "01T12:30"): 1}
    errors = {each.name: each.error for each in schedules(stages.root)}
    assert errors.pop("good") is None
    assert errors.pop("odd") is None
    assert "cron = '61 * * * *'" in (errors["odder"] or "")
    assert "zone = 'Europe/Roma'" in (errors["lost"] or "")
    assert "two rows" in (errors["twice"] or "")
    assert "name" in (errors[""] or "")


def test_any_writer_sets_a_schedule(stages: Stages) -> None:
    """A row with what is needed is enough."""
    row = {"name": "plain", "topic": "reminders", "cron": "0 13 * * *", "payload": "at {occurrence}"}
    append(stages.root, SCHEDULES, rows_of(SCHEDULES, [row]))
    go(stages, 0)
    go(stages, HOUR)
    assert came(stages) == {("at 2026-06-01T13:00:00.000Z", "01T13:00"): 1}


def test_what_is_not_known_any_more_is_taken_back_and_planned_anew(stages: Stages) -> None:
    """Somebody deleted the folder, or the warehouse is a copy."""
    set_schedule(stages.root, "often", "reminders", cron="0 */2 * * *")
    stages.work()
    rmtree(Path(stages.root) / FOLDER)
    stages.restart_all()
    stages.work()
    go(stages, 6 * HOUR)
    assert sorted(came(stages).values()) == [1, 1, 1]


def test_a_log_that_was_cut_behind_what_is_planned_stops_nothing(stages: Stages) -> None:
    """Schedules changed while no job ran, and maintenance cut what came before; all is planned anew."""
    set_schedule(stages.root, "often", "reminders", cron="0 */2 * * *", payload="old")
    stages.work()
    set_schedule(stages.root, "often", "reminders", cron="0 */2 * * *", payload="new")
    opened = open_table(stages.root, SCHEDULES)
    opened.create_checkpoint()
    for version in range(opened.version()):
        (Path(stages.root) / SCHEDULES.name / "_delta_log" / f"{version:020}.json").unlink()
    stages.restart_all()
    stages.work()
    go(stages, 6 * HOUR)
    assert came(stages) == {("new", f"01T{hour}:00"): 1 for hour in (14, 16, 18)}


def test_numbers_of_others_are_nothing(stages: Stages) -> None:
    """Who appends to `inbox` may note any number under any name; what is planned is taken back, and planned anew."""
    set_schedule(stages.root, "often", "reminders", cron="0 */2 * * *")
    stages.work()
    opened = open_table(stages.root, INBOX)
    rows = pa.Table.from_pylist([{"topic": "t"}], schema=pa.schema(opened.schema().to_arrow()))
    how = CommitProperties(app_transactions=[Transaction(NAME, 77)])
    write_deltalake(opened, rows, mode="append", commit_properties=how)
    stages.restart_all()
    stages.work()
    go(stages, 6 * HOUR)
    assert sorted(came(stages).values()) == [1, 1, 1]


def test_a_delay_of_the_topic_counts_from_the_occurrence(stages: Stages) -> None:
    """What is planned a day ahead is not a day late, nor is it refused as too far ahead."""
    set_policy(stages.root, "reminders", max_delay_ms=HOUR, min_delay_ms=60 * SECOND)
    set_schedule(stages.root, "often", "reminders", cron="0 13 * * *")
    stages.work()
    go(stages, HOUR)
    assert came(stages) == {}
    go(stages, 60 * SECOND)
    assert list(came(stages).values()) == [1]


def test_what_is_deleted_or_paused_comes_no_more(stages: Stages) -> None:
    """What was planned is taken back."""
    for name in ("deleted", "paused", "kept"):
        set_schedule(stages.root, name, "reminders", cron="0 13 * * *", payload=name)
    stages.work()
    delete_schedule(stages.root, "deleted")
    pause_schedule(stages.root, "paused")
    stages.work()
    go(stages, HOUR)
    assert came(stages) == {("kept", "01T13:00"): 1}


@pytest.mark.parametrize("most", [20, 0])
def test_many_schedules_change_at_once(stages: Stages, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """No condition names all of them; where even several cannot, all schedules are planned anew. None comes twice."""
    monkeypatch.setattr(takeback, "_MOST_CONDITIONS", most)
    names = [f"{number:03} " + "n'" * 90 for number in range(60)]
    set_by_writer(stages, *({"name": name, "cron": "0 13 * * *", "payload": "old"} for name in names))
    set_by_writer(stages, {"name": "kept", "cron": "0 13 * * *", "payload": "kept"})
    stages.work()
    open_table(stages.root, SCHEDULES).update({"payload": "'new'"}, predicate="payload = 'old'")
    stages.work()
    go(stages, HOUR)
    assert came(stages) == {("new", "01T13:00"): 60, ("kept", "01T13:00"): 1}


def test_what_occurs_while_a_change_is_followed_is_not_missed(stages: Stages) -> None:
    """The planner died between its command and the new plan; nothing is caught up by this schedule."""
    when: dict[str, Any] = {"cron": "0 13 * * *", "catch_up": "none"}
    set_schedule(stages.root, "daily", "reminders", payload="old", **when)
    stages.work()
    set_schedule(stages.root, "daily", "reminders", payload="new", **when)
    stages.die_after("planner.withdrawn")
    stages.plan()
    stages.die_after(None)
    stages.restart_all()
    go(stages, HOUR + 5 * SECOND)
    assert came(stages) == {("new", "01T13:00"): 1}


def test_what_a_schedule_misses_that_was_set_while_no_job_ran_is_caught_up(stages: Stages) -> None:
    """Its row says when it was set. What was before comes no more."""
    set_at = datetime.fromtimestamp(T0 / 1_000, UTC)
    set_by_writer(stages, {"name": "daily", "cron": "0 11,13 * * *", "catch_up": "all", "set_at": set_at})
    go(stages, 2 * HOUR)
    assert came(stages) == {("", "01T13:00"): 1}


def test_the_first_of_a_few_comes() -> None:
    """They count from the second in which the schedule is set."""
    with warehouse(datetime(2026, 6, 1, 12, 0, 0, 500_000, tzinfo=UTC)) as made:
        subscribe(made.root, Subscription("reminders", "s"))
        made.client().set_schedule("few", "reminders", every_ms=HOUR, limit=2, payload="x")
        made.advance(hours=5)
        rows = query("SELECT payload FROM t", t=open_table(made.root, DELIVERIES))
        assert len(rows) == 2


def test_a_shorter_longest_delay_repeats_nothing(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was planned farther ahead is taken back, and planned again when that is allowed."""
    set_schedule(stages.root, "monthly", "reminders", cron="0 9 28 * *")
    set_schedule(stages.root, "daily", "reminders", cron="0 13 * * *", payload="daily")
    stages.work()
    settings = Settings(max_delay_ms=7 * DAY)
    for _ in range(30):
        monkeypatch.setattr(stages, "_planner", Planner(stages.warehouse, lambda: stages.instant, settings))
        go(stages, DAY)
    assert sum(count for (payload, _), count in came(stages).items() if not payload) == 1
    assert sum(count for (payload, _), count in came(stages).items() if payload) == 30


def test_a_clock_that_is_behind_for_a_while_repeats_nothing(stages: Stages) -> None:
    """What is planned stays so."""
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *", catch_up="all", payload="x")
    stages.work()
    stages.instant -= 3 * DAY
    stages.plan()
    stages.instant += 3 * DAY
    go(stages, DAY)
    assert sorted(came(stages).values()) == [1] * 4


@pytest.mark.parametrize("death", [None, "planner.decided", "planner.withdrawn"])
def test_a_clock_that_was_ahead_for_a_while_lets_nothing_be_missed(stages: Stages, death: str | None) -> None:
    """By it what lay between was missed. When it is right again all is planned anew, also by who has died meanwhile."""
    set_schedule(stages.root, "often", "reminders", cron="0 */6 * * *")
    stages.work()
    stages.instant += 3 * DAY
    stages.plan()
    stages.instant -= 3 * DAY
    stages.die_after(death)
    stages.work()
    stages.die_after(None)
    stages.restart_all()
    for _ in range(10):
        go(stages, 12 * HOUR)
    assert sorted(came(stages).values()) == [1] * 2 * 10


def test_other_rules_of_zones_repeat_nothing(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is taken back and planned anew; what is new counts from when it was noticed."""
    set_schedule(stages.root, "often", "reminders", cron="0 * * * *", payload="often")
    stages.work()
    monkeypatch.setattr(planner, "RULES", "2099z")
    set_schedule(stages.root, "new", "reminders", cron="0 13 * * *", payload="new")
    stages.work()
    go(stages, 2 * HOUR)
    assert came(stages) == {("often", "01T13:00"): 1, ("often", "01T14:00"): 1, ("new", "01T13:00"): 1}


def test_a_table_that_another_writer_made_is_planned(stages: Stages) -> None:
    """Its first version has rows."""
    opened = open_table(stages.root, SCHEDULES)
    rows = rows_of(SCHEDULES, [{"name": "plain", "topic": "reminders", "cron": "0 13 * * *"}])
    path = Path(opened.table_uri.removeprefix("file://"))
    rmtree(path)
    write_deltalake(str(path), rows)
    stages.restart_all()
    go(stages, 0)
    go(stages, HOUR)
    assert came(stages) == {("", "01T13:00"): 1}


def test_what_goes_past_the_schedule_is_not_taken_for_withdrawn(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a long express bound ingest releases what is due soon at once; a change counts behind that."""
    settings = Settings(express_ms=10 * 60 * SECOND, horizon_ms=LONGEST_HORIZON_MS)
    monkeypatch.setattr(stages, "_planner", Planner(stages.warehouse, lambda: stages.instant, settings))
    set_schedule(stages.root, "often", "reminders", cron="0/5 * * * *", payload="old")
    stages.work()
    set_schedule(stages.root, "often", "reminders", cron="0/5 * * * *", payload="new")
    stages.work()
    go(stages, 20 * 60 * SECOND)
    assert [payload for payload, _ in sorted(came(stages), key=lambda each: each[1])] == ["old", "old", "new", "new"]
