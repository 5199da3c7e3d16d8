"""Instants on the command line: ISO times, days in words, names of time zones; and back to text."""

import os
import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from pathlib import Path

from jobs.commands.durations import BadText, duration_ms
from pipeline.config.errors import BadValue
from pipeline.config.spelling import iso_text
from pipeline.config.zones import zone as zone_of

TIMES = (
    "a time: 2026-01-31, 2026-01-31T12:00:00.250+02:00, 2026-01-31 12:00 Europe/Rome, tomorrow 9am local, in 2h "
    "(UTC when it names no offset and no zone)"
)
LOCAL = "local"
"""The name of the zone of this machine."""
_ZONE = re.compile(r"(.*\S)\s*(?:\[([\w+\-/]+)\]|\s([A-Za-z][\w+\-]*(?:/[\w+\-]+)*))")
_DAY = re.compile(r"(today|tomorrow)(?:\s+(?:at\s+)?(\d{1,2})(?::(\d\d))?\s*(am|pm)?)?", re.IGNORECASE)
_WITHIN = re.compile(r"in\s+(.+)", re.IGNORECASE)
_NOON = 12


def instant(text: str, now: datetime | None = None) -> datetime:
    """An instant, in UTC.

    Args:
        text: an ISO time, `now`, `in DURATION`, or `today` and `tomorrow` with a time of day; the name of a time zone
            may follow, or `local`. Without a zone and an offset it is UTC.
        now: what `now`, `in`, `today` and `tomorrow` count from; None: the time of this machine.

    Raises:
        BadText: another form, or a time that does not exist, or that comes twice, in its zone.
    """
    present, stripped = now or datetime.now(UTC), text.strip()
    if stripped.lower() == "now":
        return present
    if within := _WITHIN.fullmatch(stripped):
        return present + timedelta(milliseconds=duration_ms(within[1]))
    bare, zone = _zoned(stripped)
    try:
        wall = _in_words(bare, present.astimezone(zone).date()) or datetime.fromisoformat(bare)
        if wall.tzinfo is not None:
            if zone is not UTC:
                raise BadText(text, "a time with an offset or with a zone: it has both")
            return wall.astimezone(UTC)
        return _existing(text, wall, zone)
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, BadText) else BadText(text, TIMES) from error


def spoken(when: datetime | int) -> str:
    """An instant (ms UTC, if a number) for people: in UTC, and as the clock of this machine shows it, if not alike."""
    time = datetime.fromtimestamp(when / 1_000, UTC) if isinstance(when, int) else when
    text, here = iso_text(time), time.astimezone()
    return text if not here.utcoffset() else f"{text} ({here:%Y-%m-%d %H:%M:%S} {here.tzname()})"


def _zoned(text: str) -> tuple[str, tzinfo]:
    """A text without the zone at its end, and the zone: UTC when it names none."""
    match = _ZONE.fullmatch(text)
    name = None if match is None else match[2] or match[3]
    if match is None or name is None or name.lower() in ("am", "pm"):
        return text, UTC
    if name == LOCAL:
        return match[1], _here()
    try:
        return match[1], zone_of(name)
    except BadValue as error:
        wrong_zone = BadText(name, "the name of a time zone, as Europe/Rome, or local")
        raise (wrong_zone if match[1][0].isdigit() or _DAY.fullmatch(match[1]) else BadText(text, TIMES)) from error


def _here() -> tzinfo:
    """The zone of this machine, with its rules where they have a name."""
    for name in (
        os.environ.get("TZ", "").lstrip(":"),
        str(Path("/etc/localtime").resolve()).rpartition("zoneinfo/")[2],
    ):
        with suppress(BadValue):
            return zone_of(name)
    return datetime.now().astimezone().tzinfo or UTC


def _in_words(text: str, today: date) -> datetime | None:
    """A day in words with a time of day; None: no words."""
    match = _DAY.fullmatch(text)
    if match is None:
        return None
    hour, minute, half = int(match[2] or 0), int(match[3] or 0), (match[4] or "").lower()
    if half:
        if not 1 <= hour <= _NOON:
            raise ValueError(text)
        hour = hour % _NOON + (_NOON if half == "pm" else 0)
    day = today + timedelta(days=match[1].lower() == "tomorrow")
    return datetime.combine(day, time_of_day(hour, minute))


def _existing(text: str, wall: datetime, zone: tzinfo) -> datetime:
    """What a clock on the wall of a zone shows, as an instant."""
    first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    utc = first.astimezone(UTC)
    if utc.astimezone(zone).replace(tzinfo=None, fold=0) != wall:
        raise BadText(text, f"a time that exists in {zone}: the clocks go forward over it")
    if first.utcoffset() != second.utcoffset():
        raise BadText(text, f"one time in {zone}: it comes twice; say {first:%z} or {second:%z} instead of the zone")
    return utc
