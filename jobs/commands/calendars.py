"""Calendars on the command line: which there are, their days, and those of the package `holidays`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

from jobs.commands.columns import in_columns
from pipeline.config.errors import BadValue
from pipeline.config.extras import need
from pipeline.config.printed import printable
from pipeline.subscriptions.calendars import MOST_TEXT, CalendarDay, Calendars

_LISTED = ("NAME", "DAYS", "FIRST", "LAST")
_SHOWN = 10


def listed(found: Calendars) -> Iterator[str]:
    """For people: a line for each calendar, and why some rows are no days."""
    if not found.days:
        yield "No calendar."
    else:
        rows = [(name, str(len(days)), str(days[0].day), str(days[-1].day)) for name, days in found.days.items()]
        yield from in_columns(_LISTED, [[printable(each) for each in row] for row in rows])
    for name, refused in found.refused.items():
        for why in refused[:_SHOWN]:
            yield f"{printable(name)}: a row is not followed: {printable(why)}"


def records(found: Calendars) -> Iterator[dict[str, Any]]:
    """The same for scripts."""
    for name in sorted({*found.days, *found.refused}):
        days = found.days.get(name, ())
        yield {"calendar": name, "days": len(days), "errors": list(found.refused.get(name, ()))[:_SHOWN]}


def described(days: Sequence[CalendarDay]) -> Iterator[str]:
    """For people: a line for each day."""
    for each in days:
        yield printable(f"{each.day}  {each.text}".rstrip())


def days(name: str, found: Sequence[CalendarDay]) -> Iterator[dict[str, Any]]:
    """The same for scripts."""
    return ({"calendar": name, "day": each.day.isoformat(), "description": each.text or None} for each in found)


def public_days(country: str, region: str | None, years: Sequence[int]) -> dict[str | date, str]:
    """The public holidays of a country, or of a part of it, with their names, as the installed package has them.

    Raises:
        ExtraMissing: the package is not installed.
        BadValue: it does not know the country, or the part of it.
    """
    need("holidays")
    from holidays import country_holidays, list_supported_countries  # noqa: PLC0415 - an extra

    known = list_supported_countries()
    if country not in known:
        raise BadValue("country", country, f"one of {', '.join(sorted(known))}")
    if region is not None and region not in known[country]:
        raise BadValue("region", region, f"a part of {country}: {', '.join(known[country]) or 'it has none'}")
    found = country_holidays(country, subdiv=region, years=years)
    return {day: text[:MOST_TEXT] for day, text in found.items() if day.year in years}
