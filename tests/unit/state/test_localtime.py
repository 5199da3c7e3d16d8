"""Local times of zones whose clocks were changed in an unusual way: what is skipped, and what comes twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from state.errors import InvalidArgument, OutOfRange
from state.localtime import Fold, Gap, Shown, instants, local_time, offset_s, shown
from state.units import Ms

SKIPPED = [
    # Zone, a local time that is skipped, the end of the gap, and where the time would be without the change.
    ("America/New_York", "2026-03-08T02:30", "2026-03-08T07:00Z", "2026-03-08T07:30Z"),
    ("America/New_York", "2026-03-08T02:00", "2026-03-08T07:00Z", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-03-08T02:59:59.999", "2026-03-08T07:00Z", "2026-03-08T07:59:59.999Z"),
    ("Europe/Rome", "2026-03-29T02:15", "2026-03-29T01:00Z", "2026-03-29T01:15Z"),
    # By half an hour.
    ("Australia/Lord_Howe", "2026-10-04T02:10", "2026-10-03T15:30Z", "2026-10-03T15:40Z"),
    # By two hours.
    ("Antarctica/Troll", "2026-03-29T02:30", "2026-03-29T01:00Z", "2026-03-29T02:30Z"),
    # By a whole day, which Samoa never had.
    ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T10:00Z", "2011-12-30T22:00Z"),
    # After Ramadan.
    ("Africa/Casablanca", "2026-03-22T02:30", "2026-03-22T02:00Z", "2026-03-22T02:30Z"),
    # At midnight, so that the day begins at one.
    ("Africa/Cairo", "2026-04-24T00:00", "2026-04-23T22:00Z", "2026-04-23T22:00Z"),
    # For good, and by a part of an hour.
    ("Asia/Pyongyang", "2018-05-04T23:45", "2018-05-04T15:00Z", "2018-05-04T15:15Z"),
]
TWICE = [
    # Zone, a local time that comes twice, and when.
    ("America/New_York", "2026-11-01T01:30", "2026-11-01T05:30Z", "2026-11-01T06:30Z"),
    ("America/New_York", "2026-11-01T01:00", "2026-11-01T05:00Z", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45Z", "2026-04-04T15:15Z"),
    ("Antarctica/Troll", "2026-10-25T01:30", "2026-10-24T23:30Z", "2026-10-25T01:30Z"),
    # Before Ramadan.
    ("Africa/Casablanca", "2026-02-15T02:30", "2026-02-15T01:30Z", "2026-02-15T02:30Z"),
    # Clocks of winter are ahead of the standard time of the law, by a negative amount.
    ("Europe/Dublin", "2026-10-25T01:30", "2026-10-25T00:30Z", "2026-10-25T01:30Z"),
]
ONCE = [
    ("America/New_York", "2026-03-08T03:00", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-03-08T01:59:59.999", "2026-03-08T06:59:59.999Z"),
    ("America/New_York", "2026-11-01T02:00", "2026-11-01T07:00Z"),
    ("Pacific/Apia", "2011-12-31T00:00", "2011-12-30T10:00Z"),
    ("Asia/Kathmandu", "2026-06-01T12:00", "2026-06-01T06:15Z"),
    ("UTC", "2026-03-08T02:30", "2026-03-08T02:30Z"),
    # Summer time in the law only: no clock is changed.
    ("Africa/Casablanca", "2026-07-01T12:00", "2026-07-01T11:00Z"),
]


def ms(text: str) -> Ms:
    """The instant of a time with an offset."""
    return Ms((datetime.fromisoformat(text) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1))


@pytest.mark.parametrize(("zone", "local", "after", "shifted"), SKIPPED)
def test_a_local_time_that_is_skipped_has_the_instant_that_is_asked_for(
    zone: str, local: str, after: str, shifted: str
) -> None:
    """A job at half past two shall run on the day without a half past two, or shall not: somebody has to say it."""
    time, of = datetime.fromisoformat(local), ZoneInfo(zone)
    assert shown(time, of) is Shown.SKIPPED
    for fold in Fold:
        assert instants(time, of, Gap.AFTER, fold) == (ms(after),)
        assert instants(time, of, Gap.SHIFTED, fold) == (ms(shifted),)
        assert instants(time, of, Gap.SKIP, fold) == ()


@pytest.mark.parametrize(("zone", "local", "first", "second"), TWICE)
def test_a_local_time_that_comes_twice_has_the_instants_that_are_asked_for(
    zone: str, local: str, first: str, second: str
) -> None:
    """A salary is paid once, and a clock strikes twice."""
    time, of = datetime.fromisoformat(local), ZoneInfo(zone)
    assert shown(time, of) is Shown.TWICE
    for gap in Gap:
        assert instants(time, of, gap, Fold.FIRST) == (ms(first),)
        assert instants(time, of, gap, Fold.BOTH) == (ms(first), ms(second))


@pytest.mark.parametrize(("zone", "local", "at"), ONCE)
def test_all_other_local_times_have_one_instant_whatever_is_asked_for(zone: str, local: str, at: str) -> None:
    """The ends of a gap, the end of a fold, and zones in which nothing happens."""
    time, of = datetime.fromisoformat(local), ZoneInfo(zone)
    assert shown(time, of) is Shown.ONCE
    assert {instants(time, of, gap, fold) for gap in Gap for fold in Fold} == {(ms(at),)}
    assert local_time(ms(at), of) == time


def test_a_part_of_a_millisecond_is_rounded_up() -> None:
    """What is due at that time is not early."""
    time = datetime.fromisoformat("2026-06-01T12:00:00.000001")
    assert instants(time, ZoneInfo("UTC"), Gap.SKIP, Fold.FIRST) == (ms("2026-06-01T12:00:00.001Z"),)


def test_the_fold_of_the_local_time_itself_does_not_matter() -> None:
    """It is often left there by whoever made the time, and nobody sees it."""
    time, of = datetime.fromisoformat("2026-11-01T01:30").replace(fold=1), ZoneInfo("America/New_York")
    assert instants(time, of, Gap.SKIP, Fold.FIRST) == (ms("2026-11-01T05:30Z"),)


@pytest.mark.parametrize(
    ("zone", "at", "seconds"),
    [
        ("America/New_York", "2026-03-08T06:59:59.999Z", -5 * 3_600),
        ("America/New_York", "2026-03-08T07:00Z", -4 * 3_600),
        ("Asia/Kathmandu", "2026-03-08T07:00Z", 5 * 3_600 + 45 * 60),
        ("Africa/Monrovia", "1971-06-01T00:00Z", -(44 * 60 + 30)),
    ],
)
def test_an_offset_is_that_of_the_clocks_at_the_instant(zone: str, at: str, seconds: int) -> None:
    """People compare it with what their own clocks said."""
    assert offset_s(ms(at), ZoneInfo(zone)) == seconds


def test_a_time_with_a_zone_is_no_local_time() -> None:
    """Its own zone and the other one could differ."""
    with pytest.raises(InvalidArgument) as refused:
        instants(datetime(2026, 6, 1, tzinfo=UTC), ZoneInfo("Europe/Rome"), Gap.SKIP, Fold.FIRST)
    assert refused.value.field == "local"


@pytest.mark.parametrize("local", ["1970-01-01T23:59", "1900-01-01T00:00", "9999-12-31T00:00"])
def test_a_time_whose_instant_no_message_can_have_is_refused(local: str) -> None:
    """Near the ends of the calendar a zone decides on which side of the end an instant lies."""
    with pytest.raises(InvalidArgument) as refused:
        instants(datetime.fromisoformat(local), ZoneInfo("Pacific/Apia"), Gap.AFTER, Fold.BOTH)
    assert refused.value.field == "local"


@pytest.mark.parametrize("at", [-1, 253_402_300_799_999])
def test_an_instant_that_no_clock_shows_is_refused(at: int) -> None:
    """Python's calendar ends there."""
    with pytest.raises(OutOfRange) as refused:
        local_time(Ms(at), timezone(timedelta(hours=14)))
    assert refused.value.field == "at"
