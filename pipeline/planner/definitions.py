"""The definitions of schedules at a version of their table: those that can be followed, and why others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.config.errors import BadValue, VersionGone
from pipeline.config.lazyspark import raised
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.planner.plans import NEVER
from pipeline.subscriptions.schedules import TWICE, Schedule
from schemas import SCHEDULES

_ROWS = "SELECT * FROM {rows} ORDER BY name"


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


def definitions(warehouse: Warehouse, version: int) -> Definitions:
    """What the table says at a version.

    Raises:
        VersionGone: it does not have that version any more.
    """
    if version == NEVER:
        return Definitions()
    try:
        rows = ask(warehouse, SCHEDULES, _ROWS, version)
    except raised("PySparkException", "SessionNeeded") as error:
        raise VersionGone(SCHEDULES.name, version, "_delta_log") from error
    names = Counter(row["name"] for row in rows)
    found, refused = dict[str, Schedule](), dict[str, str]()
    for row in rows:
        name = str(row["name"] or "")
        if names[row["name"]] > 1:
            refused[name] = TWICE
            continue
        try:
            schedule = Schedule.of_row(row)
            if not schedule.paused:
                found[name] = schedule
        except BadValue as error:
            refused[name] = str(error)
    return Definitions(found, refused)
