"""Days and times of day as people say them: `tomorrow 9am`, `next friday 17:00`, `tonight`, `noon on 31 January`."""

import re
from datetime import date, datetime, time, timedelta

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
TONIGHT = time(20)
"""When `tonight` is that names no time."""
_NOON, _EVENING, _WEEK, _SHORT = 12, 17, 7, 3
_SHIFTS = {"yesterday": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_AT = r"(?:(?P<noon>noon)|(?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::(?P<second>\d\d))?)?\s*(?P<half>[ap]m)?)"
_ORDINAL = r"(?:st|nd|rd|th)?"


def _either(names: tuple[str, ...]) -> str:
    """A pattern of names, whole or by their first three letters."""
    return "|".join(f"{each[:_SHORT]}(?:{each[_SHORT:]})?" for each in names)


_DAY = rf"""(?:
    (?P<word>{"|".join(_SHIFTS)})
    | (?:(?P<which>next|last|this|on)\s+)?(?P<weekday>{_either(WEEKDAYS)})
    | (?P<iso>\d{{4}}-\d\d-\d\d)
    | (?:(?P<day>\d{{1,2}}){_ORDINAL}\s+(?P<month>{_either(MONTHS)})
        |(?P<month_first>{_either(MONTHS)})\s+(?P<day_last>\d{{1,2}}){_ORDINAL})(?:,?\s+(?P<year>\d{{4}}))?
)"""
_FLAGS = re.ASCII | re.IGNORECASE | re.VERBOSE
_FORMS = (
    re.compile(rf"{_DAY}(?:(?:\s+at|,)?\s+{_AT})?", _FLAGS),
    re.compile(rf"(?:at\s+)?{_AT}(?:\s+on|,)?\s+{_DAY}", _FLAGS),
)
_Parts = dict[str, str | None]


def in_words(text: str, now: datetime) -> datetime | None:
    """What a clock on the wall shows then; None: the text is of another form.

    A day of the week, or one of a month without its year, is the first one from now on at which its time has not
    passed. `next friday` is never today, and `last friday` is the one before today. A day without a time begins at
    midnight; `tonight` is at 20:00, and `tonight at 8` too.

    Args:
        text: a day, with a time of day behind or before it.
        now: what the clock shows.

    Raises:
        ValueError: no clock shows such a time, or no calendar has such a day.
        OverflowError: the same.
    """
    match = next((found for form in _FORMS if (found := form.fullmatch(text))), None)
    if match is None:
        return None
    said = {name: each and each.lower() for name, each in match.groupdict().items()}
    at = _time_of(said)
    if said["iso"] is not None:
        return datetime.combine(date.fromisoformat(said["iso"]), at)
    if said["weekday"] is not None:
        return _of_week(said["weekday"], said["which"], at, now)
    if said["word"] is None:
        return _of_month(said, at, now)
    at = _at_night(said, at) if said["word"] == "tonight" else at
    return datetime.combine(now.date() + timedelta(days=_SHIFTS[said["word"]]), at)


def _time_of(said: _Parts) -> time:
    """The time of day."""
    if said["noon"] is not None:
        return time(_NOON)
    hour = int(said["hour"] or 0)
    if said["half"] is not None:
        if not 1 <= hour <= _NOON:
            raise ValueError(said["hour"])
        hour = hour % _NOON + (_NOON if said["half"] == "pm" else 0)
    return time(hour, int(said["minute"] or 0), int(said["second"] or 0))


def _at_night(said: _Parts, at: time) -> time:
    """The time of a night: `tonight at 8` is not in the morning."""
    if said["hour"] is None and said["noon"] is None:
        return TONIGHT
    found = at.replace(hour=at.hour + _NOON) if said["half"] is None and at.hour < _NOON else at
    if found.hour < _EVENING:
        raise ValueError(said["hour"])
    return found


def _of_week(name: str, which: str | None, at: time, now: datetime) -> datetime:
    """A day of the week."""
    number = next(number for number, each in enumerate(WEEKDAYS) if each.startswith(name))
    ahead = (number - now.weekday()) % _WEEK
    if which == "last":
        return datetime.combine(now.date() + timedelta(days=ahead - _WEEK), at)
    first = datetime.combine(now.date() + timedelta(days=ahead), at)
    return first + timedelta(days=_WEEK if first < now or (which == "next" and not ahead) else 0)


def _of_month(said: _Parts, at: time, now: datetime) -> datetime:
    """A day of a month."""
    name, day = said["month"] or said["month_first"] or "", int(said["day"] or said["day_last"] or 0)
    month = next(number for number, each in enumerate(MONTHS, 1) if each.startswith(name))
    if said["year"] is not None:
        return datetime(int(said["year"]), month, day, at.hour, at.minute, at.second)  # noqa: DTZ001 - of a wall
    this_year = datetime(now.year, month, day, at.hour, at.minute, at.second)  # noqa: DTZ001 - the same
    return this_year if this_year >= now else this_year.replace(year=now.year + 1)
