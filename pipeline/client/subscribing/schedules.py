"""Schedules: set, listed, paused and deleted, as rows of the table `schedules`, a commit each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Unpack

from deltalake import DeltaTable
from deltalake.schema import PrimitiveType

from pipeline.client.clock import clock_of
from pipeline.client.exceptions import ScheduleNotFound
from pipeline.client.options import refuse, spelled_out
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.arguments import HowScheduled
from pipeline.client.subscribing.calendars import calendars
from pipeline.client.tables.partitions import partition_counts
from pipeline.config.errors import BadValue, check_kind, check_text
from pipeline.config.spelling import iso_text
from pipeline.delta.deltars import open_table, query, quoted, replace_rows, retried
from pipeline.subscriptions.calendars import NO_CALENDARS, Calendars
from pipeline.subscriptions.schedules import Schedule, ScheduleRow, schedule_rows
from schemas import SCHEDULES
from state.units import Ms

_ROWS = "SELECT * FROM schedules"
_NAMED = "SELECT * FROM schedules WHERE name = {name}"
_TEXT = PrimitiveType("string")


@dataclass(frozen=True)
class ScheduleState:
    """A row of the table.

    Attributes:
        name: its name.
        schedule: what it says; None: it cannot be followed.
        error: why it cannot.
        next_due: when its next message is due, ms UTC; None: it is paused, has ended, or cannot be followed.
    """

    name: str
    schedule: Schedule | None
    error: str | None
    next_due: int | None


@spelled_out(HowScheduled)
def set_schedule(root: str, name: str, topic: str, **how: Unpack[HowScheduled]) -> Schedule:
    """Set a schedule, in the place of the one that has the name, by one commit.

    A running job follows within seconds: what the schedule has planned before and has not come is taken back.

    Args:
        root: the warehouse.
        name: its name.
        topic: where its messages go.
        **how: see `HowScheduled`.

    Raises:
        BadValue: it cannot be followed, or never comes.
        NoWarehouse: the folder lacks the table.
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    refuse({}, how, HowScheduled.__optional_keys__)
    row: dict[str, Any] = {**how, "name": name, "topic": topic}
    _check_name(name)
    for each in ("start", "until"):
        check_kind(each, row.get(each), (datetime, type(None)), "a time with its time zone")
        if row.get(each) is not None and row[each].tzinfo is None:
            raise BadValue(each, row[each].isoformat(), "a time with its time zone")
    row["set_at"] = clock_of(root).wall_time().replace(microsecond=0)
    if row.get("start") is None and (row.get("rrule") is not None or row.get("limit") is not None):
        row["start"] = row["set_at"]
    days = row.get("days_off") or ()
    if not isinstance(days, list | tuple) or not all(isinstance(each, str) for each in days):
        raise BadValue("days_off", days, "a list of days as 2026-12-25")
    row["days_off"] = " ".join(days)
    check_kind("properties", row.get("properties"), (Mapping, type(None)), "texts by name")
    made = Schedule.of_row(row, _days_for(root, [row]))
    made.check_comes()
    _replace(root, name, lambda _: made)
    return made


def schedules(root: str) -> list[ScheduleState]:
    """All schedules, by name; those that cannot be followed with the reason.

    Raises:
        NoWarehouse: the folder lacks the table.
    """
    now, rows = Ms(clock_of(root).wall()), query(_ROWS, schedules=open_table(root, SCHEDULES))
    return [state_of(each, now) for each in schedule_rows(rows, _days_for(root, rows))]


def schedule(root: str, name: str) -> Schedule:
    """The schedule of a name.

    Raises:
        ScheduleNotFound: there is no such schedule.
        BadValue: it cannot be followed.
        NoWarehouse: the folder lacks the table.
    """
    _check_name(name)
    return _of_rows(root, name, _held(open_table(root, SCHEDULES), name))


def pause_schedule(root: str, name: str) -> Schedule:
    """Let a schedule send nothing until it is resumed; what it has planned is taken back.

    Raises:
        ScheduleNotFound: there is no such schedule.
        BadValue: it cannot be followed.
        NoWarehouse, StillConflicting: as for `set_schedule`.
    """
    return _changed(root, name, paused=True)


def resume_schedule(root: str, name: str) -> Schedule:
    """Let a schedule go on; what would have come meanwhile does not. It raises what `pause_schedule` does."""
    return _changed(root, name, paused=False, set_at=clock_of(root).wall())


def delete_schedule(root: str, name: str) -> None:
    """Delete a schedule; what it has planned is taken back.

    Raises:
        ScheduleNotFound: there is no such schedule.
        NoWarehouse, StillConflicting: as for `set_schedule`.
    """

    def none(held: list[dict[str, Any]]) -> None:
        if not held:
            raise ScheduleNotFound(name)

    _replace(root, name, none)


def run_schedule_now(root: str, name: str) -> str:
    """Send the message of a schedule now, beside those that it sends; gives the occurrence that it says.

    Raises:
        ScheduleNotFound: there is no such schedule.
        BadValue: it cannot be followed.
        NoWarehouse, StillConflicting: as for `set_schedule`.
    """
    found = schedule(root, name)
    now = Ms(clock_of(root).wall_us() // 1_000)
    columns, count = found.message(now), partition_counts(root).get(found.topic, 0)
    topic, key = found.partition(now, count), columns["message_key"]
    message = OutgoingMessage(topic, columns["payload"], None, key, dict(columns["properties"]))
    send(root, [message])
    return iso_text(now)


def state_of(row: ScheduleRow, now: Ms) -> ScheduleState:
    """How a schedule stands at a time."""
    found = row.schedule
    coming = None if found is None or found.paused else next(found.recurrence.after(Ms(now - 1)), None)
    return ScheduleState(row.name, found, row.error, None if coming is None or found is None else found.due(coming))


def _days_for(root: str, rows: Sequence[Mapping[str, Any]]) -> Calendars:
    """The calendars of the warehouse, if rows name some."""
    return calendars(root) if any(row.get("calendar") is not None for row in rows) else NO_CALENDARS


def _of_rows(root: str, name: str, held: list[dict[str, Any]]) -> Schedule:
    """The schedule of a name.

    Raises:
        ScheduleNotFound: there is no such schedule.
        BadValue: it cannot be followed.
    """
    if not held:
        raise ScheduleNotFound(name)
    if len(held) > 1:
        raise BadValue("name", name, "one row for each schedule: two rows have it")
    return Schedule.of_row(held[0], _days_for(root, held))


def _held(opened: DeltaTable, name: str) -> list[dict[str, Any]]:
    """The rows of a name. A table whose names are no texts, or that has none, has no row of any name."""
    is_there = any(each.name == "name" and each.type == _TEXT for each in opened.schema().fields)
    return query(_NAMED.format(name=quoted(name)), schedules=opened) if is_there else []


def _check_name(name: str) -> None:
    check_kind("name", name, str, "a name")
    check_text("name", name)


def _changed(root: str, name: str, **columns: Any) -> Schedule:  # noqa: ANN401 - columns of a schedule
    made = list[Schedule]()

    def change(held: list[dict[str, Any]]) -> Schedule:
        made[:] = [replace(_of_rows(root, name, held), **columns)]
        return made[0]

    _replace(root, name, change)
    return made[0]


def _replace(root: str, name: str, decide: Callable[[list[dict[str, Any]]], Schedule | None]) -> None:
    """Put a row in the place of those that have a name, or none, by one commit in which nobody else changed them."""
    _check_name(name)

    def write(opened: DeltaTable) -> None:
        found = decide(_held(opened, name))
        replace_rows(opened, SCHEDULES, [] if found is None else [found.as_row()], f"name = {quoted(name)}")

    retried(root, SCHEDULES, write)
