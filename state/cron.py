"""Times of cron: five fields as Debian's cron has them, or six with the second first; on the clock of a wall.

`cronsim` reads the fields and goes through local times, which have no zone here. What becomes of a time that clocks
skip or show twice is decided where it is turned into an instant (`state.recurrence`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from state.errors import InvalidArgument

_ALLOWED = "five fields: minute, hour, day of the month, month, day of the week; or six, the second first"
_LONGEST = 500
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a local time
_WRONG = (CronSimError, AssertionError, TypeError, ValueError)
"""What `cronsim` raises of fields that it cannot read, whatever stands there."""
_YEARS, _LAST_YEAR = 50, 9_998
"""So far ahead one looks for the next time; and Python's calendar ends."""


@dataclass(frozen=True, slots=True)
class Cron:
    """An expression of cron.

    Attributes:
        text: the expression.

    Raises:
        InvalidArgument: it cannot be read; the error says which field is wrong.
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse what cannot be read."""
        if len(self.text) > _LONGEST:
            raise InvalidArgument("cron", self.text[:_LONGEST], _ALLOWED)
        try:
            _read(self.text)
        except _WRONG as error:
            why = f" ({error})" if isinstance(error, CronSimError) else ""
            raise InvalidArgument("cron", self.text, _ALLOWED + why) from error

    @property
    def is_fixed(self) -> bool:
        """Whether it names times of day. By Debian's rule it does not when its minute or its hour begins with a star.

        With six fields the same holds of the second.
        """
        fields = self.text.split()
        return not any(each.startswith("*") for each in fields[: len(fields) - 3])

    def times(self, begin: datetime) -> Iterator[datetime]:
        """The local times from one on, in order; no more when none follows within 50 years.

        The fields and the days are those of `cronsim`. Its own search goes by hours, at several times the cost.
        """
        found = _read(self.text)
        day, last = begin.date(), min(begin.year + _YEARS, _LAST_YEAR)
        while day.year <= last:
            if day.month not in found.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if found.match_day(day):
                times = _times_of_day(found, day)
                yield from times if day > begin.date() else (each for each in times if each >= begin)
            day += timedelta(days=1)


@lru_cache(4_096)
def _read(text: str) -> CronSim:
    """The fields of an expression. Of many schedules several have the same one, and each is read twice."""
    return CronSim(text, _ANY_DAY)


def _times_of_day(found: CronSim, day: date) -> Iterator[datetime]:
    minutes, seconds = sorted(found.minutes), sorted(found.seconds)
    for hour in sorted(found.hours):
        for minute in minutes:
            for second in seconds:
                yield datetime(day.year, day.month, day.day, hour, minute, second)  # noqa: DTZ001 - a local time
