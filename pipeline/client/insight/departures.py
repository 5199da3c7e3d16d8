"""When what is due leaves dispatch, by the rules that dispatch goes by: the inside of a forecast, plain functions.

What has no rate comes when it is due, or when a pause or an outage is over. What has a rate is taken in the order in
which it is due, twice a second, as the time of the rate allows (`pipeline.subscriptions.rates`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.storage.arrays import IntArray
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.rates import EXPIRY_MS, QUANTUM_MS, budget_of, used_by
from state.windows import Openings

BEFORE, NEVER = -(1 << 62), 1 << 62
"""Before all times, and after them, ms UTC."""
_TAIL_MS = 29 * 86_400_000
"""Hours that open at all do so within this time, whatever clocks and calendars do."""
Span = tuple[int, int]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pause:
    """A subscription is paused at a time (ms UTC), and resumed at another one; None: it is not resumed."""

    at: int
    until: int | None = None


@dataclass(frozen=True)
class Outage:
    """No job runs from a time until another one (ms UTC)."""

    at: int
    until: int


@dataclass(frozen=True)
class Rate:
    """From a time (ms UTC) on a subscription has so many messages a second at most."""

    at: int
    max_rate: int


WhatIf = Pause | Outage | Rate


@dataclass(frozen=True)
class JobClock:
    """The clock of a job.

    Attributes:
        step_ms: from one instant to the next. What is due comes at the next instant.
        look_ms: what has a rate is looked at so often; not less than a step.
        lookahead_ms: what is due so soon is prepared already, and no pause stops it.
        precision_ms: due times of a finer tick are told to this precision; 100 ms are 864,000 times in a day at most.
    """

    step_ms: int = 1
    look_ms: int = QUANTUM_MS
    lookahead_ms: int = 10_000
    precision_ms: int = 100

    def instant_of(self, due: IntArray, begin: int) -> IntArray:
        """The first instants, counted from `begin` on, at which due times have come."""
        return np.maximum(begin, begin - (begin - due) // self.step_ms * self.step_ms)


@dataclass(frozen=True, eq=False)
class DueLoad:
    """How many messages are due when: different times (ms UTC, ascending), and a number for each."""

    due: IntArray
    counts: IntArray

    @classmethod
    def of(cls, due: IntArray, counts: IntArray) -> DueLoad:
        """From times in any order, which may come twice."""
        times, place = np.unique(due, return_inverse=True)
        total = np.zeros(len(times), np.int64)
        np.add.at(total, place.reshape(-1), counts)
        return cls(times, total)

    def __add__(self, other: DueLoad) -> DueLoad:
        """Both together."""
        return DueLoad.of(np.concatenate([self.due, other.due]), np.concatenate([self.counts, other.counts]))

    def where(self, rows: IntArray | BoolArray) -> DueLoad:
        """Some of it."""
        return DueLoad(self.due[rows], self.counts[rows])


NOTHING_DUE = DueLoad(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, eq=False)
class Departures:
    """What leaves dispatch: arrays of one length, each place a number of messages that are due together.

    Attributes:
        due: when they are due, ms UTC.
        at: when they leave, ms UTC; `NEVER`: not before the end of the forecast.
        counts: how many they are.
        expired: whether they are left out, since they have expired.
    """

    due: IntArray
    at: IntArray
    counts: IntArray
    expired: BoolArray

    @classmethod
    def together(cls, parts: Sequence[Departures]) -> Departures:
        """Several ones as one."""
        names = ("due", "at", "counts", "expired")
        return cls(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


@dataclass(frozen=True)
class _Course:
    """What is to come: spans in which nobody works, spans in which the subscription is paused, its rates, its hours.

    At the first instant of a span things still happen, and at the last one they happen again.
    """

    away: tuple[Span, ...]
    pauses: tuple[Span, ...]
    rates: tuple[Span, ...]
    hours: Openings | None
    clock: JobClock
    begin: int

    @classmethod
    def of(cls, policies: Policies, events: Iterable[WhatIf], clock: JobClock, begin: int, end: int) -> _Course:
        events = list(events)
        away = sorted((e.at if e.at > begin else BEFORE, e.until) for e in events if isinstance(e, Outage))
        rates = sorted((e.at, e.max_rate) for e in events if isinstance(e, Rate))
        if policies.max_rate:
            rates.insert(0, (BEFORE, policies.max_rate))
        pauses = tuple(_pauses(policies.paused, [e for e in events if isinstance(e, Pause)]))
        hours = None if policies.hours is None else policies.hours.openings(begin, max(begin, end) + _TAIL_MS)
        return cls(tuple(away), pauses, tuple(rates), hours, clock, begin)

    def present(self, at: IntArray) -> IntArray:
        """Instants, those of an outage put off to its end."""
        for begin, end in self.away:
            at = np.where((at > begin) & (at < end), end, at)
        return at

    def opens(self, at: IntArray) -> IntArray:
        """The openings that instants are in, or else the next ones, by their first instants of the clock."""
        if self.hours is None:
            return np.full(len(at), BEFORE)
        begins = np.append(self.clock.instant_of(self.hours.opens, self.begin), NEVER)
        return begins[np.searchsorted(self.hours.closes, at, "right")]

    def open(self, at: IntArray) -> IntArray:
        """Instants, those at which it is closed put off to the first ones at which it is open and somebody works."""
        while ((later := self.present(np.maximum(at, self.opens(at)))) > at).any():
            at = later
        return at

    def is_over(self, at: IntArray, event: int) -> BoolArray:
        """Whether instants are before an event has its effect. What is overdue when it happens now is behind it."""
        return (at <= event) & (event > self.begin)

    def is_prepared(self, due: IntArray, event: int) -> BoolArray:
        """Whether what is due, and has no rate, is prepared when an event happens. What is overdue now is not."""
        worked = min([begin for begin, end in self.away if begin < event < end], default=event)
        return (due >= self.begin) & (due <= worked + self.clock.lookahead_ms)


def _pauses(paused: bool, events: Sequence[Pause]) -> Iterable[Span]:  # noqa: FBT001 - what it is now
    """The spans of pauses, by what is commanded one after the other: a resume ends whatever pause there is."""
    ends = [(NEVER if each.until is None else each.until, False) for each in events]
    since = BEFORE if paused else None
    for at, begins in sorted([*ends, *((each.at, True) for each in events)]):
        if begins and since is None:
            since = at
        elif not begins and since is not None:
            yield since, at
            since = None
    if since is not None:
        yield since, NEVER


def departures(
    load: DueLoad, policies: Policies, events: Iterable[WhatIf], begin: int, end: int, clock: JobClock
) -> Departures:
    """When what is due leaves, up to a time.

    Args:
        load: what is due until the end.
        policies: of them `paused`, `max_rate`, `open` and `ttl_ms` count.
        events: what is to happen from `begin` on.
        begin: the time now, ms UTC.
        end: the time up to which it is told, ms UTC.
        clock: of the job.
    """
    course = _Course.of(policies, events, clock, begin, end)
    released = course.present(clock.instant_of(load.due, begin))
    at = _without_rate(load.due, released, course)
    rated = np.zeros(len(at), np.bool_)
    if course.rates:
        since = course.rates[0][0]
        rated = ~(course.is_over(at, since) | (course.is_prepared(load.due, since) & (at == released)))
    free = _expiring(load.where(~rated), released[~rated], at[~rated], policies.ttl_ms, course)
    return Departures.together([free, _paced(load.where(rated), policies.ttl_ms, course, end)])


def _without_rate(due: IntArray, released: IntArray, course: _Course) -> IntArray:
    """When what is due comes if nothing but pauses, closed hours and outages holds it."""
    at, is_open = course.open(released), course.opens(released) <= released
    for begin, end in course.pauses:
        held = ~course.is_over(at, begin) & (at < end) & ~(course.is_prepared(due, begin) & is_open)
        at = course.open(course.present(np.where(held, end, at)))
    return at


def _expiring(load: DueLoad, released: IntArray, at: IntArray, ttl_ms: int | None, course: _Course) -> Departures:
    """What leaves so, or expires before."""
    if ttl_ms is None:
        return Departures(load.due, at, load.counts, np.zeros(len(at), np.bool_))
    expired = at - load.due > ttl_ms
    gone = np.maximum(released, course.present(course.clock.instant_of(load.due + ttl_ms + 1, course.begin)))
    return Departures(load.due, np.where(expired, np.minimum(at, gone), at), load.counts, expired)


@dataclass(frozen=True)
class _Looks:
    """The instants at which what has a rate is looked at, as lists of one length.

    Attributes:
        at: when, ms UTC.
        reached: how many messages are due until then.
        expired: how many have expired until then; empty: none do.
        rates: the rate, messages a second.
        paused: whether the subscription is paused then.
        since: the time of a rate begins then at the earliest.
    """

    at: list[int]
    reached: list[int]
    expired: list[int]
    rates: list[int]
    paused: list[bool]
    since: list[int]

    @classmethod
    def of(cls, due: IntArray, before: IntArray, ttl_ms: int | None, course: _Course, end: int) -> _Looks:
        """Those up to a time; `before` is how many messages are due before each due time, and how many there are."""
        at = np.arange(course.begin, end + 1, course.clock.look_ms)
        at = at[(course.present(at) == at) & (at > course.rates[0][0])]
        paused = np.zeros(len(at), np.bool_)
        for first, last in course.pauses:
            paused |= (at > first) & (at < last)
        opens = course.opens(at)
        paused |= opens > at
        starts = np.array([begin for begin, _ in course.rates], np.int64)
        rate = np.array([rate for _, rate in course.rates], np.int64)[np.searchsorted(starts, at, "left") - 1]
        since = np.maximum(opens, max(course.begin, course.rates[0][0]))
        for _, last in (*course.pauses, *course.away):
            since = np.where(at >= last, np.maximum(since, last), since)
        reached = before[np.searchsorted(due, at, "right")]
        expired = [] if ttl_ms is None else before[np.searchsorted(due, at - ttl_ms, "left")].tolist()
        return cls(at.tolist(), reached.tolist(), expired, rate.tolist(), paused.tolist(), since.tolist())


def _paced(load: DueLoad, ttl_ms: int | None, course: _Course, end: int) -> Departures:
    """When what has a rate leaves."""
    if not len(load.due):
        return Departures(load.due, load.due, load.counts, np.zeros(0, np.bool_))
    before = np.concatenate([[0], np.cumsum(load.counts)])
    looks = _Looks.of(load.due, before, ttl_ms, course, end)
    begins = course.clock.instant_of(load.due, course.begin).tolist()
    long_ago = [] if ttl_ms is None else (load.due + ttl_ms + EXPIRY_MS).tolist()
    takes = np.array(_takes(looks, begins, before.tolist(), long_ago), np.int64).reshape(-1, 3)
    # At each look first what has expired goes, then as much as the rate allows, all in the order of due time.
    sizes = takes[:, 1:].reshape(-1)
    ends = np.append(np.cumsum(sizes), NEVER)
    at, expired = np.append(np.repeat(takes[:, 0], 2), NEVER), np.append(np.tile([True, False], len(takes)), [False])
    cuts = np.union1d(before, ends[:-1])
    which, place = np.searchsorted(before, cuts[1:], "left") - 1, np.searchsorted(ends, cuts[1:], "left")
    return Departures(load.due[which], at[place], np.diff(cuts), expired[place])


def _takes(
    looks: _Looks, begins: Sequence[int], before: Sequence[int], long_ago: Sequence[int]
) -> list[tuple[int, int, int]]:
    """At which time how many messages are left out, since they have expired, and how many are handed over.

    Args:
        looks: when it is looked.
        begins: from when on messages may be taken, ms UTC.
        before: how many messages are before each of these.
        long_ago: when they have expired for so long that they go; empty: none do.
    """
    found, gone, k = list[tuple[int, int, int]](), 0, 0
    begun: float | None = None
    while k < len(looks.at):
        now, reached = looks.at[k], looks.reached[k]
        if reached == gone:
            # Nothing waits, so the time of the rate ends. It begins with the next message.
            begun, k = None, bisect_right(looks.reached, gone, k + 1)
            continue
        budget, expired = 0, 0
        if looks.paused[k]:
            begun = None
        else:
            begun = max(looks.since[k], begins[bisect_right(before, gone) - 1] if begun is None else begun)
            budget = budget_of(begun, looks.rates[k], now)
        if long_ago and looks.expired[k] > gone:
            # It goes with any batch, or when it has expired for long.
            is_new = k == 0 or reached > looks.reached[k - 1]
            goes = budget or is_new or long_ago[bisect_right(before, gone) - 1] < now
            expired = looks.expired[k] - gone if goes else 0
        handed = min(budget, reached - gone - expired)
        if expired or handed:
            found.append((now, expired, handed))
            gone += expired + handed
            begun = None if begun is None or gone == reached else begun + used_by(handed, looks.rates[k])
        k += 1
    return found
