"""When something recurs: refusals, defaults and overrides of each notation, days off, limits, jitter, hard places."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from state.errors import InvalidArgument, OutOfRange
from state.localtime import Fold, Gap
from state.recurrence import Applied, DayOff, Recurrence
from state.units import Ms

NEW_YORK = ZoneInfo("America/New_York")
START = "2026-01-05T14:00Z"


def ms(text: str) -> Ms:
    """The instant of a time with an offset."""
    return Ms((datetime.fromisoformat(text) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1))


def next_times(recurrence: Recurrence, after: str, count: int) -> list[str]:
    """The next times on clocks of the zone, with the offset."""
    found = islice(recurrence.after(ms(after)), count)
    zone = recurrence.zone
    return [datetime.fromtimestamp(each.at / 1_000, zone).strftime("%Y-%m-%dT%H:%M%z") for each in found]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "cron, rrule, every_ms", "exactly one"),
    ({"cron": "* * * * *", "every_ms": 5_000}, "cron, rrule, every_ms", "exactly one"),
    ({"cron": "61 * * * *"}, "cron", "Bad minute"),
    ({"cron": "* * * *"}, "cron", "five fields"),
    ({"cron": "0 9 1#2/3 * 1#2/3"}, "cron", "five fields"),
    ({"cron": "0 0 31 2 *"}, "cron", "Bad day-of-month"),
    ({"rrule": "FREQ=DAILY"}, "start", "rrule counts from it"),
    ({"rrule": "FREQ=FORTNIGHTLY", "start": 0}, "rrule FREQ", "YEARLY, MONTHLY"),
    ({"rrule": "INTERVAL=2", "start": 0}, "rrule FREQ", "YEARLY, MONTHLY"),
    ({"rrule": "FREQ=DAILY;FREQ=DAILY", "start": 0}, "rrule", "each once"),
    ({"rrule": "FREQ=DAILY;BYEASTER=1", "start": 0}, "rrule", "BYMONTH"),
    ({"rrule": "FREQ=DAILY;INTERVAL=0", "start": 0}, "rrule INTERVAL", "1..1000000"),
    ({"rrule": "FREQ=DAILY;BYHOUR=24", "start": 0}, "rrule BYHOUR", "0..23"),
    ({"rrule": "FREQ=DAILY;BYHOUR=-1", "start": 0}, "rrule BYHOUR", "0..23"),
    ({"rrule": "FREQ=MONTHLY;BYMONTHDAY=0", "start": 0}, "rrule BYMONTHDAY", "1..31 or -31..-1"),
    ({"rrule": "FREQ=WEEKLY;BYDAY=1MO", "start": 0}, "rrule BYDAY", "without a number"),
    ({"rrule": "FREQ=MONTHLY;BYDAY=XX", "start": 0}, "rrule BYDAY", "-1FR"),
    ({"rrule": "FREQ=WEEKLY;BYMONTHDAY=1", "start": 0}, "rrule BYMONTHDAY", "with FREQ="),
    ({"rrule": "FREQ=MONTHLY;BYWEEKNO=1", "start": 0}, "rrule BYWEEKNO", "with FREQ=YEARLY only"),
    ({"rrule": "FREQ=MONTHLY;BYSETPOS=1", "start": 0}, "rrule BYSETPOS", "beside another part"),
    ({"rrule": "FREQ=DAILY;COUNT=1;UNTIL=20260101", "start": 0}, "rrule COUNT", "one of COUNT and UNTIL"),
    ({"rrule": "FREQ=DAILY;UNTIL=20261301", "start": 0}, "rrule UNTIL", "20261231T090000Z"),
    ({"cron": "* * * * *", "limit": 5}, "start", "limit counts from it"),
    ({"cron": "* * * * *", "start": 10, "until": 9}, "until", "not before start"),
    ({"cron": "* * * * *", "on_gap": Gap.SHIFTED}, "on_gap", "after, skip"),
    ({"every_ms": 5_000, "on_day_off": DayOff.NEXT}, "on_day_off", "skip"),
]


@pytest.mark.parametrize(("asked", "field", "allowed"), REFUSED)
def test_what_cannot_be_followed_is_refused_by_its_name(asked: dict[str, Any], field: str, allowed: str) -> None:
    """Whoever set it reads which part is wrong, and what would be right."""
    with pytest.raises(InvalidArgument) as refused:
        Recurrence(**asked)
    assert refused.value.field == field
    assert allowed in refused.value.allowed


@pytest.mark.parametrize(
    ("name", "value"), [("every_ms", 999), ("limit", 0), ("jitter_ms", 86_400_001), ("start", -1), ("limit", 1_000_001)]
)
def test_a_number_outside_its_range_is_refused(name: str, value: int) -> None:
    """With the range."""
    asked: dict[str, Any] = {"every_ms": 5_000, "start": 0, name: value}
    with pytest.raises(OutOfRange) as refused:
        Recurrence(**asked)
    assert refused.value.field == name


@pytest.mark.parametrize(
    "asked",
    [
        {"cron": "1 1 */100 * MON#4"},
        {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"},
        {"rrule": "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"},
        {"rrule": "FREQ=HOURLY;INTERVAL=2;BYHOUR=1,3"},
        {"cron": "0 0 31 12 *", "until": ms("2026-12-30T00:00Z")},
    ],
)
def test_what_never_comes_is_found(asked: dict[str, Any]) -> None:
    """In a moment, though one has to look for years."""
    with pytest.raises(InvalidArgument) as refused:
        Recurrence(start=ms("2026-01-01T00:00Z"), **asked).check_comes()
    assert "at least once" in refused.value.allowed


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"until": ms("2026-12-31T00:00Z")}, "until"),
        ({"limit": 3, "start": ms("2026-12-29T00:00Z")}, "cron"),
    ],
)
def test_what_was_over_before_never_comes(asked: dict[str, Any], field: str) -> None:
    """An end that has passed was taken for one that is to come, as if it were 1970."""
    recurrence = Recurrence(cron="0 0 * * *", **asked)
    recurrence.check_comes(ms("2026-12-31T00:00Z"))
    with pytest.raises(InvalidArgument) as refused:
        recurrence.check_comes(ms("2026-12-31T00:01Z"))
    assert refused.value.field == field


CHANGES: list[tuple[dict[str, Any], str, list[str]]] = [
    # A fixed time of day: after the gap, and the first of two.
    ({"cron": "30 2 * * *"}, "2026-03-08T00:00Z", ["2026-03-08T03:00-0400", "2026-03-09T02:30-0400"]),
    ({"cron": "30 1 * * *"}, "2026-11-01T04:00Z", ["2026-11-01T01:30-0400", "2026-11-02T01:30-0500"]),
    ({"cron": "0 30 2 * * *"}, "2026-03-08T00:00Z", ["2026-03-08T03:00-0400", "2026-03-09T02:30-0400"]),
    ({"cron": "0 30 1 * * *"}, "2026-11-01T04:00Z", ["2026-11-01T01:30-0400", "2026-11-02T01:30-0500"]),
    # A star for the minute or the hour: it runs through.
    ({"cron": "30 */1 * * *"}, "2026-03-08T06:00Z", ["2026-03-08T01:30-0500", "2026-03-08T03:30-0400"]),
    (
        {"cron": "*/30 1 * * *"},
        "2026-11-01T04:59Z",
        ["2026-11-01T01:00-0400", "2026-11-01T01:30-0400", "2026-11-01T01:00-0500", "2026-11-01T01:30-0500"],
    ),
    # As it is overridden.
    (
        {"cron": "30 2 * * *", "on_gap": Gap.SKIP},
        "2026-03-08T00:00Z",
        ["2026-03-09T02:30-0400"],
    ),
    (
        {"cron": "30 1 * * *", "on_fold": Fold.BOTH},
        "2026-11-01T04:00Z",
        ["2026-11-01T01:30-0400", "2026-11-01T01:30-0500"],
    ),
    (
        {"cron": "30 */1 * * *", "on_gap": Gap.AFTER},
        "2026-03-08T06:45Z",
        ["2026-03-08T03:00-0400", "2026-03-08T03:30-0400"],
    ),
    (
        {"cron": "30 */1 * * *", "on_fold": Fold.FIRST},
        "2026-11-01T05:00Z",
        ["2026-11-01T01:30-0400", "2026-11-01T02:30-0500"],
    ),
    # By the RFC: left out, and the first of two.
    (
        {"rrule": "FREQ=DAILY;BYHOUR=2;BYMINUTE=30"},
        "2026-03-08T00:00Z",
        ["2026-03-09T02:30-0400", "2026-03-10T02:30-0400"],
    ),
    (
        {"rrule": "FREQ=DAILY;BYHOUR=1;BYMINUTE=30"},
        "2026-11-01T04:00Z",
        ["2026-11-01T01:30-0400", "2026-11-02T01:30-0500"],
    ),
    ({"rrule": "FREQ=HOURLY"}, "2026-11-01T05:00Z", ["2026-11-01T02:00-0500"]),
    (
        {"rrule": "FREQ=HOURLY", "on_fold": Fold.BOTH},
        "2026-11-01T05:00Z",
        ["2026-11-01T01:00-0500", "2026-11-01T02:00-0500"],
    ),
    # Real time.
    ({"every_ms": 3_600_000}, "2026-11-01T05:00Z", ["2026-11-01T01:00-0500", "2026-11-01T02:00-0500"]),
]


@pytest.mark.parametrize(("asked", "after", "expected"), CHANGES)
def test_a_change_of_clocks_is_met_as_the_notation_says_or_as_it_is_asked(
    asked: dict[str, Any], after: str, expected: list[str]
) -> None:
    """New York, 2026: clocks go forward on 8 March, and back on 1 November."""
    assert next_times(Recurrence(zone=NEW_YORK, start=ms(START), **asked), after, len(expected)) == expected


def test_an_instance_that_clocks_skip_is_not_counted_unless_it_comes_after() -> None:
    """Three instances of a rule are three that come."""
    rule: dict[str, Any] = {"rrule": "FREQ=DAILY;COUNT=3", "zone": NEW_YORK, "start": ms("2026-03-07T07:30Z")}
    assert next_times(Recurrence(**rule), START, 9) == [
        "2026-03-07T02:30-0500",
        "2026-03-09T02:30-0400",
        "2026-03-10T02:30-0400",
    ]
    assert next_times(Recurrence(**rule, on_gap=Gap.AFTER), START, 9) == [
        "2026-03-07T02:30-0500",
        "2026-03-08T03:00-0400",
        "2026-03-09T02:30-0400",
    ]


HARD = [
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00Z", ["2026-10-04T02:30+1100", "2026-10-05T02:15+1100"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00Z", ["2026-04-05T01:45+1100", "2026-04-06T01:45+1030"]),
    (
        "Australia/Lord_Howe",
        "*/15 1 * * *",
        "2026-04-04T14:20Z",
        ["2026-04-05T01:30+1100", "2026-04-05T01:45+1100", "2026-04-05T01:30+1030", "2026-04-05T01:45+1030"],
    ),
    (
        "Pacific/Apia",
        "0 12 * * *",
        "2011-12-29T00:00Z",
        ["2011-12-29T12:00-1000", "2011-12-31T00:00+1400", "2011-12-31T12:00+1400"],
    ),
    ("Pacific/Apia", "*/30 12 * * *", "2011-12-29T22:15Z", ["2011-12-29T12:30-1000", "2011-12-31T12:00+1400"]),
    ("Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00Z", ["2026-03-22T03:00+0100", "2026-03-23T02:30+0100"]),
    ("Africa/Cairo", "0 0 * * *", "2026-04-23T00:00Z", ["2026-04-24T01:00+0300", "2026-04-25T00:00+0300"]),
    ("UTC", "0 0 29 2 *", "2024-03-01T00:00Z", ["2028-02-29T00:00+0000", "2032-02-29T00:00+0000"]),
    ("UTC", "0 0 31 * *", "2026-01-31T00:00Z", ["2026-03-31T00:00+0000", "2026-05-31T00:00+0000"]),
    ("UTC", "0 0 L * *", "2026-01-31T00:00Z", ["2026-02-28T00:00+0000", "2026-03-31T00:00+0000"]),
    ("UTC", "0 0 * * MON#5", "2026-01-31T00:00Z", ["2026-03-30T00:00+0000", "2026-06-29T00:00+0000"]),
    # A day of the month or a day of the week, unless one of them begins with a star.
    ("UTC", "0 0 13 * 5", "2026-02-01T00:00Z", ["2026-02-06T00:00+0000", "2026-02-13T00:00+0000"]),
]


@pytest.mark.parametrize(("zone", "cron", "after", "expected"), HARD)
def test_cron_in_hard_places(zone: str, cron: str, after: str, expected: list[str]) -> None:
    """Half an hour, a day that never was, midnight, leap years, the ends of months."""
    assert next_times(Recurrence(cron=cron, zone=ZoneInfo(zone)), after, len(expected)) == expected


def test_week_53_comes_in_years_that_have_it() -> None:
    """Some have, and the rule waits for them."""
    rule = Recurrence(rrule="FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO", start=ms("2019-01-01T00:00Z"))
    assert next_times(rule, "2019-01-01T00:00Z", 3) == [
        "2020-12-28T00:00+0000",
        "2026-12-28T00:00+0000",
        "2032-12-27T00:00+0000",
    ]


OFF = frozenset({date(2026, 12, 25), date(2026, 12, 26), date(2026, 12, 28)})
DAYS_OFF = [
    ({}, ["12-24T09:00", "12-27T09:00", "12-29T09:00"]),
    ({"on_day_off": DayOff.NEXT}, ["12-24T09:00", "12-27T09:00", "12-29T09:00"]),
    ({"on_day_off": DayOff.PREVIOUS}, ["12-24T09:00", "12-27T09:00", "12-29T09:00"]),
    ({"cron": "0 9 25,28 * *"}, []),
    ({"cron": "0 9 25,28 * *", "on_day_off": DayOff.NEXT}, ["12-27T09:00", "12-29T09:00"]),
    ({"cron": "0 9 25,28 * *", "on_day_off": DayOff.PREVIOUS}, ["12-24T09:00", "12-27T09:00"]),
    # On the same day, the earlier time of day first, whichever day it is of.
    ({"cron": "0 18 24 * *", "on_day_off": DayOff.PREVIOUS}, ["12-24T18:00"]),
    ({"cron": "0 9,18 25,27 * *", "on_day_off": DayOff.NEXT}, ["12-27T09:00", "12-27T18:00"]),
    ({"cron": None, "every_ms": 86_400_000}, ["12-24T14:00", "12-27T14:00", "12-29T14:00"]),
]


@pytest.mark.parametrize(("asked", "expected"), DAYS_OFF)
def test_days_off_leave_out_or_move(asked: dict[str, Any], expected: list[str]) -> None:
    """From Christmas to New Year; two that meet are one."""
    found = Recurrence(**{"cron": "0 9 * * *", "days_off": OFF, "start": ms("2026-01-01T14:00Z"), **asked})
    times = [each[5:16] for each in next_times(found, "2026-12-23T18:00Z", 5) if each < "2026-12-30"]
    assert times == expected


def test_an_occurrence_says_the_rules_behind_it() -> None:
    """So people see why it is not at the time that they wrote."""
    off = frozenset({date(2026, 3, 7)})
    moved = Recurrence(cron="30 2 7 * *", zone=NEW_YORK, days_off=off, on_day_off=DayOff.NEXT)
    first = next(moved.after(ms("2026-03-01T00:00Z")))
    assert first.nominal == datetime.fromisoformat("2026-03-07T02:30")
    assert first.rules == (Applied.DAY_OFF_NEXT, Applied.GAP_AFTER)


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"limit": 3}, 3),
        ({"until": ms("2026-01-07T14:00Z")}, 3),
        ({"limit": 3, "until": ms("2026-01-06T14:00Z")}, 2),
        ({"limit": 3, "days_off": frozenset({date(2026, 1, 6)})}, 3),
    ],
)
def test_a_limit_and_an_end_count_from_the_start(asked: dict[str, Any], count: int) -> None:
    """Whenever it is asked what comes next."""
    recurrence = Recurrence(rrule="FREQ=DAILY", start=ms(START), **asked)
    every = list(recurrence.after(Ms(0)))
    assert len(every) == count
    assert list(recurrence.after(every[0].at)) == every[1:]
    assert list(recurrence.after(every[-1].at)) == []


def test_an_until_of_a_rule_may_be_a_date_a_local_time_or_utc() -> None:
    """The RFC has all three; the instant itself still comes."""
    for until, last in [
        ("20260310", "2026-03-10T09:00-0400"),
        ("20260310T090000", "2026-03-10T09:00-0400"),
        ("20260310T130000Z", "2026-03-10T09:00-0400"),
        ("20260310T125959Z", "2026-03-09T09:00-0400"),
    ]:
        rule = Recurrence(rrule=f"FREQ=DAILY;UNTIL={until}", zone=NEW_YORK, start=ms(START))
        assert next_times(rule, START, 100)[-1] == last


def test_a_jitter_is_the_same_each_time_and_within_its_bound() -> None:
    """It spreads what would come at once, and a plan that is made again says the same."""
    recurrence = Recurrence(every_ms=1_000, jitter_ms=500)
    late = [recurrence.due(f"name-{number}", Ms(0)) for number in range(1_000)]
    assert late == [recurrence.due(f"name-{number}", Ms(0)) for number in range(1_000)]
    assert 0 <= min(late) < 20
    assert 480 < max(late) <= 500
    assert len(set(late)) > 300


@pytest.mark.parametrize("asked", [{"cron": "* * * * *"}, {"rrule": "FREQ=MINUTELY"}, {"every_ms": 60_000}])
def test_nothing_comes_after_the_last_instant_that_clocks_show(asked: dict[str, Any]) -> None:
    """Python's calendar ends, and no search does not."""
    recurrence = Recurrence(zone=NEW_YORK, start=Ms(253_402_300_000_000), **asked)
    assert len(list(islice(recurrence.after(Ms(253_402_000_000_000)), 10))) == 0
