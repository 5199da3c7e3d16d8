"""Calendars: days off, by name. A day of a calendar is a row of the table `calendars`.

Users set calendars by the client, by the command, or by any Delta writer. A row that is no day is listed, and stops
nobody: the other days of its calendar count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

from pipeline.config.errors import BadValue, check_text

MOST_DAYS, MOST_NAME, MOST_TEXT = 10_000, 200, 1_000
DAY = "days as 2026-12-25"


@dataclass(frozen=True, order=True)
class CalendarDay:
    """A day off.

    Attributes:
        day: the local day.
        text: why it is one; empty: nobody says.
    """

    day: date
    text: str = ""


@dataclass(frozen=True)
class Calendars:
    """Days off by the names of calendars.

    Attributes:
        days: of each calendar, ascending; each once.
        refused: why rows are no days, by the names of their calendars.
    """

    days: Mapping[str, tuple[CalendarDay, ...]] = field(default_factory=dict)
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def off(self, name: str) -> frozenset[date]:
        """The days of a calendar.

        Raises:
            BadValue: there is no such calendar.
        """
        if name not in self.days:
            raise BadValue(
                "calendar", name, f"a calendar that has days: {', '.join(list(self.days)[:10]) or 'none is'}"
            )
        return self._off[name]

    @cached_property
    def _off(self) -> dict[str, frozenset[date]]:
        return {name: frozenset(each.day for each in days) for name, days in self.days.items()}


NO_CALENDARS = Calendars()


def calendars_of(rows: Iterable[Mapping[str, Any]]) -> Calendars:
    """The calendars of rows of the table. Any Delta writer may write it, so a row may lack columns, or have others."""
    days, refused = dict[str, dict[date, CalendarDay]](), dict[str, list[str]]()
    for row in rows:
        name = row.get("name")
        try:
            _add(days.setdefault(checked_name(name), {}), row)
        except BadValue as error:
            refused.setdefault(name if isinstance(name, str) else "", []).append(str(error))
    found = {name: tuple(sorted(own.values())) for name, own in sorted(days.items()) if own}
    return Calendars(found, {name: tuple(sorted(each)) for name, each in sorted(refused.items())})


def _add(days: dict[date, CalendarDay], row: Mapping[str, Any]) -> None:
    """Add the day of a row to those of its calendar.

    Raises:
        BadValue: it is none, or one too many.
    """
    each = CalendarDay(day_of(row.get("day")), checked_day_text(row.get("text")))
    if each.day not in days and len(days) >= MOST_DAYS:
        raise BadValue("day", each.day.isoformat(), f"{MOST_DAYS} days of a calendar at most")
    # Of two texts of a day the same one counts in each reading.
    days[each.day] = max(each, days.get(each.day, each))


def checked_name(name: object, field_name: str = "name") -> str:
    """The name of a calendar, which a field has.

    Raises:
        BadValue: it is none.
    """
    if not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME:
        raise BadValue(field_name, name, f"a name of at most {MOST_NAME} characters")
    check_text(field_name, name)
    return name


def day_of(given: object) -> date:
    """A day from its text, or as it is.

    Raises:
        BadValue: it is none.
    """
    if isinstance(given, date) and not isinstance(given, datetime):
        return given
    try:
        return datetime.strptime(given, "%Y-%m-%d").date()  # type: ignore[arg-type] # noqa: DTZ007 - a local day
    except (TypeError, ValueError) as error:
        raise BadValue("day", given, DAY) from error


def checked_day_text(text: object) -> str:
    """Why a day is off; empty if nobody says.

    Raises:
        BadValue: it is no text, or a long one.
    """
    if text is None:
        return ""
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        raise BadValue("text", text, f"a text of at most {MOST_TEXT} characters")
    check_text("text", text)
    return text
