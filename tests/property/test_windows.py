"""Windows against a model that steps minute by minute and looks at a clock on the wall, over changes of clocks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from state import trim_up
from state.windows import DAYS, Window, place_hashes

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
EPOCH = datetime.fromtimestamp(0, UTC)
DAY_MINUTES = 24 * 60
# Instants at which clocks change: by an hour, by half an hour, by a day, for the month of Ramadan, at other minutes.
HARD = {
    "Europe/Rome": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),
    "Pacific/Apia": ("2011-12-30T10:00", "2011-04-02T14:00"),
    "Africa/Casablanca": ("2026-02-15T02:00", "2026-03-22T02:00"),
    "America/St_Johns": ("2011-03-13T03:31", "2011-11-06T02:31"),
    "Asia/Kathmandu": ("2026-01-01T00:00",),
    "UTC": ("1970-01-01T00:00", "2099-12-31T00:00"),
}
places = st.sampled_from([(name, at) for name, ats in HARD.items() for at in ats])
clock = st.integers(0, DAY_MINUTES // 15 - 1).map(lambda quarter: quarter * 15)


@dataclass(frozen=True)
class Rule:
    """Days by number, and spans of minutes of the day: one that ends before it starts ends on the next day."""

    days: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def text(self) -> str:
        """As a policy has it."""
        days = ",".join(DAYS[day] for day in self.days)
        return f"{days} {', '.join(f'{_text(first)}-{_text(end)}' for first, end in self.spans)}".strip()

    def has(self, shown: datetime) -> bool:
        """Whether a clock that shows a time is inside."""
        minute, days = shown.hour * 60 + shown.minute, self.days or range(7)
        for first, end in self.spans:
            if first < end and shown.weekday() in days and first <= minute < end:
                return True
            if first > end and shown.weekday() in days and minute >= first:
                return True
            if first > end and (shown.weekday() - 1) % 7 in days and minute < end:
                return True
        return False


def _text(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


spans = st.tuples(clock, clock | st.just(DAY_MINUTES)).filter(lambda span: span[0] != span[1])
rules = st.lists(
    st.builds(
        Rule,
        st.lists(st.integers(0, 6), max_size=3, unique=True).map(tuple),
        st.lists(spans, min_size=1, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=2,
)


def near(at: str, minutes: int, ms: int) -> int:
    """An instant some minutes from another one."""
    begin = datetime.fromisoformat(at).replace(tzinfo=UTC)
    return max(0, (begin - EPOCH) // timedelta(milliseconds=1) + minutes * MINUTE + ms)


def inside(rules: Sequence[Rule], zone: ZoneInfo, at: int, closed: Collection[date] = ()) -> bool:
    """Whether a clock on the wall shows a time of the window, on a day that is not closed."""
    shown = (EPOCH + timedelta(milliseconds=at)).astimezone(zone)
    return shown.date() not in closed and any(rule.has(shown) for rule in rules)


def slowly(rules: Sequence[Rule], zone: ZoneInfo, at: int, closed: Collection[date] = ()) -> int:
    """When a message comes: a minute after the other is looked at."""
    if inside(rules, zone, at, closed):
        return at
    then = at - at % MINUTE + MINUTE
    while not inside(rules, zone, then, closed):
        then += MINUTE
    return then


def minutes_inside(rules: Sequence[Rule], zone: ZoneInfo, at: int, most: int) -> int:
    """How many minutes the opening around an instant has, up to some more than `most`."""
    first = last = at - at % MINUTE
    while last - first <= most * MINUTE and inside(rules, zone, first - MINUTE):
        first -= MINUTE
    while last - first <= most * MINUTE and inside(rules, zone, last + MINUTE):
        last += MINUTE
    return (last - first) // MINUTE + 1


def window(rules: Sequence[Rule]) -> Window:
    """The same from its text."""
    return Window.of_text("; ".join(rule.text for rule in rules))


@given(
    rules, places, st.lists(st.tuples(st.integers(-3_000, 3_000), st.integers(0, MINUTE - 1)), min_size=1, max_size=4)
)
def test_what_is_due_outside_comes_when_the_clock_on_the_wall_shows_an_opening(
    drawn: list[Rule], place: tuple[str, str], moments: list[tuple[int, int]]
) -> None:
    """Of a time that is skipped, that comes twice, and of a day that was not."""
    name, at = place
    zone, times = ZoneInfo(name), np.array([near(at, *each) for each in moments])
    found = window(drawn).put_off(times, zone, np.zeros(len(times), np.int64))
    assert found.tolist() == [slowly(drawn, zone, each) for each in times.tolist()]


@given(rules, places, st.integers(-3_000, 3_000), st.sets(st.integers(-3, 5), min_size=1))
def test_on_a_day_that_is_closed_nothing_comes(
    drawn: list[Rule], place: tuple[str, str], minutes: int, days: set[int]
) -> None:
    """By the clock on the wall, over several days that follow each other, too; what is inside stays."""
    name, at = place
    zone, asked = ZoneInfo(name), near(at, minutes, 0)
    today = (EPOCH + timedelta(milliseconds=asked)).astimezone(zone).date()
    closed = frozenset(today + timedelta(days=each) for each in days if today.toordinal() + each > 0)
    found = replace(window(drawn), closed=closed).put_off(np.array([asked]), zone, np.zeros(1, np.int64))
    assert found.tolist() == [slowly(drawn, zone, asked, closed)]


@given(rules, places, st.integers(-3_000, 3_000), st.integers(0, DAY), st.integers(0, 26), st.integers(0, 999))
def test_no_bucket_and_no_spread_leads_out_of_a_window(
    drawn: list[Rule], place: tuple[str, str], minutes: int, spread: int, bits: int, entry: int
) -> None:
    """A release comes at the end of a bucket, and a window may be shorter than the spread."""
    name, at = place
    zone, times = ZoneInfo(name), np.array([near(at, minutes, 0)])
    hashes = place_hashes(np.array([7]), np.array([entry]))
    (found,) = window(drawn).put_off(times, zone, hashes, spread, bits).tolist()
    assert found >= times[0]
    assert inside(drawn, zone, found)
    assert window(drawn).put_off(np.array([found]), zone, hashes, spread, bits).tolist() == [found]
    # An opening may be shorter than a bucket: then that counts for nothing.
    released, wide = int(trim_up(np.array([found]), bits)[0]), (1 << bits) // MINUTE
    assert inside(drawn, zone, released) or minutes_inside(drawn, zone, found, wide) <= wide
    (asked,) = times.tolist()
    if inside(drawn, zone, asked) and minutes_inside(drawn, zone, asked, wide) < wide:
        assert found == asked


@given(rules, places, st.integers(-3_000, 3_000), st.integers(0, MINUTE - 1))
def test_the_opening_of_an_instant_is_what_the_clock_on_the_wall_shows(
    drawn: list[Rule], place: tuple[str, str], minutes: int, ms: int
) -> None:
    """It is open from its first instant to its last, and closed around it, and an instant outside has the next one."""
    name, at = place
    zone, asked = ZoneInfo(name), near(at, minutes, ms)
    begin, end = window(drawn).opening(zone, asked)
    assert max(asked, begin) == slowly(drawn, zone, asked)
    assert inside(drawn, zone, end - 1)
    if end - begin < 8 * DAY:
        assert not inside(drawn, zone, end)
        assert begin == 0 or not inside(drawn, zone, begin - 1)
        assert window(drawn).opening(zone, end)[0] > end
