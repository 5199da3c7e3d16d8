"""Times and durations as people write them: a generator over the forms, and what is none of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("typer", reason="the command needs requirements/all.lock")

from jobs.commands.days import MONTHS, TONIGHT, WEEKDAYS
from jobs.commands.durations import UNITS_MS, BadText, duration_ms
from jobs.commands.times import TIMES, instant

UNITS = {
    "w": ("w", "wk", "week", "weeks"),
    "d": ("d", "day", "days"),
    "h": ("h", "hr", "hrs", "hour", "hours", "Hours"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "milliseconds"),
}
ZONES = ("", "UTC", "Europe/Rome", "Asia/Tokyo", "America/New_York")
NOWS = st.integers(1_767_225_600, 1_830_000_000).map(lambda at: datetime.fromtimestamp(at, UTC))
CASES: list[Callable[[str], str]] = [str.lower, str.title, str.upper]


@st.composite
def durations(draw: st.DrawFn) -> tuple[str, int]:
    """A duration in some spelling, and its ms."""
    units = sorted(
        draw(st.sets(st.sampled_from(list(UNITS)), min_size=1, max_size=3)), key=lambda unit: -UNITS_MS[unit]
    )
    counts = [draw(st.integers(1, 99)) for _ in units]
    blank, between = draw(st.sampled_from(["", " "])), draw(st.sampled_from(["", " ", ", ", " and "]))
    parts = [f"{count}{blank}{draw(st.sampled_from(UNITS[unit]))}" for count, unit in zip(counts, units, strict=True)]
    return between.join(parts), sum(count * UNITS_MS[unit] for count, unit in zip(counts, units, strict=True))


@st.composite
def times_of_day(draw: st.DrawFn) -> tuple[str, time]:
    """A time of day in some spelling; an empty one is midnight."""
    hour, minute = draw(st.integers(0, 23)), draw(st.sampled_from([0, 5, 30, 59]))
    half, twelve = "am" if hour < 12 else "pm", (hour + 11) % 12 + 1
    spelled = [(f"{hour:02}:{minute:02}", time(hour, minute)), (f"{twelve}:{minute:02}{half}", time(hour, minute))]
    spelled += [
        (f"{twelve}{half}", time(hour)),
        (f"{twelve} {half.upper()}", time(hour)),
        ("noon", time(12)),
        ("", time()),
    ]
    return draw(st.sampled_from(spelled))


@st.composite
def days(draw: st.DrawFn, now: datetime, at: time) -> tuple[str, date]:
    """A day in some spelling, and which it is; `now` is what the clock on the wall shows."""
    ahead = draw(st.integers(-400, 400))
    that, case = now.date() + timedelta(days=ahead), draw(st.sampled_from(CASES))
    weekday = WEEKDAYS[that.weekday()]
    name = draw(st.sampled_from([weekday, weekday[:3]]))
    week = [now.date() + timedelta(days=each) for each in range(-8, 15)]
    same = [each for each in week if each.weekday() == that.weekday()]
    coming = next(each for each in same if datetime.combine(each, at) >= now)
    month = draw(st.sampled_from([MONTHS[that.month - 1], MONTHS[that.month - 1][:3]]))
    forms = [("today", now.date()), ("tomorrow", now.date() + timedelta(days=1)), (that.isoformat(), that)]
    forms += [
        (name, coming),
        (f"on {name}", coming),
        (f"last {name}", [each for each in same if each < now.date()][-1]),
    ]
    forms += [
        (f"next {name}", next(each for each in same if each > now.date())),
        (f"{that.day} {month} {that.year}", that),
    ]
    forms += [(f"{month} {that.day}, {that.year}", that)]
    text, day = draw(st.sampled_from(forms))
    return case(text), day


@given(durations())
def test_a_duration_is_read_in_every_spelling(written: tuple[str, int]) -> None:
    """`90min` was refused, and `5 minutes`."""
    text, ms = written
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("90min", 5_400_000), ("5 minutes", 300_000), ("an hour", 3_600_000), ("half an hour", 1_800_000)),
        *(("two days and 3 hours", 183_600_000), ("1 hour 30 minutes", 5_400_000), ("1.5 hours", 5_400_000)),
    ],
)
def test_a_duration_may_be_in_words(text: str, ms: int) -> None:
    """As people say it."""
    assert duration_ms(text) == ms


@given(NOWS, durations(), st.sampled_from(["in {}", "{} from now", "now + {}", "+{}"]))
def test_a_time_may_be_a_span_from_now(now: datetime, written: tuple[str, int], form: str) -> None:
    """Or before it."""
    text, ms = written
    assert instant(form.format(text), now) == now + timedelta(milliseconds=ms)
    assert instant(f"{text} ago", now) == now - timedelta(milliseconds=ms) == instant(f"now - {text}", now)


@given(st.data(), NOWS, times_of_day(), st.sampled_from(ZONES))
def test_a_day_and_a_time_of_day_are_read_in_every_spelling(
    data: st.DataObject, now: datetime, spelled: tuple[str, time], zone: str
) -> None:
    """In UTC, and in a zone by its rules."""
    where = ZoneInfo(zone or "UTC")
    at_text, at = spelled
    day_text, day = data.draw(days(now.astimezone(where).replace(tzinfo=None), at))
    wall = datetime.combine(day, at, where)
    assume(wall.astimezone(UTC).astimezone(where).replace(tzinfo=None) == wall.replace(tzinfo=None))
    assume(wall.utcoffset() == wall.replace(fold=1).utcoffset())
    orders = [f"{day_text} {at_text}", f"{day_text} at {at_text}", f"{at_text} {day_text}", f"{at_text} on {day_text}"]
    orders = orders if at_text else [day_text]
    text = data.draw(st.sampled_from([each for each in orders if " on on " not in each.lower()]))
    assert instant(f"{text} {zone}".strip(), now) == wall.astimezone(UTC), text


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("tonight", "2026-11-27T20:00"),
        ("tonight at 8", "2026-11-27T20:00"),
        ("tonight 22:30", "2026-11-27T22:30"),
        ("tonight Europe/Rome", "2026-11-27T19:00"),
        ("monday 9am", "2026-11-30T09:00"),
        ("friday 9am", "2026-12-04T09:00"),
        ("friday 17:00", "2026-11-27T17:00"),
        ("next friday 17:00", "2026-12-04T17:00"),
        ("last friday", "2026-11-20T00:00"),
        ("31 January", "2027-01-31T00:00"),
        ("Dec 24th 6pm", "2026-12-24T18:00"),
        ("2026-12-24 6pm", "2026-12-24T18:00"),
        ("tomorrow, 9:15", "2026-11-28T09:15"),
    ],
)
def test_what_people_write_is_what_they_mean(text: str, iso: str) -> None:
    """It is a Friday, half past three in the afternoon."""
    now = datetime(2026, 11, 27, 15, 30, tzinfo=UTC)
    assert instant(text, now) == datetime.fromisoformat(f"{iso}+00:00")
    assert time(20) == TONIGHT


WORDS = st.sampled_from(
    [
        *WEEKDAYS,
        *MONTHS[:3],
        "next",
        "last",
        "in",
        "at",
        "on",
        "noon",
        "9am",
        "17:00",
        "25:00",
        "5",
        "minutes",
        "ago",
        "now",
    ]
)


@given(st.lists(WORDS | st.text(max_size=3), max_size=5).map(" ".join), NOWS)
def test_what_is_not_understood_is_an_error_that_shows_what_is(text: str, now: datetime) -> None:
    """Never a trace, and never a silent guess at a form."""
    try:
        assert instant(text, now).tzinfo is UTC
    except BadText as refused:
        says = refused.allowed
    else:
        says = TIMES
    assert "a time" in says or "a duration" in says
    for form in ("tomorrow 9am", "monday 9am", "next friday 17:00", "tonight", "in 5 minutes"):
        assert form in TIMES
