"""Calendars: days off that many schedules have, set by the client, by the command, and by any writer."""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from pipeline.client.choices import ConsumerType
from pipeline.client.client import Client
from pipeline.client.consuming.consumer import Consumer
from pipeline.client.exceptions import CalendarNotFound
from pipeline.client.message import Message
from pipeline.client.subscribing.calendars import calendar, calendars, set_calendar
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.subscribing.schedules import schedules, set_schedule
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import append, open_table, query, rows_of
from pipeline.doctor.examine import examine
from pipeline.subscriptions.calendars import MOST_DAYS, CalendarDay
from pipeline.subscriptions.schedules import OCCURRENCE
from pipeline.testing.public import warehouse
from schemas import CALENDARS, DELIVERIES
from tests.support.invoked import invoke, output, run
from tests.support.recurring import begun
from tests.support.stages import Stages

DAY = 86_400_000
T0 = int(datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp() * 1_000)


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """A warehouse with one subscription."""
    return begun(str(tmp_path / "warehouse"), T0)


def came(stages: Stages) -> list[str]:
    """The occurrences that were delivered, from the month on."""
    rows = query("SELECT properties FROM t", t=open_table(stages.root, DELIVERIES))
    return sorted(dict(row["properties"])[OCCURRENCE][5:13] for row in rows)


def days(stages: Stages, count: int) -> None:
    """Let days pass, one after the other."""
    for _ in range(count):
        stages.instant += DAY
        stages.work()


def test_what_falls_on_a_day_of_a_calendar_is_moved_or_left_out(stages: Stages) -> None:
    """Beside days that the schedule itself names."""
    set_calendar(stages.root, "italy", {"2026-06-02": "Republic", date(2026, 6, 4): ""})
    set_schedule(stages.root, "skips", "reminders", cron="0 13 * * *", calendar="italy", days_off=["2026-06-03"])
    set_schedule(stages.root, "moves", "reminders", cron="0 14 2 * *", calendar="italy", on_day_off="next")
    stages.work()
    days(stages, 5)
    assert came(stages) == ["06-01T13", "06-03T14", "06-05T13"]


def test_a_calendar_that_changes_takes_back_what_was_planned_and_nothing_comes_twice(stages: Stages) -> None:
    """Also where the planner dies in between; schedules without it stay as they are."""
    set_calendar(stages.root, "italy", ["2026-12-25"])
    set_schedule(stages.root, "off", "reminders", cron="0 11 * * *", calendar="italy")
    set_schedule(stages.root, "plain", "reminders", cron="0 10 * * *")
    stages.work()
    set_calendar(stages.root, "italy", ["2026-06-02"])
    stages.die_after("planner.withdrawn")
    stages.plan()
    stages.die_after(None)
    stages.restart_all()
    stages.work()
    set_calendar(stages.root, "italy", ["2026-06-03"])
    stages.work()
    days(stages, 3)
    assert Counter(came(stages)) == Counter({"06-02T10": 1, "06-02T11": 1, "06-03T10": 1, "06-04T10": 1, "06-04T11": 1})


def test_a_calendar_that_is_not_there_refuses_those_who_name_it_alone(stages: Stages) -> None:
    """Until there is one of that name."""
    with pytest.raises(BadValue) as refused:
        set_schedule(stages.root, "off", "reminders", cron="0 13 * * *", calendar="italy")
    assert refused.value.field == "calendar"
    set_calendar(stages.root, "italy", ["2026-06-02"])
    set_schedule(stages.root, "off", "reminders", cron="0 13 * * *", calendar="italy")
    set_schedule(stages.root, "plain", "reminders", cron="0 14 * * *")
    stages.work()
    set_calendar(stages.root, "italy", [])
    stages.work()
    states = {each.name: each.error for each in schedules(stages.root)}
    assert states["plain"] is None
    assert "calendar = 'italy'" in (states["off"] or "")
    days(stages, 1)
    set_calendar(stages.root, "italy", ["2026-06-02"])
    stages.work()
    days(stages, 2)
    assert came(stages) == ["06-01T14", "06-02T14", "06-03T13", "06-03T14"]


def test_rows_that_are_no_days_are_listed_and_the_others_count(stages: Stages) -> None:
    """Any writer may append, and makes mistakes."""
    rows: list[dict[str, Any]] = [
        {"name": "italy", "day": "2026-06-02", "text": "Republic"},
        {"name": "italy", "day": "Christmas"},
        {"name": "italy", "day": None},
        {"name": "italy", "day": "2026-06-03", "text": "x" * 2_000},
        {"name": None, "day": "2026-06-02"},
    ]
    append(stages.root, CALENDARS, rows_of(CALENDARS, rows))
    found = calendars(stages.root)
    assert found.days == {"italy": (CalendarDay(date(2026, 6, 2), "Republic"),)}
    assert {name: len(each) for name, each in found.refused.items()} == {"": 1, "italy": 3}
    assert "a row is not followed: day = 'Christmas'" in output(stages.root, "calendar", "list")
    wrong = [(each.what, each.subject) for each in examine(stages.root, T0).findings if each.check == "recurring"]
    assert wrong == [("calendar_refused", "(no name)"), ("calendar_refused", "italy")]
    assert invoke(["calendar", "set", "--warehouse", stages.root, "italy", "2026-06-02"]).exit_code == 0
    open_table(stages.root, CALENDARS).delete("name IS NULL")
    assert [each for each in examine(stages.root, T0).findings if each.check == "recurring"] == []


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        (" ", ["2026-06-02"], "name"),
        ("n" * 201, ["2026-06-02"], "name"),
        ("a", ["2026-06-31"], "day"),
        ("a", {"2026-06-01": "x" * 1_001}, "text"),
        ("a", [date.fromordinal(each) for each in range(700_000, 700_001 + MOST_DAYS)], "days"),
    ],
)
def test_what_is_no_calendar_is_refused_by_its_field(stages: Stages, name: str, given: list[str], field: str) -> None:
    """Nothing is written."""
    with pytest.raises(BadValue) as refused:
        set_calendar(stages.root, name, given)
    assert refused.value.field == field
    assert open_table(stages.root, CALENDARS).version() == 0


def test_the_client_sets_calendars(stages: Stages) -> None:
    """One in the place of the other."""
    with Client(stages.root) as client:
        assert client.set_calendar("a", ["2026-06-02", "2026-06-01"])[0].day == date(2026, 6, 1)
        client.set_calendar("a", ["2026-06-05"])
        client.set_calendar("b", {})
        assert client.calendars() == {"a": (CalendarDay(date(2026, 6, 5)),)}
    with pytest.raises(CalendarNotFound):
        calendar(stages.root, "b")


def test_commands_set_show_and_delete_a_calendar(stages: Stages) -> None:
    """As text, and for scripts."""
    root = stages.root
    assert output(root, "calendar", "list") == "No calendar.\n"
    assert output(root, "calendar", "set", "italy", "2026-12-25=Christmas", "2026-12-26") == "italy: 2 days\n"
    assert output(root, "calendar", "show", "italy") == "2026-12-25  Christmas\n2026-12-26\n"
    (first, _) = output(root, "calendar", "show", "italy", "--json").splitlines()
    assert json.loads(first) == {"calendar": "italy", "day": "2026-12-25", "description": "Christmas"}
    assert json.loads(output(root, "calendar", "list", "--json")) == {"calendar": "italy", "days": 2, "errors": []}
    shown = output(
        root, "schedule", "preview", "--cron", "0 9 * * *", "--calendar", "italy", "--after", "2026-12-25", "-n", "1"
    )
    assert shown.splitlines()[1].startswith("2026-12-27")
    assert output(root, "calendar", "delete", "italy") == "italy: deleted\n"
    refused = run(root, "calendar", "show", "italy")
    assert (refused.exit_code, "there is no calendar 'italy'" in refused.output) == (1, True)


def test_an_import_replaces_the_days_of_its_years(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the package that is installed; what it does not know is named."""
    known = {"IT": ["25"]}

    def country_holidays(country: str, *, subdiv: str | None, years: list[int]) -> dict[date, str]:
        assert (country, subdiv) == ("IT", "25")
        return {date(year, 12, 25): "Natale" for year in [*years, max(years) + 1]}

    package = SimpleNamespace(
        country_holidays=country_holidays, list_supported_countries=lambda: known, __spec__=object()
    )
    monkeypatch.setitem(sys.modules, "holidays", package)
    root, asked = stages.root, ["calendar", "import", "italy", "--country", "IT", "--region", "25", "--year", "2026"]
    set_calendar(root, "italy", ["2026-01-01", "2027-01-01"])
    assert output(root, *asked) == "italy: 2 days\n"
    assert output(root, "calendar", "show", "italy") == "2026-12-25  Natale\n2027-01-01\n"
    assert "country = 'XX', allowed: one of IT" in run(root, *asked[:3], "--country", "XX", "--year", "2026").output
    assert "region = '26'" in run(root, *asked[:5], "--region", "26", "--year", "2026").output


def test_a_window_stays_closed_on_the_days_of_its_calendar() -> None:
    """For what is sent, what fails, what a command moves, and a forecast; until the calendar is another one."""
    with warehouse(datetime(2026, 6, 1, 10, tzinfo=UTC)) as made:
        client, seen = made.client(), list[str]()
        client.set_calendar("off", ["2026-06-02"])
        client.set_policies("reminders", window="08:00-18:00", window_calendar="off")

        def note(consumer: Consumer, message: Message) -> None:
            seen.append(f"{made.now:%d %H:%M} {message.data().decode()} {message.redelivery_count()}")
            fails = message.data() == b"fails" and message.redelivery_count() == 0
            (consumer.negative_acknowledge if fails else consumer.acknowledge)(message)

        ten_hours: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 36_000_000}
        client.subscribe("reminders", "s", ConsumerType.Shared, message_listener=note, **ten_hours)
        with client.create_producer("reminders") as producer:
            producer.send(b"fails")
            producer.send(b"waits", deliver_after=timedelta(hours=9))
            producer.send(b"moves", partition_key="k", deliver_after=timedelta(days=9))
        made.advance(minutes=1)
        client.reschedule("reminders", key="k", to=datetime(2026, 6, 2, 9, tzinfo=UTC))
        made.advance(days=3)
        assert sorted(seen) == ["01 10:00 fails 0", "03 08:00 fails 1", "03 08:00 moves 0", "03 08:00 waits 0"]


def test_a_calendar_that_a_window_names_and_is_not_there_closes_nothing_and_is_found(stages: Stages) -> None:
    """Messages come as if no calendar were named."""
    set_policy(stages.root, "reminders", window="00:00-24:00", window_calendar="italy")
    stages.ingest({"topic": "reminders", "payload": b"x"})
    stages.work()
    assert len(query("SELECT 1 FROM t", t=open_table(stages.root, DELIVERIES))) == 1
    (found,) = [each for each in examine(stages.root, T0).findings if each.what == "policy_refused"]
    assert "window_calendar = 'italy'" in found.text
    set_calendar(stages.root, "italy", ["2030-06-02"])
    assert [each for each in examine(stages.root, T0).findings if each.what == "policy_refused"] == []
