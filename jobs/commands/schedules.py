"""Schedules on the command line: what is stated of one, and the times at which it comes, as text or JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from jobs.commands.columns import in_columns
from jobs.commands.jsonform import record
from pipeline.client.subscribing.calendars import calendars
from pipeline.client.subscribing.schedules import ScheduleState
from pipeline.config.printed import printable
from pipeline.config.spelling import iso_text, spell
from pipeline.subscriptions.calendars import NO_CALENDARS
from pipeline.subscriptions.schedules import Schedule
from schemas import SCHEDULES
from state.localtime import local_time, offset_s
from state.recurrence import Applied, Occurrence
from state.units import Ms

_HEADS = ("LOCAL TIME", "OFFSET", "UTC", "RULE")
_NAMES = {"name": "schedule", "start": "from", "limit": "occurrences", "message_key": "key"}
"""Columns that have another name in JSON."""
_LISTED = ("NAME", "TOPIC", "WHEN", "ZONE", "NEXT DUE")
_RULES = {
    Applied.GAP_AFTER: "{} is skipped: right after it",
    Applied.FOLD_FIRST: "{} comes twice: the first",
    Applied.FOLD_BOTH: "{} comes twice: both",
    Applied.DAY_OFF_NEXT: "{} is a day off: the next one",
    Applied.DAY_OFF_PREVIOUS: "{} is a day off: the one before",
}


@dataclass(frozen=True)
class Coming:
    """An occurrence of a schedule, as it is shown.

    Attributes:
        occurrence: its time, ms UTC.
        local_time: what clocks of its zone show then.
        utc_offset: how far they are ahead of UTC.
        due: when its message is due: the jitter later, ms UTC.
        nominal: the local time that the notation says.
        rules: why it is not that time, or which of two it is.
    """

    occurrence: int
    local_time: str
    utc_offset: str
    due: int
    nominal: str
    rules: tuple[str, ...]


def coming(schedule: Schedule, after_ms: int, count: int) -> list[Coming]:
    """The next occurrences of a schedule after an instant (ms UTC)."""
    return [_shown(schedule, each) for each in islice(schedule.recurrence.after(Ms(after_ms)), count)]


def lines(found: Sequence[Coming]) -> Iterator[str]:
    """For people: a line each, in columns."""
    if not found:
        yield "It does not come any more."
        return
    heads = (*_HEADS, "DUE") if any(each.due != each.occurrence for each in found) else _HEADS
    yield from in_columns(heads, [_row(each)[: len(heads)] for each in found])


def stated(root: str | None, values: Mapping[str, Any]) -> Schedule:
    """What options state of a schedule that has no name yet; its calendar is one of a warehouse.

    Raises:
        BadValue: it cannot be followed.
    """
    row = {**values, "name": "preview", "topic": "preview", "days_off": " ".join(values["days_off"] or ())}
    return Schedule.of_row(row, NO_CALENDARS if root is None else calendars(root))


def listed(found: Sequence[ScheduleState]) -> Iterator[str]:
    """For people: a line for each schedule, and why some are not followed."""
    if not found:
        yield "No schedule."
        return
    yield from in_columns(_LISTED, [_line(each) for each in found])
    for each in found:
        if each.error is not None:
            yield f"{printable(each.name)} is not followed: {printable(each.error)}"


def as_record(name: str, schedule: Schedule | None, **others: Any) -> dict[str, Any]:  # noqa: ANN401 - what JSON can hold
    """A schedule for scripts; one that cannot be followed has its name, and why."""
    if schedule is None:
        return {"schedule": name, **record(**others)}
    held = {_NAMES.get(each, each): getattr(schedule, each) for each in SCHEDULES.columns.names}
    times = {each: held[each] if held[each] is None else iso_text(held[each]) for each in ("from", "until", "set_at")}
    return {**held, **times, "days_off": list(schedule.days_off), **record(**others)}


def states(found: Sequence[ScheduleState]) -> list[dict[str, Any]]:
    """The same of all that are listed."""
    return [as_record(each.name, each.schedule, next_due=each.next_due, error=each.error) for each in found]


def described(schedule: Schedule) -> Iterator[str]:
    """For people: what a schedule says, but for what is so if nothing is said."""
    for name, value in as_record(schedule.name, schedule).items():
        if value not in (None, "", 0, [], {}, False):
            yield f"{name} = {printable(str(value))}"


def when(schedule: Schedule) -> str:
    """What a schedule says of when it comes, without its zone."""
    return schedule.cron or schedule.rrule or f"every {spell(schedule.every_ms or 0)}"


def _line(each: ScheduleState) -> list[str]:
    found = each.schedule
    if found is None:
        return [printable(each.name), "-", "-", "-", "not followed"]
    due = "paused" if found.paused else "-" if each.next_due is None else iso_text(each.next_due)
    return [printable(each.name), printable(found.topic), printable(when(found)), found.zone, due]


def _shown(schedule: Schedule, each: Occurrence) -> Coming:
    zone = schedule.recurrence.zone
    clock, nominal = local_time(each.at, zone), each.nominal
    return Coming(
        each.at,
        _clock(clock),
        _offset(offset_s(each.at, zone)),
        schedule.due(each),
        _clock(nominal),
        _texts(each.rules),
    )


def _texts(rules: Iterable[Applied]) -> tuple[str, ...]:
    return tuple(each.value for each in rules)


def _clock(local: datetime) -> str:
    return local.isoformat(sep=" ", timespec="milliseconds" if local.microsecond else "seconds")


def _offset(seconds: int) -> str:
    sign, span = "-" if seconds < 0 else "+", timedelta(seconds=abs(seconds))
    return f"{sign}{str(span).zfill(8).removesuffix(':00')}"


def _row(each: Coming) -> list[str]:
    rule = "; ".join(_RULES[Applied(name)].format(each.nominal) for name in each.rules) or "-"
    return [each.local_time, each.utc_offset, iso_text(each.occurrence), rule, iso_text(each.due)]
