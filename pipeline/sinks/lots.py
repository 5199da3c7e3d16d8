"""What a sink takes up, and in which order it is published.

A *lot* is a part that dispatch has prepared, or rows of a version of `deliveries`. A sink takes it up
when it finds it: on the shelf, before its deliveries are due, or else in the log, when they are visible. Parts that one
version shows may overlap; those of which the sink has none yet become one lot, merged by place. The *turn* of a
delivery is the time at which it is due, or that at which the sink took up the lot if that was later. Deliveries are
published in the order of their turns; of equal ones in that of the numbers of their lots, and then in that of the lot.
The sink notes since when it has each lot before it publishes anything of it, and it takes up nothing at a turn that has
passed. So the order is the same for whoever goes on after it, and whatever comes later comes behind.

A lot of two rows that are due at 5 and 9 ms, taken up at 7 ms: the turn of the first one is 7, since that has passed.

    >>> due = [{"due_time": 5_000}, {"due_time": 9_000}]
    >>> lot = Lot(number=3, files=(("f", 0),), count=2, size=40, span=(5, 9), since=7)
    >>> [(turn, ms) for turn, ms, _ in lot.rows(lambda lot: iter([([1, 2], due)]))]
    [(7, 5), (9, 9)]
    >>> lot.first, lot.last, lot.after
    (7, 10, 8)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.client.tables.datarows import data_file
from pipeline.config.stages import DISPATCH
from pipeline.delta.logs.entries import appended, note_of
from pipeline.delta.logs.filestats import count, span_ms
from pipeline.dispatch.prepared import Prepared, Visible
from pipeline.sinks.topic import Row
from pipeline.subscriptions.sinkplaces import Place, TurnPlace

DUE = "due_time"
_SHIFT = 20
"""A lot that is taken up late has 2^20 rows in one turn at most: brokers know a place in a turn by a bounded number."""
Added = Mapping[str, Any]
"""A file as a version names it: its path and its statistics."""
Read = Callable[["Lot"], Iterator[tuple[list[int], list[dict[str, Any]]]]]
"""Reads a lot: places in it, from 1 on, and rows, whose due time is in us UTC; some thousand at once."""


@dataclass
class Lot:
    """What is taken up together.

    Attributes:
        number: of the part; that of a version is below 0.
        files: those that may hold something for the sink, and how many rows of the lot lie before each.
        count: rows.
        size: bytes.
        span: from when to when they are due, ms UTC.
        version: the one that makes it visible; None: it is on the shelf.
        skip: so many of its first rows are published.
        since: when the sink took it up, ms UTC.
        ended: the turn of its last delivery for the sink, when that was taken; 0: it had none.
        overlapping: all its files, when their rows are merged by place; (): they come one after the other.
    """

    number: int
    files: tuple[tuple[str, int], ...]
    count: int
    size: int
    span: tuple[int, int]
    version: int | None = None
    skip: int = 0
    since: int = 0
    ended: int | None = None
    overlapping: tuple[Added, ...] = ()

    @property
    def first(self) -> int:
        """No turn of it is before this one."""
        return max(self.span[0], self.since)

    @property
    def last(self) -> int:
        """No turn of it is behind this one. Statistics are in whole ms, rounded down."""
        return max(self.span[1] + 1, self.after - 1)

    @property
    def after(self) -> int:
        """When the next lot may be taken up."""
        return self.since + (self.count >> _SHIFT) + 1

    def rows(self, read: Read) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Its deliveries for the sink: turn, due time (both ms UTC), row."""
        turn = 0
        for places, rows in read(self):
            for place, row in zip(places, rows, strict=True):
                due = -(-row[DUE] // 1_000)
                turn = max(turn, due, self.since + (place - 1 >> _SHIFT))
                if place > self.skip:
                    yield turn, due, row


def lots_of(
    version: int,
    actions: Iterable[Mapping[str, Any]],
    wanted: Mapping[str, str],
    skip: int = 0,
    known: Collection[int] = (),
) -> list[Lot]:
    """What a version made visible for a sink: parts that are known, and the rest as one lot.

    Args:
        version: of `deliveries`.
        actions: of its commit.
        wanted: topic and subscription.
        skip: so many rows of the version are published; then all of it is one lot.
        known: numbers of the parts that the sink has taken up.
    """
    actions = list(actions)
    adds, commit = appended(actions), note_of(actions)
    note = {} if commit is None or commit.stage != DISPATCH or skip else commit.note
    parts = _parted(adds, note.get("parts", ()), [each[1] for each in note.get("shown", ())])
    if parts is None:
        parts = {-1 - version: [*adds]}
    rest = [number for number in parts if number < 0 or number not in known]
    number = rest[0] if len(rest) == 1 else -1 - version
    lots = {each: files for each, files in parts.items() if each not in rest}
    lots |= {number: [file for each in rest for file in parts[each]]} if rest else {}
    made = (_lot(each, files, wanted, version, skip, merge=each == -1 - version) for each, files in lots.items())
    return [lot for lot in made if lot.files]


def prepared_lots(prepared: Prepared, visible: Visible, wanted: Mapping[str, str]) -> list[Lot]:
    """What of a batch on the shelf is not visible, for a sink."""
    made = (
        _lot(part.number, [{"path": each.path, "stats": each.stats, "size": each.size} for each in part.files], wanted)
        for _, part in visible.hidden([prepared])
    )
    return [lot for lot in made if lot.files]


def visible_by(actions: Iterable[Mapping[str, Any]]) -> Visible | None:
    """Which parts are visible, as a commit of dispatch says it; None: it is somebody else's."""
    commit = note_of(actions)
    return Visible.of(commit.note) if commit is not None and commit.stage == DISPATCH else None


def _parted(adds: list[dict[str, Any]], numbers: Iterable[int], counts: list[int]) -> dict[int, list[Added]] | None:
    """The files of each part, which are in the order of the parts; None: that is not told."""
    left, parts = list(adds), dict[int, list[Added]]()
    for number, rows in zip(numbers, counts, strict=False):
        held = 0
        while left and held < rows:
            held += count(left[0].get("stats")) or 0
            parts.setdefault(number, []).append(left.pop(0))
    return None if left else parts


def _lot(
    number: int,
    files: Collection[Added],
    wanted: Mapping[str, str],
    version: int | None = None,
    skip: int = 0,
    *,
    merge: bool = False,
) -> Lot:
    before, size, mine, spans = 0, 0, list[tuple[str, int]](), list[tuple[int, int]]()
    for each in files:
        if data_file(each).may_hold(wanted):
            mine.append((each["path"], before))
            spans.append(_span(each))
            size += each.get("size") or 0
        before += count(each.get("stats")) or 0
    span = min((first for first, _ in spans), default=0), max((last for _, last in spans), default=0)
    return Lot(
        number, tuple(mine), before, size, span, version, skip, overlapping=tuple(files) if merge and mine else ()
    )


def _span(file: Added) -> tuple[int, int]:
    try:
        return span_ms(file.get("stats"), DUE)
    except KeyError:
        # Of a file that somebody else wrote; what is visible is due.
        return 0, 0


class Queue:
    """Deliveries of lots, in the order of their turns. A lot is read when its first turn comes, some rows at a time."""

    def __init__(self, read: Read, place: Place, passed: int = 0) -> None:
        """Nothing is in it. What lies before a place is passed over; what has a turn that has passed was due."""
        self._read, self._place, self._passed = read, place, max(place[0] - 1, passed)
        self._waiting, self._open = list[tuple[int, int]](), list[tuple[int, int]]()
        self._lots = dict[int, tuple[Lot, Iterator[tuple[int, int, dict[str, Any]]]]]()
        self._heads = dict[int, tuple[int, dict[str, Any]]]()
        self._at = TurnPlace(0, 0)

    def add(self, lot: Lot) -> None:
        """Put a lot in; none of its turns has passed, or the place says so."""
        if lot.last < self._place[0]:
            lot.ended = lot.last
        else:
            self._lots[lot.number] = lot, lot.rows(self._read)
            heapq.heappush(self._waiting, (lot.first, lot.number))

    @property
    def turn(self) -> int:
        """The turn of what was taken last."""
        return self._at.turn

    def take(self, now: int, most: int, most_bytes: int) -> tuple[list[Row], bool]:
        """What is due or visible by now, with the place of each; whether there may be more."""
        found, size = list[Row](), 0
        while (due := self.next_due()) is not None and due <= now:
            turn, number = self._open[0]
            _, row = self._heads[number]
            self._advance()
            self._at = TurnPlace(turn, 1 + (self._at.deliveries if turn == self._at.turn else 0))
            if self._at <= self._place:
                continue
            found.append((self._at, row))
            size += len(row["payload"] or b"")
            if len(found) == most or size >= most_bytes:
                return found, True
        return found, False

    def behind(self, place: TurnPlace) -> TurnPlace:
        """The place as far on as it can be said: behind the whole turn when nothing more of it is there."""
        self._read_upto(place.turn)
        more = self._open and self._open[0][0] <= place.turn
        return place if more else TurnPlace(place.turn + 1, 0)

    def next_due(self) -> int | None:
        """When the next one may be published, ms UTC; 0: it was due, or is visible; None: there is none."""
        while self._waiting and (not self._open or self._waiting[0] < self._open[0]):
            self._begin()
        if not self._open:
            return None
        turn, number = self._open[0]
        may_go = turn <= self._passed or self._lots[number][0].version is not None
        return 0 if may_go else self._heads[number][0]

    def read_ahead(self, upto: int, most_bytes: int) -> bool:
        """Begin to read a lot whose turn comes up to a time, ms UTC, unless much is held already; whether it did."""
        held = sum(self._lots[number][0].size for number in self._heads)
        if not self._waiting or self._waiting[0][0] > upto or held >= most_bytes:
            return False
        self._begin()
        return True

    def _read_upto(self, turn: int) -> None:
        while self._waiting and self._waiting[0][0] <= turn:
            self._begin()

    def _begin(self) -> None:
        _, number = heapq.heappop(self._waiting)
        self._next_of(number, 0)

    def _advance(self) -> None:
        last, number = heapq.heappop(self._open)
        self._next_of(number, last)

    def _next_of(self, number: int, last: int) -> None:
        lot, rows = self._lots[number]
        turn, due, row = next(rows, (None, 0, {}))
        if turn is None:
            lot.ended = last
            del self._lots[number]
            self._heads.pop(number, None)
        else:
            self._heads[number] = due, row
            heapq.heappush(self._open, (turn, number))
