"""What a window is, what is none, and how evenly an opening is filled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from state import InvalidArgument
from state.buckets import MAX_TIME
from state.windows import MAX_LENGTH, Window, place_hashes

DAY, HOUR, MINUTE = 86_400_000, 3_600_000, 60_000
ROME, EPOCH = ZoneInfo("Europe/Rome"), datetime.fromtimestamp(0, UTC)
SECOND = 1_000


def ms(text: str) -> int:
    """An instant, of a clock that shows UTC."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


def put_off(window: str, *times: str, zone: ZoneInfo = ROME, bits: int = 0) -> list[str]:
    """When what is due at some times comes, by a clock that shows UTC."""
    at = np.array([ms(each) for each in times])
    found = Window.of_text(window).put_off(at, zone, np.zeros(len(at), np.int64), 0, bits)
    return [f"{EPOCH + timedelta(milliseconds=each):%Y-%m-%dT%H:%M:%S}" for each in found.tolist()]


def minutes(*spans: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Hours of the week as minutes."""
    return tuple((first * 60, end * 60) for first, end in spans)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Mo-Fr 08:00-20:00; Sa 10:00-14:00", [*((24 * day + 8, 24 * day + 20) for day in range(5)), (130, 134)]),
        ("Mo", [(0, 24)]),
        ("Sa-Mo", [(0, 24), (120, 168)]),
        ("Mo,We 00:00-24:00", [(0, 24), (48, 72)]),
        ("Mo 08:00-12:00,13:00-18:00", [(8, 12), (13, 18)]),
        ("Mo 22:00-06:00", [(22, 30)]),
        ("Su 22:00-06:00", [(0, 6), (166, 168)]),
        ("Mo 08:00-12:00; Mo 10:00-14:00", [(8, 14)]),
        ("00:00-24:00", [(0, 168)]),
        (" Mo - Tu 08:00 - 09:00 ", [(8, 9), (32, 33)]),
    ],
)
def test_rules_name_minutes_of_the_week(text: str, spans: list[tuple[int, int]]) -> None:
    """Days alone, times alone, both; over midnight, and over the end of the week."""
    assert Window.of_text(text).spans == minutes(*spans)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", ""),
        ("Mo-Fr 08:00-20:00;", ""),
        ("always", "always"),
        ("Mo-Fr 08:00-20:00; Xx 10:00-14:00", "Xx 10:00-14:00"),
        ("Mo-Tu-We", "Mo-Tu-We"),
        ("08:00", "08:00"),
        ("8:00-20:00", "8:00-20:00"),
        ("08:00-08:00", "08:00-08:00"),
        ("24:00-06:00", "24:00-06:00"),
        ("08:00-24:01", "08:00-24:01"),
        ("08:60-09:00", "08:60-09:00"),
        ("mo 08:00-20:00", "mo 08:00-20:00"),
        ("Mo 08:00-20:00,", "Mo 08:00-20:00,"),
    ],
)
def test_what_is_no_window_is_refused_by_the_rule_that_is_none(text: str, wrong: str) -> None:
    """Whoever wrote it finds the place."""
    with pytest.raises(InvalidArgument) as refused:
        Window.of_text(text)
    assert (refused.value.field, refused.value.value) == ("window", wrong)
    assert "08:00-20:00" in refused.value.allowed or "Mo-Fr" in refused.value.allowed


def test_a_text_without_end_is_refused() -> None:
    """Anybody may write a policy."""
    with pytest.raises(InvalidArgument):
        Window.of_text("Mo;" * MAX_LENGTH)


def test_what_is_due_at_night_comes_in_the_morning_of_its_zone() -> None:
    """The first and the last millisecond are inside, and the weekend is over on Monday."""
    window = "Mo-Fr 08:00-20:00"
    nights = ("2026-07-01T22:00:00", "2026-07-03T18:00:00", "2026-07-02T05:59:59", "2026-07-02T06:00:00")
    assert put_off(window, *nights) == [
        "2026-07-02T06:00:00",
        "2026-07-06T06:00:00",
        "2026-07-02T06:00:00",
        "2026-07-02T06:00:00",
    ]
    assert put_off(window, "2026-07-02T17:59:59.999") == ["2026-07-02T17:59:59"]


def test_a_window_over_midnight_is_open_on_both_sides() -> None:
    """At night only."""
    assert put_off("22:00-06:00", "2026-01-10T12:00:00", "2026-01-10T22:00:00", "2026-01-11T04:59:00") == [
        "2026-01-10T21:00:00",
        "2026-01-10T22:00:00",
        "2026-01-11T04:59:00",
    ]


def test_a_time_that_is_skipped_opens_nothing_and_one_that_comes_twice_is_open_twice() -> None:
    """On 29 March 2026 no clock in Rome shows 02:30; on 25 October it is shown at 00:30 and at 01:30 UTC."""
    assert put_off("02:30-02:45", "2026-03-29T00:00:00") == ["2026-03-30T00:30:00"]
    assert put_off("02:30-03:30", "2026-03-29T00:00:00") == ["2026-03-29T01:00:00"]
    twice = ("2026-10-25T00:00:00", "2026-10-25T00:50:00", "2026-10-25T01:40:00", "2026-10-25T01:50:00")
    assert put_off("02:30-02:45", *twice) == [
        "2026-10-25T00:30:00",
        "2026-10-25T01:30:00",
        "2026-10-25T01:40:00",
        "2026-10-26T01:30:00",
    ]


def test_what_a_tick_would_lead_out_of_the_window_waits_for_the_next_one() -> None:
    """A tick of a minute has buckets of 32.768 s: one ends at 17:59:38.240, and the next one after the window."""
    last = ("2026-07-02T17:59:38.240", "2026-07-02T17:59:38.241")
    assert put_off("08:00-20:00", *last, bits=15) == ["2026-07-02T17:59:38", "2026-07-03T06:00:00"]
    assert put_off("08:00-20:00", "2026-07-02T17:59:59") == ["2026-07-02T17:59:59"]


def test_a_tick_that_is_longer_than_an_opening_moves_nothing_that_is_due_inside() -> None:
    """A tick of a day has buckets of 18.6 h, some of which end inside; what waits is spread as without it."""
    inside = [f"2026-07-{day:02}T{hour:02}:30:00" for day in range(1, 10) for hour in (6, 12, 17)]
    assert put_off("08:00-20:00", *inside, bits=26) == inside
    night, hashes = np.full(100, ms("2026-07-01T23:00")), place_hashes(np.zeros(100, np.int64), np.arange(100))
    spread = [Window.of_text("08:00-20:00").put_off(night, ROME, hashes, HOUR, bits).tolist() for bits in (0, 26)]
    assert spread[0] == spread[1]
    assert len(set(spread[0])) == len(night)


def test_the_last_days_of_the_calendar_are_no_error() -> None:
    """A clock in Kiritimati shows the year 10000 then."""
    zone, times = ZoneInfo("Pacific/Kiritimati"), np.array([0, MAX_TIME - 8 * DAY, MAX_TIME])
    found = Window.of_text("Mo 08:00-09:00").put_off(times, zone, np.zeros(3, np.int64))
    assert (found >= times).all()
    assert found[2] == MAX_TIME


@pytest.mark.parametrize("spread", [10 * MINUTE, 7 * SECOND])
def test_messages_fill_an_opening_evenly(spread: int) -> None:
    """Those of one batch, of two topics that take turns in it, and those of batches of one message each."""
    window, count = Window.of_text("08:00-20:00"), 600_000
    night, rows, same = np.full(count, ms("2026-07-01T23:00")), np.arange(count), np.zeros(count, np.int64)
    for ledgers, entries in ((same + 12, rows), (same, rows * 2 + 1), (rows, same)):
        found = window.put_off(night, ROME, place_hashes(ledgers, entries), spread)
        after = found - ms("2026-07-02T06:00")
        assert after.min() >= 0
        assert after.max() < spread
        each = np.bincount(after // SECOND, minlength=spread // SECOND)
        assert np.abs(each * (spread // SECOND) / count - 1).max() < 0.05


def test_a_short_opening_is_filled_and_not_left() -> None:
    """The spread is longer than the window."""
    count, night = 1_000, ms("2026-07-01T23:00")
    hashes = place_hashes(np.zeros(count, np.int64), np.arange(count))
    found = Window.of_text("08:00-08:05").put_off(np.full(count, night), ROME, hashes, HOUR)
    after = found - ms("2026-07-02T06:00")
    assert after.min() < SECOND
    assert 5 * MINUTE - SECOND < after.max() < 5 * MINUTE


def test_at_the_end_of_time_nothing_opens_any_more() -> None:
    """A clock of the year 10000 has no date, and whoever asks for it is told so."""
    window = Window.of_text("08:00-20:00")
    for at in (MAX_TIME, 1 << 62):
        assert window.opening(ROME, at) == (MAX_TIME, MAX_TIME)
        assert len(window.openings(ROME, at, at + DAY).opens) == 0
