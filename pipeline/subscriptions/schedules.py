"""Schedules: what recurs, when, and the message that comes each time. A schedule is a row of the table `schedules`.

Users set schedules by the client, by the command, or by any Delta writer. Rows are checked when the client or the
command sets them, and again by whoever follows them: what cannot be followed is listed, and stops nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from pipeline.config.errors import BadValue, check_kind, check_text
from pipeline.config.settings import DAY_MS, MINUTE_MS
from pipeline.config.spelling import iso_text, range_text
from pipeline.config.zones import zone
from pipeline.subscriptions.topicnames import plain_topic
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
MOST_CATCH_UP_MS = 366 * DAY_MS
_E = TypeVar("_E", bound=StrEnum)


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

    def __post_init__(self) -> None:
        """Refuse what cannot be followed, but for what never comes: to know that may take a second."""
        for name in ("name", "topic", "zone", "on_day_off", "catch_up", "payload"):
            check_kind(name, getattr(self, name), str, "a text")
        for name in ("name", "topic", "zone", "cron", "rrule", "on_day_off", "on_gap", "on_fold", "catch_up"):
            check_text(name, getattr(self, name))
        check_kind("paused", self.paused, bool, "true, false")
        check_kind("catch_up_within_ms", self.catch_up_within_ms, int, "a whole number")
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
        for name in ("message_key", "payload"):
            check_text(name, getattr(self, name))
        check_kind("properties", self.properties, Mapping, "texts by name")
        for name, text in self.properties.items():
            check_text("property", name)
            check_text(f"property {name}", text)
            if name in (SCHEDULE, OCCURRENCE):
                raise BadValue("property", name, "another name: this one is set for each message")

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
                _days(self.days_off),
                _chosen("on_day_off", self.on_day_off, DayOff),
                None if self.on_gap is None else _chosen("on_gap", self.on_gap, Gap),
                None if self.on_fold is None else _chosen("on_fold", self.on_fold, Fold),
            )

    def check_comes(self) -> None:
        """Refuse what never comes.

        Raises:
            BadValue: there is not one occurrence.
        """
        with _refused():
            self.recurrence.check_comes()

    def due(self, occurrence: Occurrence) -> Ms:
        """When the message of an occurrence is due."""
        return self.recurrence.due(self.name, occurrence.at)

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
    def of_row(cls, row: Mapping[str, Any]) -> Schedule:
        """From a row of the table, where NULL stands for what a column is if nothing is said.

        Raises:
            BadValue: it cannot be followed.
        """
        given = {each.name: row[each.name] for each in fields(cls) if row.get(each.name) is not None}
        for name in _TIMES:
            if isinstance(given.get(name), datetime):
                given[name] = (given[name] - _EPOCH) // timedelta(milliseconds=1)
        if "properties" in given:
            given["properties"] = dict(given["properties"])
        if "days_off" in given:
            given["days_off"] = tuple(given["days_off"].replace(",", " ").split())
        return cls(**{"name": "", "topic": "", **given})

    def as_row(self) -> dict[str, Any]:
        """The columns of the table."""
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in _TIMES:
            row[name] = None if row[name] is None else _EPOCH + timedelta(milliseconds=row[name])
        row["properties"] = dict(self.properties) or None
        row["days_off"] = " ".join(self.days_off) or None
        return row


_TIMES = ("start", "until", "set_at")
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _chosen(name: str, text: str, choices: type[_E]) -> _E:
    """The choice of a text.

    Raises:
        BadValue: it is none.
    """
    if text not in [each.value for each in choices]:
        raise BadValue(name, text, ", ".join(each.value for each in choices if each is not Gap.SHIFTED))
    return choices(text)


def _days(texts: tuple[str, ...]) -> frozenset[date]:
    """Days from their texts.

    Raises:
        BadValue: one is no day, or they are too many.
    """
    if len(texts) > MOST_DAYS_OFF:
        raise BadValue("days_off", f"{len(texts)} days", f"{MOST_DAYS_OFF} at most")
    found = set[date]()
    for each in texts:
        try:
            found.add(datetime.strptime(each, "%Y-%m-%d").date())  # noqa: DTZ007 - a local day
        except ValueError as error:
            raise BadValue("days_off", each, "days as 2026-12-25") from error
    return frozenset(found)


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
