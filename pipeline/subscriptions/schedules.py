"""Schedules: what recurs, when, and the message that comes each time. A schedule is a row of the table `schedules`.

Users set schedules by the client, by the command, or by any Delta writer. Rows are checked when the client or the
command sets them, and again by whoever follows them: what cannot be followed is listed, and stops nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from pipeline.config.errors import BadValue, check_kind, check_text
from pipeline.config.settings import DAY_MS, MINUTE_MS
from pipeline.config.spelling import iso_text, range_text
from pipeline.config.zones import zone
from pipeline.subscriptions.calendars import DAY, NO_CALENDARS, Calendars, checked_name, day_of
from pipeline.subscriptions.topicnames import plain_topic, routed
from schemas import SCHEDULES
from state.errors import InvalidArgument, OutOfRange
from state.localtime import Fold, Gap
from state.recurrence import DayOff, Occurrence, Recurrence
from state.units import Ms

SCHEDULE, OCCURRENCE = "delayline.schedule", "delayline.occurrence"
"""Properties of a message that comes by a schedule: its name, and the time of the occurrence (ISO, UTC)."""
PLACE_OF_OCCURRENCE = "{occurrence}"
"""In a payload it stands for that time."""
TWICE = "name = two rows have it, allowed: one row for each schedule"
"""Why rows are not followed that have the same name."""
MOST_NAME, MOST_DAYS_OFF = 200, 1_000
MOST_BYTES = 1 << 20
"""Of the texts of a message: the planner holds the messages of some minutes of all schedules."""
MOST_CATCH_UP_MS = 366 * DAY_MS
_E = TypeVar("_E", bound=StrEnum)
GAPS = (Gap.AFTER, Gap.SKIP)
"""What a schedule may say of a local time that clocks skip."""


class CatchUp(StrEnum):
    """What becomes of occurrences that were missed, because no job ran."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True)
class Schedule:
    """What recurs.

    Attributes:
        name: its name in the warehouse.
        topic: where its messages go.
        cron: five fields, or six with the second first.
        rrule: or a rule of RFC 5545; it begins at `start`, which it needs.
        every_ms: or a span of real time, from a second on, counted from `start`, or from 1970.
        zone: a time zone of the IANA database, whose local times they are.
        start: nothing comes before, ms UTC.
        until: nothing comes after, ms UTC.
        limit: so many come, counted from `start`, which it needs.
        jitter_ms: each is due up to so much later, by a hash of name and time; a day at most.
        days_off: local days, as 2026-12-25.
        calendar: the name of a calendar, whose days are off, too.
        on_day_off: what becomes of what falls on one: `skip`, `next`, `previous`.
        on_gap: what becomes of a local time that clocks skip: `after`, `skip`; None: what the notation says.
        on_fold: what becomes of one that comes twice: `first`, `both`; None: what the notation says.
        catch_up: what becomes of what was missed: `all`, `latest`, `none`.
        catch_up_within_ms: what was missed longer ago does not come.
        message_key: of each message.
        properties: of each message, beside those that name the schedule and the occurrence.
        payload: of each message; `{occurrence}` in it stands for the time of the occurrence.
        paused: nothing comes until it is resumed.
        set_at: when it was set or resumed, ms UTC: what occurs from then on may be caught up; None: from when the job
            notices it.
        off: the days of the calendar.

    Raises:
        BadValue: it cannot be followed.
    """

    name: str
    topic: str
    cron: str | None = None
    rrule: str | None = None
    every_ms: int | None = None
    zone: str = "UTC"
    start: int | None = None
    until: int | None = None
    limit: int | None = None
    jitter_ms: int = 0
    days_off: tuple[str, ...] = ()
    calendar: str | None = None
    on_day_off: str = DayOff.SKIP.value
    on_gap: str | None = None
    on_fold: str | None = None
    catch_up: str = CatchUp.LATEST.value
    catch_up_within_ms: int = DAY_MS
    message_key: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    payload: str = ""
    paused: bool = False
    set_at: int | None = field(default=None, compare=False)
    off: frozenset[date] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be followed, but for what never comes: to know that may take a second."""
        for name in _TEXTS:
            check_text(name, getattr(self, name))
        for name in _STATED:
            check_kind(name, getattr(self, name), str, "a text")
        for name in (*_NUMBERS, *_TIMES):
            _check_number(name, getattr(self, name))
        check_kind("jitter_ms", self.jitter_ms, int, "a whole number")
        check_kind("catch_up_within_ms", self.catch_up_within_ms, int, "a whole number")
        check_kind("paused", self.paused, bool, "true, false")
        if not self.name.strip() or len(self.name) > MOST_NAME:
            raise BadValue("name", self.name, f"a name of at most {MOST_NAME} characters")
        if not plain_topic(self.topic).strip():
            raise BadValue("topic", self.topic, "a name")
        object.__setattr__(self, "topic", plain_topic(self.topic))
        self._check_message()
        _chosen("catch_up", self.catch_up, CatchUp)
        if not MINUTE_MS <= self.catch_up_within_ms <= MOST_CATCH_UP_MS:
            allowed = f"a whole number in {range_text('catch_up_within_ms', MINUTE_MS, MOST_CATCH_UP_MS)}"
            raise BadValue("catch_up_within_ms", self.catch_up_within_ms, allowed)
        _ = self.recurrence

    def _check_message(self) -> None:
        check_kind("properties", self.properties, Mapping, "texts by name")
        for name, text in self.properties.items():
            check_kind("property", name, str, "a name")
            check_text("property", name)
            check_text(f"property {name[:MOST_NAME]}", text)
            if name in (SCHEDULE, OCCURRENCE):
                raise BadValue("property", name, "another name: this one is set for each message")
        if self.message_bytes > MOST_BYTES:
            allowed = f"{MOST_BYTES} bytes at most, with properties and key"
            raise BadValue("payload", f"{self.message_bytes} bytes", allowed)

    @cached_property
    def message_bytes(self) -> int:
        """How long the texts of a message are, about."""
        texts = (self.payload, self.message_key, *self.properties.keys(), *self.properties.values())
        return sum(len(each.encode()) for each in texts if each is not None)

    @cached_property
    def recurrence(self) -> Recurrence:
        """When it comes.

        Raises:
            BadValue: as for the schedule.
        """
        with _refused():
            return Recurrence(
                self.cron,
                self.rrule,
                self.every_ms,
                zone(self.zone),
                None if self.start is None else Ms(self.start),
                None if self.until is None else Ms(self.until),
                self.limit,
                self.jitter_ms,
                self.off | _days(self.days_off) if self.days_off else self.off,
                _chosen("on_day_off", self.on_day_off, DayOff),
                None if self.on_gap is None else _chosen("on_gap", self.on_gap, Gap),
                None if self.on_fold is None else _chosen("on_fold", self.on_fold, Fold),
            )

    def check_comes(self) -> None:
        """Refuse what never comes, since it was set.

        Raises:
            BadValue: there is not one occurrence.
        """
        with _refused():
            self.recurrence.check_comes(self.set_at or 0)

    def due(self, occurrence: Occurrence) -> Ms:
        """When the message of an occurrence is due."""
        return self.recurrence.due(self.name, occurrence.at)

    def partition(self, at: int, partitions: int) -> str:
        """The topic of the message of an occurrence (ms UTC), or its partition, of so many; 0: it has none.

        A key says which one it is, as for what is sent; without one occurrences are spread.
        """
        said = self.name + iso_text(at) if self.message_key is None else self.message_key
        return routed(self.topic, said, 0, partitions)

    def message(self, at: Ms) -> dict[str, Any]:
        """The columns of `inbox` that the message of an occurrence has, but for its times."""
        text = iso_text(at)
        return {
            "topic": self.topic,
            "message_key": self.message_key,
            "properties": [*self.properties.items(), (SCHEDULE, self.name), (OCCURRENCE, text)],
            "payload": self.payload.replace(PLACE_OF_OCCURRENCE, text).encode(),
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any], calendars: Calendars = NO_CALENDARS) -> Schedule:
        """From a row of the table, where NULL stands for what a column is if nothing is said.

        Args:
            row: columns by name.
            calendars: those of the warehouse.

        Raises:
            BadValue: it cannot be followed.
        """
        given = {name: row[name] for name in _COLUMNS if row.get(name) is not None}
        for name in _TIMES & given.keys():
            check_kind(name, given[name], datetime, _TIME)
            if given[name].tzinfo is None:
                raise BadValue(name, given[name].isoformat(), _TIME)
            given[name] = (given[name] - _EPOCH) // timedelta(milliseconds=1)
        if "properties" in given:
            given["properties"] = _texts_by_name(given["properties"])
        if "days_off" in given:
            check_kind("days_off", given["days_off"], str, "days as 2026-12-25, with blanks between them")
            given["days_off"] = tuple(given["days_off"].replace(",", " ").split())
        if "calendar" in given:
            given["off"] = calendars.off(checked_name(given["calendar"], "calendar"))
        return cls(**{"name": "", "topic": "", **given})

    def as_row(self) -> dict[str, Any]:
        """The columns of the table."""
        row = {name: getattr(self, name) for name in _COLUMNS}
        for name in _TIMES:
            row[name] = None if row[name] is None else _EPOCH + timedelta(milliseconds=row[name])
        row["properties"] = dict(self.properties) or None
        row["days_off"] = " ".join(self.days_off) or None
        return row


_COLUMNS = tuple(SCHEDULES.columns.names)
_STATED = ("name", "topic", "zone", "on_day_off", "catch_up", "payload")
_TEXTS = (*_STATED, "cron", "rrule", "calendar", "on_gap", "on_fold", "message_key")
_NUMBERS = ("every_ms", "limit", "jitter_ms", "catch_up_within_ms")
_TIMES = {"start", "until", "set_at"}
_TIME = "a time with its time zone"
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True)
class ScheduleRow:
    """A row of the table, as everybody reads it.

    Attributes:
        name: its name; empty: it has none.
        schedule: what it says; None: it cannot be followed.
        error: why it cannot.
    """

    name: str
    schedule: Schedule | None
    error: str | None = None


def schedule_rows(rows: Iterable[Mapping[str, Any]], calendars: Calendars = NO_CALENDARS) -> list[ScheduleRow]:
    """The rows of the table, by name. Any Delta writer may write it, so a row may lack columns, or have others.

    Args:
        rows: columns by name.
        calendars: those of the warehouse.
    """
    read = [_read(row, calendars) for row in rows]
    counts = Counter(each.name for each in read)
    found = (ScheduleRow(each.name, None, TWICE) if _is_twice(each, counts) else each for each in read)
    return sorted(found, key=lambda each: each.name)


def _read(row: Mapping[str, Any], calendars: Calendars) -> ScheduleRow:
    name = row.get("name")
    try:
        schedule = Schedule.of_row(row, calendars)
    except BadValue as error:
        text = "" if name is None else str(name)
        return ScheduleRow(text if len(text) <= MOST_NAME else f"{text[:MOST_NAME]}...", None, str(error))
    return ScheduleRow(schedule.name, schedule)


def _is_twice(row: ScheduleRow, counts: Mapping[str, int]) -> bool:
    """Whether another row has the name, unless that cannot be followed anyway."""
    return row.schedule is not None and counts[row.name] > 1


def _check_number(name: str, value: object) -> None:
    """Refuse what is neither nothing nor a whole number.

    Raises:
        BadValue: it is something else.
    """
    if isinstance(value, bool):
        raise BadValue(name, value, "a whole number")
    check_kind(name, value, (int, type(None)), "a whole number")


def _texts_by_name(given: object) -> dict[Any, Any]:
    """The properties of a row: a map, or its pairs.

    Raises:
        BadValue: they are something else.
    """
    try:
        return dict(given)  # type: ignore[call-overload, no-any-return] # what does not fit raises
    except (TypeError, ValueError) as error:
        raise BadValue("properties", given, "texts by name") from error


def _chosen(name: str, text: str, choices: type[_E]) -> _E:
    """The choice of a text.

    Raises:
        BadValue: it is none.
    """
    if text not in [each.value for each in choices]:
        raise BadValue(name, text, ", ".join(GAPS if choices is Gap else choices))
    return choices(text)


def _days(texts: tuple[str, ...]) -> frozenset[date]:
    """Days from their texts.

    Raises:
        BadValue: one is no day, or they are too many.
    """
    if len(texts) > MOST_DAYS_OFF:
        raise BadValue("days_off", f"{len(texts)} days", f"{MOST_DAYS_OFF} at most")
    try:
        return frozenset(map(day_of, texts))
    except BadValue as error:
        raise BadValue("days_off", error.value, DAY) from error


@contextmanager
def _refused() -> Iterator[None]:
    """What the core refuses, as the pipeline says it."""
    try:
        yield
    except OutOfRange as error:
        allowed = f"a whole number in {range_text(error.field, error.low, error.high)}"
        raise BadValue(error.field, error.value, allowed) from error
    except InvalidArgument as error:
        raise BadValue(error.field, error.value, error.allowed) from error
