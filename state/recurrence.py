"""When something recurs: cron, a recurrence rule or a span, in a zone, with days off; and by which rules.

A notation gives local times. They are moved by days off, and turned into instants, by what is to become of a time that
clocks skip (`Gap`) or show twice (`Fold`). If nothing is said the notation's own rule counts:

- cron, as Debian's cron does it: what has a fixed time of day and is skipped comes right after the gap, and what is
  there twice comes once. What has a star for its minute or its hour runs through: it comes whenever clocks show the
  time, so not in a gap, and twice in a fold.
- RRULE, as RFC 5545 says it: an instance that is skipped is left out and not counted; of two the first counts.
- A span counts real time, and knows no local times.

Two times that fall on one instant are one. All of it is a function of its arguments: no clock, no files.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from hashlib import blake2b
from itertools import count, groupby, islice, takewhile

from state.buckets import MAX_TIME, check_range
from state.cron import Cron
from state.errors import InvalidArgument
from state.localtime import FIRST_LOCAL, LAST_LOCAL, Fold, Gap, Shown, instants, local_time, placed, shown
from state.rrule import RRule
from state.units import Ms

DAY_MS = 86_400_000
SHORTEST_MS = 1_000
"""The shortest span."""
MOST = 1_000_000
"""The largest limit: to know how many came before, all of them are gone through."""
_NOTATIONS = ("cron", "rrule", "every_ms")


class DayOff(StrEnum):
    """What becomes of an occurrence on a day off."""

    SKIP = "skip"
    """It is left out."""
    NEXT = "next"
    """It comes at the same local time of the next day that is not off."""
    PREVIOUS = "previous"
    """It comes at the same local time of the last day before that is not off."""


class Applied(StrEnum):
    """A rule by which an occurrence is not simply at the local time of its notation."""

    GAP_AFTER = "gap_after"
    FOLD_FIRST = "fold_first"
    FOLD_BOTH = "fold_both"
    DAY_OFF_NEXT = "day_off_next"
    DAY_OFF_PREVIOUS = "day_off_previous"


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """A time at which something recurs.

    Attributes:
        at: the instant.
        nominal: the local time that the notation says.
        rules: why it is not that time, or which of two it is.
    """

    at: Ms
    nominal: datetime
    rules: tuple[Applied, ...] = ()


_Placed = tuple[tuple[Ms, ...], datetime, tuple[Applied, ...]]


@dataclass(frozen=True)
class Recurrence:
    """When something recurs.

    Attributes:
        cron: five fields, or six with the second first.
        rrule: a rule of RFC 5545; it begins at `start`, which it needs.
        every_ms: or a span of real time, counted from `start`, or from 1970.
        zone: whose local times they are.
        start: nothing comes before.
        until: nothing comes after.
        limit: so many come, counted from `start`, which it needs.
        jitter_ms: each is due up to so much later, by a hash of who it is.
        days_off: local days.
        on_day_off: what becomes of what falls on one.
        on_gap: what becomes of a local time that is skipped; None: what the notation says. `shifted` is not for this.
        on_fold: what becomes of one that comes twice; None: what the notation says.

    Raises:
        InvalidArgument: not one of the three notations; one cannot be read; what it needs is missing; `until` is before
            `start`; a span that is to be moved by days off.
        OutOfRange: a number.
    """

    cron: str | None = None
    rrule: str | None = None
    every_ms: int | None = None
    zone: tzinfo = UTC
    start: Ms | None = None
    until: Ms | None = None
    limit: int | None = None
    jitter_ms: int = 0
    days_off: frozenset[date] = frozenset()
    on_day_off: DayOff = DayOff.SKIP
    on_gap: Gap | None = None
    on_fold: Fold | None = None
    _notation: Cron | RRule | int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        given = [name for name in _NOTATIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidArgument("cron, rrule, every_ms", ", ".join(given) or None, "exactly one of them")
        _check_numbers(self)
        if self.start is None and (self.rrule is not None or self.limit is not None):
            raise InvalidArgument("start", None, f"a time: {'rrule' if self.limit is None else 'limit'} counts from it")
        if self.start is not None and self.until is not None and self.until < self.start:
            raise InvalidArgument("until", self.until, f"{self.start} or later: it is not before start (ms UTC)")
        if self.on_gap is Gap.SHIFTED:
            raise InvalidArgument("on_gap", self.on_gap.value, "after, skip")
        if self.every_ms is not None and self.on_day_off is not DayOff.SKIP:
            raise InvalidArgument("on_day_off", self.on_day_off.value, "skip, beside every_ms")
        object.__setattr__(self, "_notation", self._read())

    def _read(self) -> Cron | RRule | int:
        if self.cron is not None:
            return Cron(self.cron)
        return RRule(self.rrule) if self.rrule is not None else self.every_ms or SHORTEST_MS

    @property
    def gap(self) -> Gap:
        """What becomes of a local time that is skipped."""
        is_fixed = isinstance(self._notation, Cron) and self._notation.is_fixed
        return self.on_gap or (Gap.AFTER if is_fixed else Gap.SKIP)

    @property
    def fold(self) -> Fold:
        """What becomes of a local time that comes twice."""
        runs_through = isinstance(self._notation, Cron) and not self._notation.is_fixed
        return self.on_fold or (Fold.BOTH if runs_through else Fold.FIRST)

    def check_comes(self, since: int = 0) -> None:
        """Refuse what never comes, from an instant on.

        Raises:
            InvalidArgument: there is not one occurrence.
        """
        if self.until is not None and self.until < since:
            raise InvalidArgument("until", self.until, f"{since} or later: it is not over yet (ms UTC)")
        if next(self.after(Ms(since - 1)), None) is None:
            name = next(each for each in _NOTATIONS if getattr(self, each) is not None)
            raise InvalidArgument(name, getattr(self, name), "what comes at least once from now on, within 50 years")

    def after(self, at: Ms) -> Iterator[Occurrence]:
        """The occurrences later than an instant, in order.

        The first costs the same whenever it is, but with a limit or a `COUNT`: then all before it are gone through.
        """
        begin = Ms(max(at, 0 if self.start is None else self.start - 1))
        found = self._since(begin) if self.limit is None else islice(self._since(Ms((self.start or 0) - 1)), self.limit)
        last = MAX_TIME if self.until is None else self.until
        return (each for each in takewhile(lambda each: each.at <= last, found) if each.at > begin)

    def due(self, name: str, at: Ms) -> Ms:
        """When the occurrence of something with a name is due: the jitter later, which is the same each time."""
        if not self.jitter_ms:
            return at
        digest = blake2b(f"{at}:{name}".encode(errors="surrogateescape"), digest_size=8).digest()
        return Ms(at + int.from_bytes(digest, "big") % (self.jitter_ms + 1))

    def _since(self, begin: Ms) -> Iterator[Occurrence]:
        """The occurrences later than an instant, and perhaps some before, whatever `limit` and `until` say."""
        if isinstance(self._notation, int):
            return self._spans(self._notation, begin)
        last = self._last_of_rule()
        return takewhile(lambda each: each.at <= last, self._projected(self._moved(self._times(begin))))

    def _spans(self, span: int, begin: Ms) -> Iterator[Occurrence]:
        start = self.start or 0
        for number in count(max(0, (begin - start) // span)):
            at = Ms(start + number * span)
            if at > _LAST_SHOWN:
                return
            local = local_time(at, self.zone)
            if local.date() not in self.days_off:
                yield Occurrence(at, local)

    def _times(self, begin: Ms) -> Iterator[datetime]:
        """The local times of the notation that may have an instant after one."""
        first = FIRST_LOCAL if self.start is None else self._local(self.start)
        near = max(first, self._earliest(begin))
        if not isinstance(self._notation, RRule):
            return self._notation.times(near) if isinstance(self._notation, Cron) else iter(())
        if self._notation.count is None:
            return self._notation.times(first, near)
        counted = (each for each in self._notation.times(first, first) if self._counts(each))
        return islice(counted, self._notation.count)

    def _counts(self, local: datetime) -> bool:
        """Whether an instance is counted: the RFC does not count what clocks skip."""
        return self.gap is not Gap.SKIP or local > LAST_LOCAL or shown(local, self.zone) is not Shown.SKIPPED

    def _local(self, at: Ms) -> datetime:
        return max(FIRST_LOCAL, local_time(Ms(min(max(at, 0), _LAST_SHOWN)), self.zone))

    def _earliest(self, begin: Ms) -> datetime:
        """No local time before it has an instant after one: clocks may be put back within a day, days off move ahead.

        A day is the most by which clocks were ever put back.
        """
        later = self._local(Ms(begin + DAY_MS)) - timedelta(days=1)
        local = max(FIRST_LOCAL, min(self._local(begin), later))
        if self.on_day_off is DayOff.NEXT:
            while (before := local.date() - timedelta(days=1)) in self.days_off:
                local = datetime.combine(before, time())
        return local

    def _last_of_rule(self) -> int:
        """The last instant that a rule itself allows."""
        until = self._notation.until if isinstance(self._notation, RRule) else None
        if until is None:
            return MAX_TIME
        if until.tzinfo is not None:
            return (until - _EPOCH) // timedelta(milliseconds=1)
        return instants(min(max(until, FIRST_LOCAL), LAST_LOCAL), self.zone, Gap.AFTER, Fold.BOTH)[-1]

    def _moved(self, times: Iterator[datetime]) -> Iterator[tuple[datetime, datetime]]:
        """Local times on days that are not off, in order, each with the one that the notation says."""
        if not self.days_off:
            yield from ((each, each) for each in times)
        elif self.on_day_off is DayOff.SKIP:
            yield from ((each, each) for each in times if each.date() not in self.days_off)
        else:
            # Days are moved in order; what meets on one day is not.
            for day, of_day in groupby(times, lambda each: self._working_day(each.date())):
                found = {datetime.combine(day, each.time()): each for each in of_day if day > date.min}
                yield from sorted(found.items())

    def _working_day(self, day: date) -> date:
        step = timedelta(days=1 if self.on_day_off is DayOff.NEXT else -1)
        while day in self.days_off:
            day += step
        return day

    def _projected(self, times: Iterator[tuple[datetime, datetime]]) -> Iterator[Occurrence]:
        """The occurrences of local times in order: the second pass through a fold comes after all of the first."""
        waiting, last = list[Occurrence](), -1
        for found, nominal, rules in self._placed(times):
            if not waiting and len(found) == 1:
                # Nearly all are so.
                if found[0] > last:
                    last = found[0]
                    yield Occurrence(found[0], nominal, rules)
                continue
            for at in found:
                heapq.heappush(waiting, Occurrence(at, nominal, rules))
            # No later local time has an earlier first instant.
            while waiting and waiting[0].at <= found[0]:
                each = heapq.heappop(waiting)
                if each.at > last:
                    last = each.at
                    yield each
        for each in sorted(waiting):
            if each.at > last:
                last = each.at
                yield each

    def _placed(self, times: Iterator[tuple[datetime, datetime]]) -> Iterator[_Placed]:
        """The instants of local times that have some, with what the notation says, and the rules that applied."""
        gap, fold, zone = self.gap, self.fold, self.zone
        for local, nominal in times:
            if local > LAST_LOCAL:
                break
            if local < FIRST_LOCAL:
                continue
            seen, found = placed(local, zone, gap, fold)
            if found:
                yield (
                    found,
                    nominal,
                    () if seen is Shown.ONCE and local is nominal else self._rules(local, nominal, seen),
                )

    def _rules(self, local: datetime, nominal: datetime, seen: Shown) -> tuple[Applied, ...]:
        """The rules by which a local time is not simply that of its notation."""
        rules: tuple[Applied, ...] = ()
        if local != nominal:
            rules = (Applied.DAY_OFF_NEXT if local > nominal else Applied.DAY_OFF_PREVIOUS,)
        if seen is Shown.SKIPPED:
            return (*rules, Applied.GAP_AFTER)
        if seen is Shown.TWICE:
            return (*rules, Applied.FOLD_FIRST if self.fold is Fold.FIRST else Applied.FOLD_BOTH)
        return rules


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SHOWN = Ms(MAX_TIME - 2 * DAY_MS)
"""The last instant that clocks of all zones show."""


def _check_numbers(asked: Recurrence) -> None:
    """Refuse numbers that are outside their ranges."""
    ranges = {
        "every_ms": (SHORTEST_MS, MAX_TIME),
        "start": (0, MAX_TIME),
        "until": (0, MAX_TIME),
        "limit": (1, MOST),
        "jitter_ms": (0, DAY_MS),
    }
    for name, (low, high) in ranges.items():
        value = getattr(asked, name)
        if value is not None:
            check_range(name, value, low, high)
