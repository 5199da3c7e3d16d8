"""Recurrence against models that step through real time minute by minute, over changes of clocks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from state.localtime import Fold, Gap, local_time
from state.recurrence import Recurrence
from state.units import Ms

MINUTE, DAY = 60_000, 86_400_000
CHANGES = {
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),
    "Pacific/Apia": ("2011-12-30", "2012-04-01"),
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),
    "UTC": ("2026-12-31", "2028-02-29"),
}
places = st.sampled_from([(zone, day) for zone, days in CHANGES.items() for day in days])
gaps, folds = st.sampled_from([None, Gap.AFTER, Gap.SKIP]), st.sampled_from([None, *Fold])


def numbers(low: int, high: int) -> st.SearchStrategy[list[int]]:
    """A few numbers of a range."""
    return st.lists(st.integers(low, high), min_size=1, max_size=3, unique=True)


class Minutes:
    """Some days of a zone, minute by minute: the instants, and what clocks show."""

    def __init__(self, zone: ZoneInfo, day: str) -> None:
        """From a day before a day until two days after it begins, in UTC."""
        middle = int(datetime.fromisoformat(day + "T00:00Z").timestamp() * 1_000)
        self.instants = list(range(middle - DAY, middle + 2 * DAY, MINUTE))
        self.shows = [local_time(Ms(at), zone) for at in self.instants]
        self._seen = defaultdict[datetime, list[int]](list)
        for at, seen in zip(self.instants, self.shows, strict=True):
            self._seen[seen].append(at)

    def of(self, local: datetime, gap: Gap, fold: Fold) -> list[int]:
        """The instants of a local time, as one finds them by looking at the clocks again and again."""
        found = self._seen.get(local, [])
        if not found and gap is Gap.AFTER:
            return [next(at for at, seen in zip(self.instants, self.shows, strict=True) if seen > local)]
        return found if fold is Fold.BOTH else found[:1]


@cache
def around(zone: str, day: str) -> Minutes:
    """The minutes of a place, looked at once."""
    return Minutes(ZoneInfo(zone), day)


def found_by(recurrence: Recurrence, minutes: Minutes) -> list[int]:
    """What the core says of the time that the model has looked at."""
    first, last = minutes.instants[0], minutes.instants[-1]
    return [each.at for each in takewhile(lambda each: each.at <= last, recurrence.after(Ms(first - 1)))]


@dataclass(frozen=True)
class Fields:
    """Minutes and hours of an expression of cron; none: a star."""

    minutes: list[int] | None
    hours: list[int] | None

    @property
    def text(self) -> str:
        """The expression."""
        return " ".join(
            [*("*" if each is None else ",".join(map(str, each)) for each in (self.minutes, self.hours)), "* * *"]
        )

    def match(self, local: datetime) -> bool:
        """Whether it names a local time."""
        return (self.minutes is None or local.minute in self.minutes) and (
            self.hours is None or local.hour in self.hours
        )


def debian(fields: Fields, minutes: Minutes, gap: Gap | None, fold: Fold | None) -> list[int]:
    """What a cron does that looks at the clock each minute, as Debian's does; or as it is told to.

    It remembers the latest time that it has seen on the clock. What lies between that and the present was skipped; what
    is not later was there before.
    """
    is_fixed = fields.minutes is not None and fields.hours is not None
    after = gap is Gap.AFTER or (gap is None and is_fixed)
    again = fold is Fold.BOTH or (fold is None and not is_fixed)
    ran, latest = list[int](), minutes.shows[0] - timedelta(minutes=1)
    for at, seen in zip(minutes.instants, minutes.shows, strict=True):
        skipped = [latest + timedelta(minutes=each) for each in range(1, (seen - latest) // timedelta(minutes=1))]
        is_new = seen > latest
        if (fields.match(seen) and (is_new or again)) or (after and any(map(fields.match, skipped))):
            ran.append(at)
        latest = max(latest, seen)
    return ran


@given(places, st.one_of(st.none(), numbers(0, 59)), st.one_of(st.none(), numbers(0, 3), numbers(0, 23)), gaps, folds)
def test_cron_runs_when_a_cron_that_looks_at_the_clock_each_minute_does(
    place: tuple[str, str], minutes: list[int] | None, hours: list[int] | None, gap: Gap | None, fold: Fold | None
) -> None:
    """By default as Debian's cron, and as each override says."""
    zone, fields = ZoneInfo(place[0]), Fields(minutes, hours)
    recurrence = Recurrence(cron=fields.text, zone=zone, on_gap=gap, on_fold=fold)
    looked = around(*place)
    assert found_by(recurrence, looked) == debian(fields, looked, gap, fold)


@given(
    places,
    st.sampled_from(["DAILY", "HOURLY"]),
    st.integers(1, 3),
    numbers(0, 23),
    numbers(0, 59),
    gaps,
    folds,
    st.data(),
)
def test_a_rule_comes_when_its_local_times_do(
    place: tuple[str, str],
    frequency: str,
    interval: int,
    hours: list[int],
    minutes: list[int],
    gap: Gap | None,
    fold: Fold | None,
    data: st.DataObject,
) -> None:
    """By default as RFC 5545 says: what is skipped is neither there nor counted; of two the first."""
    zone = ZoneInfo(place[0])
    looked = around(*place)
    start = data.draw(st.integers(0, len(looked.instants) // 2), label="minute of the start")
    count = data.draw(st.one_of(st.none(), st.integers(1, 5)), label="count")
    begun, last = looked.shows[start], looked.shows[-1]
    # A start that clocks show twice is the first of the two, by what it begins with.
    start = looked.shows.index(begun)
    every = (begun + timedelta(minutes=each) for each in range((last - begun) // timedelta(minutes=1) + 1))
    if frequency == "DAILY":
        named = [each for each in every if (each.date() - begun.date()).days % interval == 0 and each.hour in hours]
        by = f";BYHOUR={','.join(map(str, hours))}"
    else:
        hour = begun.replace(minute=0)
        named = [each for each in every if (each.replace(minute=0) - hour) // timedelta(hours=1) % interval == 0]
        by = ""
    named = [each for each in named if each.minute in minutes]
    found = [looked.of(each, gap or Gap.SKIP, fold or Fold.FIRST) for each in named]
    counted = [each for each in found if each][: count or len(found)]
    expected = sorted({at for each in counted for at in each if at >= looked.instants[start]})
    text = f"FREQ={frequency};INTERVAL={interval};BYMINUTE={','.join(map(str, minutes))}{by}"
    rule = Recurrence(
        rrule=text + (f";COUNT={count}" if count else ""),
        zone=zone,
        start=Ms(looked.instants[start]),
        on_gap=gap,
        on_fold=fold,
    )
    shown = found_by(rule, looked)
    assert shown == [each for each in expected if each <= looked.instants[-1]]


@given(
    places, st.sampled_from(["*/17 * * * *", "30 2 * * *", "15,45 1,2 * * 0", "0 0 29 2 *"]), st.integers(0, 3 * DAY)
)
def test_what_comes_next_does_not_depend_on_since_when_one_asks(place: tuple[str, str], cron: str, later: int) -> None:
    """A plan goes on where the last one ended, wherever that was."""
    middle = int(datetime.fromisoformat(place[1] + "T00:00Z").timestamp() * 1_000)
    recurrence = Recurrence(cron=cron, zone=ZoneInfo(place[0]))
    end = Ms(middle + 2 * DAY)
    every = list(takewhile(lambda each: each.at <= end, recurrence.after(Ms(middle - DAY))))
    since = Ms(middle - DAY + later)
    assert [each for each in every if each.at > since] == list(
        takewhile(lambda each: each.at <= end, recurrence.after(since))
    )
