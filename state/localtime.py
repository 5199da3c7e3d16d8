"""Local time of a zone: what a clock on the wall shows at an instant, and at which instants it shows a time.

When clocks are put forward, some local times are skipped: they are in a gap. When they are put back, some come twice:
they are in a fold. Whoever turns a local time into an instant says what is to become of both, by a `Gap` and a `Fold`.

A zone is an argument, so nothing here reads its rules. Local times are `datetime` without a zone, and instants are
integers, milliseconds since the epoch, UTC. A local time may have a part of a millisecond; an instant that is made of
it is rounded up, so that nothing is early.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache

from state.buckets import MAX_TIME, check_range
from state.errors import InvalidArgument
from state.units import Ms

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - it is a local time, too
_MS, _SECOND = timedelta(milliseconds=1), timedelta(seconds=1)
_LONGEST_OFFSET = timedelta(hours=24)
FIRST_LOCAL, LAST_LOCAL = _EPOCH + _LONGEST_OFFSET, _EPOCH + MAX_TIME * _MS - _LONGEST_OFFSET
"""The first and the last local time whose instants are within the range of instants, in each zone."""


class Gap(StrEnum):
    """Which instant a local time has that is skipped, because clocks are put forward over it."""

    AFTER = "after"
    """The first instant after the gap: 02:30 of a gap from 02:00 to 03:00 is 03:00."""
    SKIP = "skip"
    """None."""
    SHIFTED = "shifted"
    """The one that it would have if clocks were not put forward: 02:30 of a gap from 02:00 to 03:00 is 03:30."""


class Fold(StrEnum):
    """Which instants a local time has that comes twice, because clocks are put back."""

    FIRST = "first"
    """The earlier one."""
    BOTH = "both"
    """Both."""


class Shown(StrEnum):
    """How often the clocks of a zone show a local time."""

    ONCE = "once"
    SKIPPED = "skipped"
    TWICE = "twice"


def local_time(at: Ms, zone: tzinfo) -> datetime:
    """What clocks of a zone show at an instant, without a zone.

    Raises:
        OutOfRange: the instant is before 1970, or within a day of the end of the year 9999.
    """
    check_range("at", at, 0, (LAST_LOCAL - _EPOCH) // _MS)
    return _utc(at).astimezone(zone).replace(tzinfo=None, fold=0)


def offset_s(at: Ms, zone: tzinfo) -> int:
    """How far the clocks of a zone are ahead of UTC at an instant, in seconds; negative: behind.

    Raises:
        OutOfRange: as for `local_time`.
    """
    return (local_time(at, zone) - _EPOCH - at * _MS) // _SECOND


def shown(local: datetime, zone: tzinfo) -> Shown:
    """How often the clocks of a zone show a local time.

    Raises:
        InvalidArgument: as for `instants`.
    """
    return placed(local, zone, Gap.SKIP, Fold.FIRST)[0]


def instants(local: datetime, zone: tzinfo, gap: Gap, fold: Fold) -> tuple[Ms, ...]:
    """The instants of a local time in a zone, the earlier one first: none, one or two.

    Args:
        local: the local time, without a zone; its own `fold` is not looked at.
        zone: the zone.
        gap: what becomes of a time that is skipped.
        fold: what becomes of a time that comes twice.

    Raises:
        InvalidArgument: the time has a zone, or is before `FIRST_LOCAL` or after `LAST_LOCAL`.
    """
    return placed(local, zone, gap, fold)[1]


def placed(local: datetime, zone: tzinfo, gap: Gap, fold: Fold) -> tuple[Shown, tuple[Ms, ...]]:
    """How often the clocks of a zone show a local time, and its instants; all else is as for `instants`."""
    if local.tzinfo is None and FIRST_LOCAL <= local <= LAST_LOCAL:
        offset = _steady_offset(zone, local.toordinal())
        if offset is not None:
            return Shown.ONCE, (_ms(local - offset),)
    early, late = _both(local, zone)
    if early == late:
        return Shown.ONCE, (_ms(early),)
    if early < late:
        return Shown.TWICE, (_ms(early), _ms(late)) if fold is Fold.BOTH else (_ms(early),)
    if gap is Gap.SKIP:
        return Shown.SKIPPED, ()
    return Shown.SKIPPED, (_ms(early) if gap is Gap.SHIFTED else _end_of_gap(local, zone, late, early),)


def _both(local: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """A local time in UTC, by the offset before the nearest change of clocks and by that after it, without a zone.

    They are equal but in a gap, where the first is later, and in a fold, where it is earlier (PEP 495).
    """
    if local.tzinfo is not None:
        raise InvalidArgument("local", local.isoformat(), "a time without a zone")
    if not FIRST_LOCAL <= local <= LAST_LOCAL:
        raise InvalidArgument("local", local.isoformat(), f"{FIRST_LOCAL.isoformat()} to {LAST_LOCAL.isoformat()}")
    first, second = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    if first is None or second is None:
        raise InvalidArgument("zone", str(zone), "a zone that knows its offset from UTC")
    return local - first, local - second


@lru_cache(1 << 16)
def _steady_offset(zone: tzinfo, day: int) -> timedelta | None:
    """The offset of a local day (its ordinal) on which clocks do not change; None: they do, or it is not known.

    It is asked on the days around it: no zone has had an offset for less than a day.
    """
    midnight = datetime.fromordinal(day)
    if not FIRST_LOCAL < midnight < LAST_LOCAL - 3 * _LONGEST_OFFSET:
        return None
    days = (midnight + timedelta(days=each) for each in range(-1, 3))
    found = {each.replace(tzinfo=zone, fold=fold).utcoffset() for each in days for fold in (0, 1)}
    return found.pop() if len(found) == 1 else None


def _end_of_gap(local: datetime, zone: tzinfo, low: datetime, high: datetime) -> Ms:
    """The first instant whose local time is after one that is skipped. Clocks are put forward between the two bounds.

    Clocks change at whole seconds, so a search by halves takes 17 steps for the longest gap that there was, a day.
    """
    before, after = (low - _EPOCH) // _SECOND, -((_EPOCH - high) // _SECOND)
    while before + 1 < after:
        middle = (before + after) // 2
        if local_time(Ms(middle * 1_000), zone) > local:
            after = middle
        else:
            before = middle
    return Ms(after * 1_000)


def _utc(at: Ms) -> datetime:
    return _EPOCH.replace(tzinfo=UTC) + at * _MS


def _ms(utc: datetime) -> Ms:
    """An instant in ms, rounded up."""
    return Ms(-((_EPOCH - utc) // _MS))
