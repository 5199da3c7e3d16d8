"""Windows: times of the week at which messages may come, and where what would come at another time moves to.

A window is about what a clock on the wall of a zone shows: a moment is inside when that clock shows a weekday and a
time of day that the window names. So nothing more has to be said of the days on which clocks change. A time that is
skipped opens nothing; of a time that comes twice both passes are inside.

Instants are integers, milliseconds since the epoch, UTC. A zone is any `tzinfo`; which names zones have is not known
here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

import numpy as np

from state.buckets import MAX_TIME, IntArray, trim_down
from state.errors import InvalidArgument

WINDOWS = "rules such as Mo-Fr 08:00-20:00; Sa,Su 10:00-14:00; 22:00-06:00 is over midnight, 00:00-24:00 a whole day"
"""What a window is, for people."""
MAX_LENGTH = 1_000
"""Characters of a window's text."""
DAYS = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_MINUTE_MS = 60_000
_HOUR, _DAY = 60, 24 * 60
_WEEK = 7 * _DAY
_DAY_MS, _WEEK_MS = _DAY * _MINUTE_MS, _WEEK * _MINUTE_MS
_MONDAY_MS = 4 * _DAY_MS
"""The first Monday after the epoch, by a clock that shows UTC."""
_RULE = re.compile(r"(?:([A-Z][a-z](?:\s*[-,]\s*[A-Z][a-z])*)\s*)?(\d\d:\d\d.*)?")
_TIMES = re.compile(r"(\d\d):([0-5]\d)\s*-\s*(\d\d):([0-5]\d)")
_BLOCK_MS = 128 * _DAY_MS
"""Openings are found for so long a time at once, and kept."""
_LEAD_MS, _TAIL_MS = 8 * _DAY_MS, 29 * _DAY_MS
"""Before and behind it, so that the opening around a time, and the one behind it, are among them. A window opens each
week, but for a week in which a change of clocks, or of the date, skips all of it."""
_LAST = MAX_TIME - 2 * _DAY_MS
"""Behind this, a clock somewhere shows the year 10000, which `datetime` has not."""
_EPOCH = datetime.fromtimestamp(0, UTC)
_BY_LEDGER, _BY_ENTRY = np.uint64(0xD1B54A32D192ED03), np.uint64(0x9E3779B97F4A7C15)
_HASH_BITS = np.uint64(32)
Span = tuple[int, int]
"""Minutes of the week from Monday, 00:00, on: the first one, and the one behind the last."""


@dataclass(frozen=True)
class Openings:
    """When a window is open in a zone: instants in ms UTC, ascending; two openings never touch.

    Attributes:
        opens: the first instant of each.
        closes: the first instant behind each.
    """

    opens: IntArray
    closes: IntArray


@dataclass(frozen=True)
class Window:
    """The times of a week at which messages may come.

    Attributes:
        spans: ascending; two of them never touch, but over the end of the week.
        closed: local days on which it stays closed, all day.

    >>> Window.of_text("Mo-We 08:00-20:00; Su 22:00-06:00").spans
    ((0, 360), (480, 1200), (1920, 2640), (3360, 4080), (9960, 10080))
    """

    spans: tuple[Span, ...]
    closed: frozenset[date] = frozenset()

    @classmethod
    def of_text(cls, text: str) -> Window:
        """From rules: days and times of day, either of them or both; a moment that any rule names is inside.

        Args:
            text: rules with `;` between them. Days are `Mo` to `Su`, single or as spans, with `,` between them; a rule
                without days is about all of them. Times are spans of `HH:MM`, with `,` between them; a rule without
                times is about whole days. A span that ends before it starts ends on the next day.

        Raises:
            InvalidArgument: it is no window; `value` is the rule that is none.
        """
        if len(text) > MAX_LENGTH:
            raise InvalidArgument("window", f"{text[:40]}...", f"a text of up to {MAX_LENGTH:,} characters")
        return cls(tuple(_merged(span for rule in text.split(";") for span in _spans(rule.strip()))))

    def openings(self, zone: tzinfo, first: int, last: int) -> Openings:
        """When it is open in a zone, from one instant to another (ms UTC), at the latest before the year 10000."""
        spans = np.array(self.spans, np.int64) * _MINUTE_MS
        parts = [np.empty((2, 0), np.int64)]
        for begin, end, offset in _offsets(zone, first, min(last, _LAST)):
            weeks = np.arange((begin + offset - _MONDAY_MS) // _WEEK_MS, (end + offset - _MONDAY_MS) // _WEEK_MS + 1)
            shown = weeks[:, None] * _WEEK_MS + (_MONDAY_MS - offset)
            each = np.clip([(shown + spans[:, side]).ravel() for side in (0, 1)], begin, end)
            days = np.clip(self._closed_ms() - offset, begin, end)
            parts.append(_less(each[:, each[0] < each[1]], days[:, days[0] < days[1]]))
        opens, closes = np.concatenate(parts, axis=1)
        apart = opens[1:] > closes[:-1]
        return Openings(opens[np.append([True], apart)[: len(opens)]], closes[np.append(apart, [True])[: len(opens)]])

    def opening(self, zone: tzinfo, at: int) -> tuple[int, int]:
        """The opening that an instant is in, else the next one: its first instant, and the first behind it (ms UTC).

        It is found for months at once, and kept. Of one that goes on for longer the end is behind these months.
        `MAX_TIME` twice: there is none before the year 10000.
        """
        found = _block(self, zone, at // _BLOCK_MS)
        place = int(np.searchsorted(found.closes, at, side="right"))
        return (int(found.opens[place]), int(found.closes[place])) if place < len(found.opens) else (MAX_TIME, MAX_TIME)

    def _closed_ms(self) -> IntArray:
        """When clocks that show UTC begin and end the days on which it stays closed: shape (2, n), ascending."""
        days = np.array(sorted(each.toordinal() for each in self.closed), np.int64) - _EPOCH.toordinal()
        return np.array([days, days + 1]) * _DAY_MS

    def put_off(self, times: IntArray, zone: tzinfo, hashes: IntArray, spread_ms: int = 0, bits: int = 0) -> IntArray:
        """Due times that are inside as they are, the others moved to the next opening. O(n log n).

        A release comes at the end of a bucket. So a time whose bucket ends when the window has closed is moved, too. In
        an opening that is shorter than a bucket none is: what is due there may come when it has closed. What lies too
        far ahead for there to be another opening before the year 10000 stays.

        Args:
            times: when messages would come, ms UTC, 0 to `MAX_TIME`.
            zone: whose clock counts.
            hashes: what `place_hashes` gives for each of them.
            spread_ms: they are spread over so long a time behind the opening, or over the opening if that is shorter.
            bits: those of the widest bucket that they are released by (`tick_bits`).
        """
        moved, blocks = times.copy(), times // _BLOCK_MS
        alone = len(times) > 0 and blocks.min() == blocks.max()
        for number in blocks[:1].tolist() if alone else np.unique(blocks).tolist():
            here = np.arange(len(times)) if alone else np.flatnonzero(blocks == number)
            found, at = _block(self, zone, number), times if alone else times[here]
            short = found.closes - found.opens < 1 << bits
            lasts = np.where(short, found.closes - 1, trim_down(found.closes - 1, bits))
            behind = np.searchsorted(found.opens, at, side="right")
            inside = (behind > 0) & (at <= lasts[np.maximum(behind - 1, 0)]) if len(lasts) else np.zeros(len(at), bool)
            out = ~inside & (behind < len(found.opens))
            place, to = here[out], behind[out]
            room = np.clip(lasts[to] - found.opens[to] + 1, 1, max(spread_ms, 1))
            moved[place] = found.opens[to] + (hashes[place] * room >> int(_HASH_BITS))
        return moved


def place_hashes(ledgers: IntArray, entries: IntArray) -> IntArray:
    """For each position a number of 32 bits. Those of entries that follow each other, and of ledgers that do, are even.

    They are multiples of fractions that are far from all simple ones (Fibonacci hashing): any run of n of them leaves
    no gap that is much wider than 2^32/n.
    """
    mixed = ledgers.astype(np.uint64) * _BY_LEDGER + entries.astype(np.uint64) * _BY_ENTRY
    hashes: IntArray = (mixed >> _HASH_BITS).astype(np.int64)
    return hashes


def _spans(rule: str) -> Iterator[Span]:
    """The minutes of the week that a rule names; a span may end in the next week."""
    match = _RULE.fullmatch(rule)
    if not rule or match is None:
        raise InvalidArgument("window", rule, WINDOWS)
    times = list(_times_of_day(rule, match[2])) if match[2] else [(0, _DAY)]
    for day in _days(rule, match[1]) if match[1] else range(len(DAYS)):
        yield from ((day * _DAY + first, day * _DAY + end) for first, end in times)


def _days(rule: str, text: str) -> Iterator[int]:
    """Days by number, from Monday on; `Fr-Mo` is over the weekend."""
    for part in text.split(","):
        names = [name.strip() for name in part.split("-")]
        if len(names) > 2 or not set(names) <= set(DAYS):
            raise InvalidArgument("window", rule, f"days of {', '.join(DAYS)}, single or as spans: Mo-Fr,Su")
        first, last = DAYS.index(names[0]), DAYS.index(names[-1])
        yield from (day % len(DAYS) for day in range(first, last + 1 + len(DAYS) * (last < first)))


def _times_of_day(rule: str, text: str) -> Iterator[Span]:
    """Spans of minutes from midnight on."""
    for part in text.split(","):
        match = _TIMES.fullmatch(part.strip())
        first, end = (int(match[n]) * _HOUR + int(match[n + 1]) for n in (1, 3)) if match else (_DAY, _DAY)
        if first >= _DAY or end > _DAY or first == end:
            raise InvalidArgument("window", rule, "two times of the day that differ, from 00:00 to 24:00: 08:00-20:00")
        yield first, end if end > first else end + _DAY


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of one week, ascending, those that touch as one."""
    inside = np.zeros(_WEEK + 2, np.int8)
    for first, end in spans:
        inside[first + 1 : min(end, _WEEK) + 1] = 1
        inside[1 : max(end - _WEEK, 0) + 1] = 1
    edges = np.flatnonzero(np.diff(inside)).tolist()
    yield from zip(edges[::2], edges[1::2], strict=True)


def _less(spans: IntArray, others: IntArray) -> IntArray:
    """Spans of time without what others have of them; rows are begins and ends, ascending, and none has another's."""
    if not others.shape[1] or not spans.shape[1]:
        return spans
    edges = np.unique(np.concatenate([spans.ravel(), others.ravel()]))
    begins, ends = edges[:-1], edges[1:]
    inside, taken = (
        (np.searchsorted(each[0], begins, "right") > np.searchsorted(each[1], begins, "right"))
        for each in (spans, others)
    )
    kept = inside & ~taken
    return np.array([begins[kept], ends[kept]])


@lru_cache(2_048)
def _block(window: Window, zone: tzinfo, number: int) -> Openings:
    """The openings around the times of a block."""
    # Days that are closed follow each other, perhaps all of them.
    tail = _TAIL_MS + len(window.closed) * _DAY_MS
    first, last = number * _BLOCK_MS - _LEAD_MS, (number + 1) * _BLOCK_MS + tail
    return window.openings(zone, max(first, -_LEAD_MS), min(last, _LAST))


def _offsets(zone: tzinfo, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """What a zone's clock shows beyond UTC (ms), for spans of time (ms UTC) that follow each other.

    It is asked once a day: no zone has had an offset for less.
    """
    begin, before, offset = first, first, _offset(zone, min(first, _LAST))
    for day in [*range(first + _DAY_MS, last, _DAY_MS), last] if first < last else ():
        if (then := _offset(zone, day)) != offset:
            change = _change(zone, before, day)
            yield begin, change, offset
            begin, offset = change, then
        before = day
    if begin < last:
        yield begin, last, offset


def _change(zone: tzinfo, before: int, after: int) -> int:
    """The first instant at which a zone has another offset than before; offsets change at whole seconds."""
    old, low, high = _offset(zone, before), before // 1_000, -(-after // 1_000)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle * 1_000) == old else (low, middle)
    return high * 1_000


def _offset(zone: tzinfo, at: int) -> int:
    shown = (_EPOCH + timedelta(milliseconds=at)).astimezone(zone).utcoffset()
    return 0 if shown is None else shown // timedelta(milliseconds=1)
