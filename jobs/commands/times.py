"""Instants on the command line: ISO times, times in words, names of time zones; and back to text."""

import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from jobs.commands.days import in_words
from jobs.commands.durations import BadText, duration_ms
from pipeline.config.errors import BadValue
from pipeline.config.spelling import iso_text
from pipeline.config.zones import zone as zone_of

TIMES = (
    "a time: 2026-01-31, 2026-01-31T12:00:00.250+02:00, 2026-01-31 12:00 Europe/Rome, tomorrow 9am local, tonight, "
    "monday 9am, next friday 17:00, 31 January noon, in 2h, in 5 minutes, 1h ago (UTC when it names no offset and no "
    "zone; a time of day names its day)"
)
LOCAL = "local"
"""The name of the zone of this machine."""
_ZONE = re.compile(r"(.*\S)\s*(?:\[([\w+\-/]+)\]|\s([A-Za-z][\w+\-]*(?:/[\w+\-]+)*))")
_WITHIN = re.compile(r"in\s+(.+)|(?:now\s*)?\+\s*(.+)|(.+)\s+from\s+now", re.IGNORECASE)
_AGO = re.compile(r"(.+)\s+ago|now\s*-\s*(.+)", re.IGNORECASE)


def instant(text: str, now: datetime | None = None) -> datetime:
    """An instant, in UTC.

    Args:
        text: an ISO time; `now`, `in DURATION`, `DURATION ago`; or a day in words with a time of day (`in_words`). The
            name of a time zone may follow, or `local`. Without a zone and an offset it is UTC.
        now: what words count from; None: the time of this machine.

    Raises:
        BadText: another form, or a time that does not exist, or that comes twice, in its zone.
    """
    present, stripped = now or datetime.now(UTC), text.strip()
    if stripped.lower() == "now":
        return present
    try:
        if match := _WITHIN.fullmatch(stripped):
            return present + _span(match)
        if match := _AGO.fullmatch(stripped):
            return present - _span(match)
        return _on_a_day(text, stripped, present)
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, BadText) else BadText(text, TIMES) from error


def _span(match: re.Match[str]) -> timedelta:
    """The duration that a match holds."""
    return timedelta(milliseconds=duration_ms(next(each for each in match.groups() if each is not None)))


def _on_a_day(text: str, stripped: str, present: datetime) -> datetime:
    """An ISO time, or a day in words, in its zone."""
    if wall := in_words(stripped, _shown(present, UTC)):
        return wall.replace(tzinfo=UTC)
    bare, zone = _zoned(stripped, present)
    wall = in_words(bare, _shown(present, zone)) or datetime.fromisoformat(bare)
    if wall.tzinfo is None:
        return _existing(text, wall, zone)
    if zone is not UTC:
        raise BadText(text, "a time with an offset or with a zone: it has both")
    return wall.astimezone(UTC)


def _shown(present: datetime, zone: tzinfo) -> datetime:
    """What a clock on the wall of a zone shows."""
    return present.astimezone(zone).replace(tzinfo=None)


def spoken(when: datetime | int) -> str:
    """An instant (ms UTC, if a number) for people: in UTC, and as the clock of this machine shows it, if not alike."""
    time = datetime.fromtimestamp(when / 1_000, UTC) if isinstance(when, int) else when
    text, here = iso_text(time), time.astimezone()
    return text if not here.utcoffset() else f"{text} ({here:%Y-%m-%d %H:%M:%S} {here.tzname()})"


def _zoned(text: str, present: datetime) -> tuple[str, tzinfo]:
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
        is_time = match[1][0].isdigit() or in_words(match[1], _shown(present, UTC)) is not None
        raise (wrong_zone if is_time else BadText(text, TIMES)) from error


def _here() -> tzinfo:
    """The zone of this machine, with its rules where they have a name."""
    for name in (
        os.environ.get("TZ", "").lstrip(":"),
        str(Path("/etc/localtime").resolve()).rpartition("zoneinfo/")[2],
    ):
        with suppress(BadValue):
            return zone_of(name)
    return datetime.now().astimezone().tzinfo or UTC


def _existing(text: str, wall: datetime, zone: tzinfo) -> datetime:
    """What a clock on the wall of a zone shows, as an instant."""
    first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    utc = first.astimezone(UTC)
    if utc.astimezone(zone).replace(tzinfo=None, fold=0) != wall:
        raise BadText(text, f"a time that exists in {zone}: the clocks go forward over it")
    if first.utcoffset() != second.utcoffset():
        raise BadText(text, f"one time in {zone}: it comes twice; say {first:%z} or {second:%z} instead of the zone")
    return utc
