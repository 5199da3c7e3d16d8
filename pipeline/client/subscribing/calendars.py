"""Calendars: days off, as rows of the table `calendars`; a commit for each that is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any

from deltalake import DeltaTable

from pipeline.client.exceptions import CalendarNotFound
from pipeline.client.subscribing.policysetting import topics
from pipeline.config.errors import BadValue, NoWarehouse, check_kind
from pipeline.delta.deltars import open_table, query, quoted, replace_rows, retried
from pipeline.subscriptions.calendars import (
    MOST_DAYS,
    NO_CALENDARS,
    CalendarDay,
    Calendars,
    calendars_of,
    checked_day_text,
    checked_name,
    day_of,
)
from pipeline.subscriptions.lines import Topics
from schemas import CALENDARS

_ROWS = "SELECT * FROM calendars"
Days = Mapping[str | date, str] | Iterable[str | date]
"""Days as `2026-12-25`, each with its text, or alone."""


def calendars(root: str) -> Calendars:
    """All calendars, and why rows of the table are no days.

    A warehouse that an earlier version of this project made has no such table, and none.
    """
    with suppress(NoWarehouse):
        return calendars_of(query(_ROWS, calendars=open_table(root, CALENDARS)))
    return NO_CALENDARS


def calendar(root: str, name: str) -> tuple[CalendarDay, ...]:
    """The days of a calendar, ascending.

    Raises:
        CalendarNotFound: there is no such calendar.
    """
    found = calendars(root).days.get(checked_name(name))
    if found is None:
        raise CalendarNotFound(name)
    return found


def set_calendar(root: str, name: str, days: Days, *, years: Sequence[int] | None = None) -> tuple[CalendarDay, ...]:
    """Set the days of a calendar, in the place of those that it has, by one commit.

    A running job follows within seconds: what schedules with the calendar have planned is taken back, and planned anew.

    Args:
        root: the warehouse.
        name: its name.
        days: its days, or texts by day. None of them: the calendar is gone.
        years: only days of these years are replaced; None: all.

    Returns:
        All days that it has then.

    Raises:
        BadValue: a name, a day or a text cannot be followed; or a day is in none of the years.
        NoWarehouse: the folder lacks the table.
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    checked_name(name)
    check_kind("days", days, Iterable, "days as 2026-12-25")
    check_kind("years", years, (list, tuple, range, type(None)), "a list of years")
    given = [CalendarDay(day_of(day), checked_day_text(text)) for day, text in _pairs(days)]
    outside = next((each.day for each in given if years is not None and each.day.year not in years), None)
    if outside is not None:
        raise BadValue("days", outside.isoformat(), f"days of {', '.join(map(str, years or ()))}")
    made = list[CalendarDay]()

    def write(opened: DeltaTable) -> None:
        held = calendars_of(query(_ROWS, calendars=opened)).days.get(name, ())
        kept = [each for each in held if years is not None and each.day.year not in years]
        made[:] = sorted({each.day: each for each in [*kept, *given]}.values())
        if len(made) > MOST_DAYS:
            raise BadValue("days", f"{len(made)} days", f"{MOST_DAYS} of a calendar at most")
        replace_rows(opened, CALENDARS, [_row(name, each) for each in made], f"name = {quoted(name)}")

    retried(root, CALENDARS, write)
    return tuple(made)


def with_days(root: str, topics: Topics) -> Topics:
    """Policies of topics with the days of the calendars that their windows name."""
    return topics.with_days(calendars(root)) if topics.calendars else topics


def followed_topics(root: str) -> Topics:
    """The policies of all topics, as who finds due times follows them.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    return with_days(root, topics(root))


def _pairs(days: Days) -> Iterable[tuple[str | date, str]]:
    if isinstance(days, Mapping):
        return days.items()
    return ((each, "") for each in days)


def _row(name: str, each: CalendarDay) -> dict[str, Any]:
    return {"name": name, "day": each.day.isoformat(), "text": each.text or None}
