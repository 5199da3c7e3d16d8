"""The definitions of schedules at versions of their tables: those that can be followed, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipeline.config.errors import VersionGone
from pipeline.config.lazyspark import raised
from pipeline.config.routes import SessionNeeded
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.subscriptions.calendars import NO_CALENDARS, calendars_of
from pipeline.subscriptions.scheduleplans import NEVER, Versions
from pipeline.subscriptions.schedules import Schedule, schedule_rows
from schemas import CALENDARS, SCHEDULES, Table

_ROWS = "SELECT * FROM {rows}"
"""As they are: nobody says which columns the table has."""


@dataclass(frozen=True)
class Definitions:
    """Definitions by name.

    Attributes:
        schedules: those that can be followed, and are not paused.
        refused: why rows cannot be followed, by the name of the schedule.
    """

    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    def changed(self, before: Definitions) -> set[str]:
        """The names whose definitions are others than before."""
        names = self.schedules.keys() | before.schedules.keys()
        return {each for each in names if self.schedules.get(each) != before.schedules.get(each)}


def definitions(warehouse: Warehouse, versions: Versions) -> Definitions:
    """What the tables say at versions.

    Raises:
        VersionGone: one does not have that version any more.
    """
    if versions[0] == NEVER:
        return Definitions()
    days = calendars_of(_rows(warehouse, CALENDARS, versions[1])) if versions[1] != NEVER else NO_CALENDARS
    found = schedule_rows(_rows(warehouse, SCHEDULES, versions[0]), days)
    followed = {each.name: each.schedule for each in found if each.schedule is not None and not each.schedule.paused}
    return Definitions(followed, {each.name: each.error for each in found if each.error is not None})


def _rows(warehouse: Warehouse, table: Table, version: int) -> Iterator[dict[str, Any]]:
    try:
        rows = ask(warehouse, table, _ROWS, version)
    except raised("PySparkException", SessionNeeded) as error:
        raise VersionGone(table.name, version, "_delta_log") from error
    return (row if isinstance(row, dict) else _of_spark(row.asDict()) for row in rows)


def _of_spark(row: dict[str, Any]) -> dict[str, Any]:
    """A row with times of UTC; Spark gives those of the machine, without a zone."""
    return {name: _utc(each) if isinstance(each, datetime) else each for name, each in row.items()}


def _utc(time: datetime) -> datetime | None:
    """The same in UTC; as elsewhere a time that Python has no number for is NULL."""
    try:
        return time.astimezone(UTC)
    except (OverflowError, ValueError):
        return None
