"""Times of a recurrence rule (RRULE of RFC 5545, section 3.3.10), on the clock of a wall.

`dateutil` goes through local times, which have no zone here. `COUNT` and `UNTIL` are not for it: an instance whose
local time clocks skip is not counted, and that depends on the zone (`state.recurrence`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from dateutil.rrule import DAILY, HOURLY, MINUTELY, MONTHLY, SECONDLY, WEEKLY, YEARLY, rrule, weekday

from state.errors import InvalidArgument

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
_NUMBERS: Sequence[Any] = (YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY)
_YEARLY, _MONTHLY, _WEEKLY, _DAILY, *_ = range(len(FREQUENCIES))
_UNIT_S = {2: 604_800, 3: 86_400, 4: 3_600, 5: 60, 6: 1}
"""How long the periods of frequencies are that are all alike."""
_DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_WHEN = re.compile(r"[0-9]{8}(T[0-9]{6}Z?)?")
_LONGEST = 500
_MOST = 1_000_000
_LISTS: Mapping[str, tuple[str, int, int, bool]] = {
    "BYSECOND": ("bysecond", 0, 59, False),
    "BYMINUTE": ("byminute", 0, 59, False),
    "BYHOUR": ("byhour", 0, 23, False),
    "BYMONTHDAY": ("bymonthday", 1, 31, True),
    "BYYEARDAY": ("byyearday", 1, 366, True),
    "BYWEEKNO": ("byweekno", 1, 53, True),
    "BYMONTH": ("bymonth", 1, 12, False),
    "BYSETPOS": ("bysetpos", 1, 366, True),
}
"""The parts that list numbers: the argument of `dateutil`, the range, and whether they may count from the end."""
_PARTS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_LISTS)
_FEWER = {"BYMONTHDAY": (_WEEKLY,), "BYYEARDAY": (_MONTHLY, _WEEKLY, _DAILY), "BYWEEKNO": tuple(range(1, 7))}
"""Frequencies with which a part may not stand, by the table of the RFC."""
_OF_DAYS = ("byweekno", "byyearday", "bymonthday", "byweekday")
_YEARS = 41
"""Each day of the week meets each day of the year within 40 years, also over 2100, which has no 29 February."""


@dataclass(frozen=True)
class RRule:
    """A recurrence rule.

    Attributes:
        text: the rule, with or without `RRULE:` before it.
        frequency: its place in `FREQUENCIES`.
        interval: each so many years, months or whatever the frequency says.
        count: so many instances; None: it does not say so.
        until: the last instant that it may have: UTC with a zone, else a local time; None: it does not say so. A date
            is the end of the day.

    Raises:
        InvalidArgument: it cannot be read, or the RFC does not allow it; the error names the part.
    """

    text: str
    frequency: int = field(init=False)
    interval: int = field(init=False)
    count: int | None = field(init=False)
    until: datetime | None = field(init=False)
    _rule: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read it, and refuse what cannot be read."""
        parts = _parts(self.text)
        frequency = FREQUENCIES.index(_choice("FREQ", parts.get("FREQ", ""), FREQUENCIES))
        found = {
            "frequency": frequency,
            "interval": _number("INTERVAL", parts.get("INTERVAL", "1"), 1, _MOST),
            "count": None if "COUNT" not in parts else _number("COUNT", parts["COUNT"], 1, _MOST),
            "until": None if "UNTIL" not in parts else _until(parts["UNTIL"]),
        }
        if found["count"] is not None and found["until"] is not None:
            raise _wrong("COUNT", self.text, "one of COUNT and UNTIL")
        _check_together(frequency, parts)
        lists = {name: _numbers(part, parts[part]) for part, (name, *_) in _LISTS.items() if part in parts}
        days = {"byweekday": _days(frequency, parts["BYDAY"], parts)} if "BYDAY" in parts else {}
        first = _DAYS.index(_choice("WKST", parts.get("WKST", "MO"), _DAYS))
        for name, value in {**found, "_rule": {**lists, **days, "wkst": first}}.items():
            object.__setattr__(self, name, value)

    def times(self, start: datetime, begin: datetime) -> Iterator[datetime]:
        """The local times of a rule from one on, in order; the first one that there may be is `start`."""
        rule = self._completed(start)
        if not self._has_day(rule, start):
            return
        first = max(start, begin)
        try:
            for time in rrule(_NUMBERS[self.frequency], self._near(start, first), self.interval, **rule):
                if time >= first:
                    yield time
        except (OverflowError, ValueError):
            # The end of Python's calendar; or numbers that never meet, as every second hour and an odd hour.
            return

    def _completed(self, start: datetime) -> Mapping[str, Any]:
        """The rule with what it leaves to its start, but for the time of day."""
        rule = dict(self._rule)
        if self.frequency == _YEARLY and rule.keys() & set(_OF_DAYS) == {"byweekno"}:
            rule["byweekday"] = start.weekday()
        if rule.keys() & set(_OF_DAYS):
            return rule
        if self.frequency == _YEARLY:
            return {"bymonth": start.month, **rule, "bymonthday": start.day}
        if self.frequency == _MONTHLY:
            return {**rule, "bymonthday": start.day}
        return {**rule, "byweekday": start.weekday()} if self.frequency == _WEEKLY else rule

    def _near(self, start: datetime, begin: datetime) -> datetime:
        """A start of the same rule a period or two before a time. `dateutil` goes through all times since its start."""
        if self.frequency in _UNIT_S:
            period = timedelta(seconds=_UNIT_S[self.frequency]) * self.interval
            return start + max((begin - start) // period - 1, 0) * period
        months = (begin.year - start.year) * 12 + begin.month - start.month
        length = self.interval * (12 if self.frequency == _YEARLY else 1)
        passed = max(months // length - 1, 0) * length
        if not passed:
            return start
        year, month = divmod(start.year * 12 + start.month - 1 + passed, 12)
        return start.replace(year=year, month=1 if self.frequency == _YEARLY else month + 1, day=1)

    def _has_day(self, rule: Mapping[str, Any], start: datetime) -> bool:
        """Whether any day meets a rule that is looked at day by day; `dateutil` would look for one until the year 9999.

        Of other rules it looks at a few days a year only.
        """
        if self.frequency < _DAILY or not rule.keys() & {"bymonth", "bymonthday", "byyearday"}:
            return True
        days = (start.date() + timedelta(days=each) for each in range(min(_YEARS, 9_999 - start.year) * 366))
        return any(_meets(rule, each) for each in days)


def _parts(text: str) -> dict[str, str]:
    """The parts of a rule by their names."""
    if len(text) > _LONGEST:
        raise InvalidArgument("rrule", text[:_LONGEST], f"a text of at most {_LONGEST} characters")
    found: dict[str, str] = {}
    for part in text.upper().strip().removeprefix("RRULE:").split(";"):
        name, _, value = part.partition("=")
        if name not in _PARTS or name in found:
            raise InvalidArgument("rrule", text, f"parts as FREQ=DAILY, each once, of {', '.join(_PARTS)}")
        found[name] = value
    return found


def _wrong(part: str, value: str, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"rrule {part}", value, allowed)


def _choice(part: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise _wrong(part, value, ", ".join(choices))
    return value


def _number(part: str, text: str, low: int, high: int, *, both: bool = False) -> int:
    """A whole number within a range; of `both` signs if that may be."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not low <= (abs(number) if both else number) <= high:
        raise _wrong(part, text, f"{low}..{high}" + (f" or -{high}..-{low}" if both else ""))
    return number


def _numbers(part: str, text: str) -> list[int]:
    _, low, high, both = _LISTS[part]
    return [_number(part, each, low, high, both=both) for each in text.split(",")]


def _days(frequency: int, text: str, parts: Mapping[str, str]) -> list[weekday]:
    """Days of the week, with the number that some have in their month or year."""
    numbered = frequency <= _MONTHLY and "BYWEEKNO" not in parts
    allowed = ", ".join(_DAYS) + (", with a number before it, as -1FR" if numbered else " without a number")
    found = []
    for each in text.split(","):
        match = _DAY.fullmatch(each)
        if match is None or (match[1] and not (numbered and 1 <= abs(int(match[1])) <= 53)):
            raise _wrong("BYDAY", each, allowed)
        found.append(weekday(_DAYS.index(match[2]), int(match[1]) if match[1] else None))
    return found


def _until(text: str) -> datetime:
    """The last instant that may be: a local time, or UTC."""
    allowed = "a date as 20261231, a local time as 20261231T090000, or UTC as 20261231T090000Z"
    match = _WHEN.fullmatch(text)
    try:
        if match is None:
            raise _wrong("UNTIL", text, allowed)
        time = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError as error:
        raise error if isinstance(error, InvalidArgument) else _wrong("UNTIL", text, allowed) from error
    if match[1] is None:
        return time + timedelta(days=1, milliseconds=-1)
    return time.replace(tzinfo=UTC) if text.endswith("Z") else time


def _check_together(frequency: int, parts: Mapping[str, str]) -> None:
    """Refuse parts that the RFC does not allow beside each other."""
    for part, without in _FEWER.items():
        if part in parts and frequency in without:
            allowed = [each for number, each in enumerate(FREQUENCIES) if number not in without]
            raise _wrong(part, parts[part], f"with FREQ={' or '.join(allowed)} only")
    if "BYSETPOS" in parts and not parts.keys() & {"BYDAY", *_LISTS} - {"BYSETPOS"}:
        raise _wrong("BYSETPOS", parts["BYSETPOS"], "beside another part that begins with BY")


def _meets(rule: Mapping[str, Any], day: date) -> bool:
    """Whether a day meets those parts of a rule that name days."""
    last = (date(day.year + day.month // 12, day.month % 12 + 1, 1) - timedelta(days=1)).day
    number, of_year = day.timetuple().tm_yday, date(day.year, 12, 31).timetuple().tm_yday
    weekdays = {each if isinstance(each, int) else each.weekday for each in rule.get("byweekday", ())}
    return (
        day.month in rule.get("bymonth", (day.month,))
        and bool({day.day, day.day - last - 1} & set(rule.get("bymonthday", (day.day,))))
        and bool({number, number - of_year - 1} & set(rule.get("byyearday", (number,))))
        and (not weekdays or day.weekday() in weekdays)
    )
