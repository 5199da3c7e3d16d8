"""Local time against a model that looks at a clock of the zone every few minutes, over each kind of change."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.localtime import Fold, Gap, Shown, instants, local_time, shown
from state.units import Ms

MINUTE, DAY = 60_000, 86_400_000
YEAR_2038 = Ms(2_145_916_800_000)
HARD = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Antarctica/Troll", "2026-03-29"),
    ("Pacific/Apia", "2011-12-30"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2026-03-22"),
    ("Europe/Dublin", "2026-10-25"),
    ("Africa/Cairo", "2026-04-24"),
    ("Asia/Pyongyang", "2018-05-05"),
    ("America/Caracas", "2016-05-01"),
    ("Pacific/Kwajalein", "1993-08-21"),
]
ZONES = sorted(name for name in available_timezones() if "/" in name and not name.startswith(("posix", "right")))
zones = st.sampled_from(ZONES).map(ZoneInfo)
times = st.integers(5 * DAY, YEAR_2038).map(Ms)


def utc_ms(text: str) -> int:
    """An instant, in ms, of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


class Clock:
    """All that a clock on the wall of a zone shows, looked at again and again."""

    def __init__(self, zone: ZoneInfo, begin: int, end: int, step: int) -> None:
        self.instants = list(range(begin, end, step))
        self.shows = [local_time(Ms(at), zone) for at in self.instants]

    def at(self, local: datetime) -> list[int]:
        """When it shows a time."""
        return [at for at, seen in zip(self.instants, self.shows, strict=True) if seen == local]

    def before(self, local: datetime) -> int:
        """How many looks it takes until it shows a later time, when it does not show this one."""
        return bisect_right(self.shows, local)


@pytest.mark.parametrize(("zone", "day"), HARD)
def test_each_local_time_around_a_hard_change_is_that_of_a_clock(zone: str, day: str) -> None:
    """Every five minutes of two days: clocks may be changed by any amount, at any time of day."""
    of, middle, step = ZoneInfo(zone), utc_ms(day), 5 * MINUTE
    clock = Clock(of, middle - 2 * DAY, middle + 3 * DAY, step)
    times_of: dict[datetime, list[int]] = {}
    for at, seen in zip(clock.instants, clock.shows, strict=True):
        times_of.setdefault(seen, []).append(at)
    local = datetime.fromisoformat(day) - timedelta(days=1)
    changed = set()
    for _ in range(2 * DAY // step):
        found = times_of.get(local, [])
        changed.add(shown(local, of))
        assert list(instants(local, of, Gap.SKIP, Fold.BOTH)) == found
        assert list(instants(local, of, Gap.SKIP, Fold.FIRST)) == found[:1]
        if not found:
            later = clock.before(local)
            assert instants(local, of, Gap.AFTER, Fold.FIRST) == (clock.instants[later],)
            last = clock.instants[later - 1] + (local - clock.shows[later - 1]) // timedelta(milliseconds=1)
            assert instants(local, of, Gap.SHIFTED, Fold.FIRST) == (last,)
        local += timedelta(milliseconds=step)
    assert changed & {Shown.SKIPPED, Shown.TWICE}


@cache
def changes(zone: ZoneInfo) -> list[int]:
    """Instants until 2038 in the minute before which a zone changes its clocks, but for some that are soon undone."""
    found, step = [], 60 * DAY
    for at in range(5 * DAY, YEAR_2038, step):
        before, after = at, at + step
        if _offset(before, zone) == _offset(after, zone):
            continue
        while before + MINUTE < after:
            middle = (before + after) // 2
            before, after = (middle, after) if _offset(middle, zone) == _offset(at, zone) else (before, middle)
        found.append(after)
    return found


def _offset(at: int, zone: ZoneInfo) -> timedelta:
    return local_time(Ms(at), zone) - datetime.fromtimestamp(at / 1_000, UTC).replace(tzinfo=None)


@given(zones, times, st.data())
def test_what_a_clock_shows_at_an_instant_has_that_instant_in_every_zone(
    zone: ZoneInfo, at: Ms, data: st.DataObject
) -> None:
    """And near each change of clocks: an instant and its local time belong together."""
    near = changes(zone)
    if near and at % 2:
        at = Ms(data.draw(st.sampled_from(near)) + data.draw(st.integers(-DAY, DAY)))
    local = local_time(at, zone)
    found = instants(local, zone, Gap.SKIP, Fold.BOTH)
    assert at in found
    assert len(found) == (2 if shown(local, zone) is Shown.TWICE else 1)
    assert [local_time(each, zone) for each in found] == [local] * len(found)


@given(zones, times, st.integers(0, 2 * DAY), st.integers(0, 2 * DAY), st.data())
def test_later_local_times_have_no_earlier_instants(
    zone: ZoneInfo, at: Ms, ahead: int, span: int, data: st.DataObject
) -> None:
    """But those that are shifted: whoever goes through local times in order meets their first instants in order."""
    near = changes(zone)
    begin = data.draw(st.sampled_from(near)) if near else at
    local = local_time(Ms(begin), zone) + timedelta(milliseconds=ahead - DAY)
    later = local + timedelta(milliseconds=span)
    first, second = (instants(each, zone, Gap.AFTER, Fold.FIRST) for each in (local, later))
    assert first <= second
