"""What recurs, for who looks at it: how schedules stand, and what of them is not planned yet."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pipeline.client.tables.partitions import partition_counts
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import open_table, path_of, query
from pipeline.delta.logs.opening import table_at
from pipeline.storage.arrays import IntArray
from pipeline.storage.files import Files
from pipeline.subscriptions.calendars import NO_CALENDARS, calendars_of
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.scheduleplans import NAME, NEVER, Plan, PlanFile
from pipeline.subscriptions.schedules import Schedule, ScheduleRow, schedule_rows
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import CALENDARS, INBOX, SCHEDULES
from state import proportional_deliver_at
from state.recurrence import Occurrence
from state.units import Ms
from state.windows import place_hashes

_ROWS = "SELECT * FROM t"


@dataclass(frozen=True, eq=False)
class SchedulesView:
    """What tables say of schedules, at their versions.

    Attributes:
        tables: `schedules`, and `calendars` where it is there.
        rows: by name.
    """

    tables: tuple[DeltaTable, ...]
    rows: tuple[ScheduleRow, ...]

    @property
    def followed(self) -> list[Schedule]:
        """Those that can be followed, and are not paused."""
        return [each.schedule for each in self.rows if each.schedule is not None and not each.schedule.paused]

    def is_of(self, tables: tuple[DeltaTable, ...]) -> bool:
        """Whether tables say the same."""
        return [_place(each) for each in tables] == [_place(each) for each in self.tables]


def schedules_view(root: str, known: SchedulesView | None = None) -> SchedulesView:
    """The schedules as they are now; what is known of them already when nothing has changed.

    Raises:
        NoWarehouse: the folder lacks the table.
    """
    tables = (open_table(root, SCHEDULES), *_calendars(root))
    return known if known is not None and known.is_of(tables) else _view(tables)


def _view(tables: tuple[DeltaTable, ...]) -> SchedulesView:
    days = calendars_of(query(_ROWS, t=tables[1])) if len(tables) > 1 else NO_CALENDARS
    return SchedulesView(tables, tuple(schedule_rows(query(_ROWS, t=tables[0]), days)))


def plan_of(root: str) -> Plan | None:
    """How far schedules are planned; None: nothing is, or nobody knows."""
    found = PlanFile(Files(), root).read(open_table(root, INBOX).transaction_version(NAME))
    return None if found is None else found[0]


class SchedulesFollower:
    """Looks at the schedules of a warehouse again and again; several threads may."""

    def __init__(self, root: str) -> None:
        """Look at nothing yet."""
        self._root, self._lock = root, threading.Lock()
        self._known: SchedulesView | None = None

    def look(self) -> SchedulesView:
        """The schedules as they are now.

        Raises:
            NoWarehouse: the folder lacks the table.
        """
        with self._lock:
            self._known = schedules_view(self._root, self._known)
            return self._known


def unplanned(root: str, topics: Topics, begin: int, end: int) -> dict[str, dict[int, int]]:
    """What schedules send within a span that is not planned yet: numbers of messages by topic, and by due time.

    It is so if no schedule changes; of changes that no job has noticed yet only new schedules are told. Where a topic
    has a window, messages are spread over the opening as others are.

    Args:
        root: the warehouse.
        topics: their policies.
        begin: ms UTC.
        end: what is due then or later is left out, ms UTC.
    """
    plan, found, followed, new = plan_of(root), dict[str, Counter[int]](), list[Schedule](), set[str]()
    # A warehouse of an earlier version has no schedules.
    with suppress(NoWarehouse):
        view = schedules_view(root)
        followed, new = view.followed, set() if plan is None else _new(root, view, plan)
    partitions = partition_counts(root) if followed else {}
    for schedule in followed:
        every = [*_occurrences(schedule, None if schedule.name in new else plan, begin, end)]
        at = np.array([each.at for each in every], np.int64)
        asked = np.array([schedule.due(each) for each in every], np.int64)
        due, divided = _due(at, asked, schedule, topics.of(schedule.topic)), partitions.get(schedule.topic, 0)
        for occurrence, then in zip(every, due, strict=True):
            if then < end:
                found.setdefault(schedule.partition(occurrence.at, divided), Counter())[then] += 1
    return {topic: dict(sent) for topic, sent in found.items() if sent}


def _new(root: str, view: SchedulesView, plan: Plan) -> set[str]:
    """The names of schedules of which nothing is planned, since no job has noticed them; none where nobody knows."""
    if plan.version in (NEVER, view.tables[0].version()):
        return set()
    # The log may be cut behind that version.
    with suppress(DeltaError):
        planned = _view((table_at(path_of(root, SCHEDULES), plan.version), *view.tables[1:])).followed
        return {each.name for each in view.followed} - {each.name for each in planned}
    return set()


def _occurrences(schedule: Schedule, plan: Plan | None, begin: int, end: int) -> Iterator[Occurrence]:
    """Those that are not planned: behind the end of the plan, but for the next one if that is planned, too."""
    since = begin if plan is None else max(begin - 1, plan.until)
    found = schedule.recurrence.after(Ms(since if plan is None else plan.until))
    first = next(found, None)
    is_planned = plan is not None and first is not None and first.at <= plan.until + plan.ahead_ms
    every: Iterable[Occurrence] = found if first is None or is_planned else _with(first, found)
    return (each for each in takewhile(lambda each: each.at < end, every) if each.at > since)


def _with(first: Occurrence, rest: Iterator[Occurrence]) -> Iterator[Occurrence]:
    yield first
    yield from rest


def _due(at: IntArray, asked: IntArray, schedule: Schedule, policies: TopicPolicies) -> list[int]:
    """When messages that are sent at some times, and ask for others, are due by the policies of their topic."""
    floor = at + (policies.floor_ms or 0)
    due = floor if policies.fixed_delay_ms is not None else np.maximum(asked, floor)
    if policies.proportional is not None:
        due = proportional_deliver_at(due, at)
    if (opening := policies.opening) is not None:
        named = None if opening.zone.property is None else schedule.properties.get(opening.zone.property)
        zones = None if named is None else pa.repeat(pa.scalar(named, pa.string()), len(due))
        hashes = place_hashes(np.zeros(len(due), np.int64), np.arange(len(due)))
        due = opening.put_off(due, hashes, zones=zones)
    found: list[int] = due.tolist()
    return found


def _calendars(root: str) -> Iterator[DeltaTable]:
    """The table of calendars; a warehouse that an earlier version of this project made has none."""
    with suppress(NoWarehouse):
        yield open_table(root, CALENDARS)


def _place(table: DeltaTable) -> tuple[int, str]:
    return table.version(), str(table.metadata().id)
