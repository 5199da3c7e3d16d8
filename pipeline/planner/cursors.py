"""How far each schedule is planned, in memory: which occurrences are to be appended next, without asking all of them.

Of each schedule all occurrences up to an instant are planned, and the next one after it if that is not too far behind.
So the next one of each is among what waits, and can be seen, though it be in a month.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.subscriptions.schedules import CatchUp, Schedule
from state.recurrence import Occurrence
from state.units import Ms

Planned = tuple[Schedule, list[Ms]]
"""A schedule, and when it occurs. A plan has a million of these: numbers cost the collector of garbage nothing."""


@dataclass
class _Cursor:
    """A schedule: the last occurrence that is planned, and the next one that is not."""

    schedule: Schedule
    rest: Iterator[Occurrence]
    last: int
    next: Occurrence | None
    turn: int = 0

    def emitted(self, until: int, ahead_ms: int, now: int) -> list[Ms]:
        """When it occurs of what is to be planned for an instant; of what was missed by now what is caught up."""
        missed, found = list[Ms](), list[Ms]()
        self._skip(now - self.schedule.catch_up_within_ms)
        while self.next is not None and (
            self.next.at <= until or (self.last <= until and self.next.at <= until + ahead_ms)
        ):
            if self.next.at >= now:
                found.append(self.next.at)
            elif self.schedule.catch_up != CatchUp.NONE.value:
                if self.schedule.catch_up == CatchUp.LATEST.value:
                    missed.clear()
                missed.append(self.next.at)
            self.last, self.next = self.next.at, next(self.rest, None)
        return [*missed, *found]

    def _skip(self, since: int) -> None:
        """Leave out what was missed too long ago, however much that is."""
        if self.next is not None and self.next.at < since:
            self.rest = self.schedule.recurrence.after(Ms(since - 1))
            self.next = next(self.rest, None)


class Cursors:
    """All schedules that are followed."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms
        self._cursors: dict[str, _Cursor] = {}
        self._heap: list[tuple[int, str, int]] = []
        self._turns = 0

    @property
    def next_turn(self) -> int | None:
        """When planning until then brings something, ms UTC; None: never."""
        while self._heap:
            key, name, turn = self._heap[0]
            if name in self._cursors and self._cursors[name].turn == turn:
                return key
            heapq.heappop(self._heap)
        return None

    def resume(self, schedule: Schedule, until: int, ahead_ms: int) -> None:
        """Follow a schedule that was planned until an instant, with the next one so far behind it."""
        rest = schedule.recurrence.after(Ms(until))
        first = next(rest, None)
        cursor = _Cursor(schedule, rest, until, first)
        if first is not None and first.at <= until + ahead_ms:
            cursor.last, cursor.next = first.at, next(rest, None)
        self._put(cursor, until)

    def begin(self, schedule: Schedule, since: int) -> None:
        """Follow a schedule of which nothing is planned, from an instant on."""
        rest = schedule.recurrence.after(Ms(since - 1))
        self._put(_Cursor(schedule, rest, -1, next(rest, None)), -1)

    def drop(self, name: str) -> None:
        """Follow a schedule no more."""
        self._cursors.pop(name, None)

    def until(self, until: int, now: int) -> Iterator[Planned]:
        """What is to be planned for an instant beside what is planned; of what was missed by now what is caught up.

        All that was missed has to be before the instant.
        """
        while (turn := self.next_turn) is not None and turn <= until:
            _, name, _ = heapq.heappop(self._heap)
            cursor = self._cursors[name]
            found = cursor.emitted(until, self._ahead_ms, now)
            self._put(cursor, until)
            if found:
                yield cursor.schedule, found

    def _put(self, cursor: _Cursor, until: int) -> None:
        self._turns += 1
        cursor.turn = self._turns
        self._cursors[cursor.schedule.name] = cursor
        if cursor.next is not None:
            key = cursor.last if cursor.last > until else cursor.next.at - self._ahead_ms
            heapq.heappush(self._heap, (key, cursor.schedule.name, cursor.turn))
