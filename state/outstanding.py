"""What a subscription's consumers have not settled: the state of settling, events in, effects out.

It holds what is outstanding (released and not settled), waiting (in the index for its next round) and withdrawn
(settled while it waited), and never the history, so its size follows what is open, not what was ever delivered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from state.buckets import MAX_TIME, check_range
from state.cells import Cell, Cells, Condition, Moves, leave_out, move, put_back, release_again, release_first, settle
from state.cells import Move as Step
from state.cursor_bytes import LEDGERS, Counts, Head, block_counts, counted, pack_block, read_block
from state.errors import CorruptBytes
from state.positions import Positions
from state.positionset import PositionSet
from state.retry import RetryPolicy
from state.runs import MAX_ENTRY
from state.settling import (
    Ack,
    Cause,
    Clear,
    Cleared,
    Closed,
    DeadLetter,
    Effect,
    Event,
    Ignored,
    LeftOut,
    Move,
    Moved,
    Nack,
    Reason,
    Released,
    Retry,
    Settling,
)
from state.units import Ms

Position = tuple[int, int]
"""Ledger id, entry id."""
_DEFAULT = RetryPolicy()
_Placed = Released | Settling | LeftOut | Move | Nack
"""Events that name positions."""
_Part = tuple[int, BitMap]
"""A ledger and entries of it."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Bytes of an `Outstanding`: all of it, or what has changed.

    Attributes:
        head: replaces the head before it.
        blocks: by number; replaces the block of this number; None: there is no such block any more.
    """

    head: bytes
    blocks: dict[int, bytes | None]


@dataclass(frozen=True, slots=True)
class Held:
    """Entries of one ledger that have condition, round and redelivery count in common."""

    cell: Cell
    positions: Positions


@dataclass(slots=True)
class _Block:
    """Ledgers of neighbouring ids, as bytes until somebody asks for them, and as both until one of them changes."""

    data: bytes | None = None
    ledgers: dict[int, Cells] | None = field(default_factory=dict)

    def opened(self) -> dict[int, Cells]:
        if self.ledgers is None:
            self.ledgers = read_block(self.data or b"")
        return self.ledgers

    def read(self) -> dict[int, Cells]:
        """The ledgers, without keeping them decoded."""
        return read_block(self.data or b"") if self.ledgers is None else self.ledgers

    def change(self, ledger: int, cells: Cells) -> None:
        """Replace the cells of a ledger; without cells it is gone."""
        ledgers = self.opened()
        self.data = None
        if cells:
            ledgers[ledger] = cells
        else:
            del ledgers[ledger]

    def close(self) -> None:
        """Keep the bytes alone, when there are any."""
        if self.data is not None:
            self.ledgers = None

    def to_bytes(self, number: int) -> bytes:
        if self.data is None:
            self.data = pack_block(number, self.opened())
        return self.data


class Outstanding:
    """The state of settling for one incarnation of a subscription.

    An event costs the containers (2^16 entries of a ledger) that its positions lie in, whatever else is outstanding.
    """

    def __init__(self, version: int = -1, highest: Position | None = None) -> None:
        """Nothing is outstanding; releases up to `version`, up to the position `highest`, count as settled."""
        self._version, self._highest = version, highest
        self._counts = [0, 0, 0]
        self._blocks: dict[int, _Block] = {}
        self._changed: set[int] = set()
        self._open: set[int] = set()

    def handle(self, *events: Event, now: Ms, policy: RetryPolicy = _DEFAULT) -> list[Effect]:
        """Apply events in their order; give what comes of each, in the same order. The one way to change anything.

        A batch gives its releases first. The same state, events, instant and policy give the same effects.

        Args:
            events: what happened.
            now: the instant of the batch, ms UTC.
            policy: what becomes of nacks.

        Raises:
            OutOfRange: `now` not in 0..`MAX_TIME`; nothing was changed.
            CorruptBytes: a block that is touched cannot be read; nothing was changed.
        """
        check_range("now", now, 0, MAX_TIME)
        parts = [[] if isinstance(event, Clear) else list(event.positions.by_ledger()) for event in events]
        for number in {ledger // LEDGERS for part in parts for ledger, _ in part}:
            self._opened(number)
        effects: list[Effect] = []
        read = self._version
        for event, part in zip(events, parts, strict=True):
            if isinstance(event, Clear):
                effects.append(self._clear())
            elif isinstance(event, Released) and event.version <= read:
                effects += [Ignored(Positions.gathered(part), Reason.REPEATED)] if part else []
            else:
                effects += self._apply(event, part, now, policy)
        return effects

    @property
    def counts(self) -> Counts:
        """How many positions are outstanding, waiting and withdrawn. O(1)."""
        return Counts(*self._counts)

    @property
    def version(self) -> int:
        """The newest version of the table of releases that was read; -1: none. O(1)."""
        return self._version

    @property
    def oldest(self) -> Position | None:
        """The lowest position that is outstanding or waiting; None: there is none. O(blocks).

        Every position before it that was released is settled. With the lowest position that the index still holds for
        round 0, it tells how far a subscription is settled without a gap (the mark-delete position).
        """
        for held in self.held(Condition.OUTSTANDING, Condition.WAITING):
            ledger = int(held.positions.ledger_ids[0])
            cells = self._opened(ledger // LEDGERS)[ledger]
            return ledger, min(e.min() for cell, e in cells.items() if cell.condition != Condition.WITHDRAWN)
        return None

    def held(self, *conditions: Condition, first_ledger: int = 0) -> Iterator[Held]:
        """What is in these conditions from a ledger on, in the order ledger, condition, round, redelivery count.

        O(blocks) once, then O(bytes) a block and O(runs) a cell; nothing may change meanwhile.
        """
        for number in sorted(number for number in self._blocks if number >= first_ledger // LEDGERS):
            ledgers = self._blocks[number].read()
            for ledger in sorted(ledger for ledger in ledgers if ledger >= first_ledger):
                for cell in sorted(cell for cell in ledgers[ledger] if cell.condition in conditions):
                    yield Held(cell, Positions.gathered([(ledger, ledgers[ledger][cell])]))

    def unknown(self, positions: PositionSet) -> PositionSet:
        """Those of some positions that are in no condition: settled, or never released. O(blocks, containers)."""
        found = {}
        for ledger, entries in positions.by_ledger():
            cells = self._opened(ledger // LEDGERS).get(ledger, {})
            found[ledger] = entries - BitMap.union(BitMap(), *cells.values())
        return PositionSet(found)

    def within(self, positions: Positions) -> tuple[Positions, Positions]:
        """The part of some positions that may be open, and the part that lies behind all that was released.

        Anybody may name runs of 2^31 entries of ledgers that are not there, which as bitmaps take megabytes each. What
        lies before the last release and is in no condition is in neither part. O(runs, open ledgers).
        """
        ledgers, firsts, lasts = positions.ledger_ids, positions.first_entries, positions.last_entries
        last_ledger, last_entry = self._highest or (-1, -1)
        begin = np.where(ledgers > last_ledger, 0, np.where(ledgers == last_ledger, last_entry + 1, MAX_ENTRY + 1))
        behind = Positions(ledgers, np.maximum(firsts, begin), lasts)
        tops = self._tops(np.unique(ledgers // LEDGERS).tolist())
        known = np.fromiter(tops, np.int64, len(tops))
        place = np.minimum(np.searchsorted(known, ledgers), max(0, len(known) - 1))
        top = np.append(np.fromiter(tops.values(), np.int64, len(tops)), -1)
        ends = np.where(known[place] == ledgers, top[place], -1) if len(known) else np.full(len(ledgers), -1)
        near = Positions(ledgers, firsts, np.minimum(lasts, ends))
        return near.sound(), behind.sound()

    def _tops(self, blocks: Iterable[int]) -> dict[int, int]:
        """The highest entry of each ledger of some blocks that is in a condition, by ledger, ascending."""
        opened = (self._opened(number) for number in blocks if number in self._blocks)
        cells = (each for ledgers in opened for each in sorted(ledgers.items()))
        return {ledger: max(entries.max() for entries in of.values()) for ledger, of in cells}

    def changes(self) -> Cursor:
        """The blocks that have changed since `saved`. O(bytes of these)."""
        return self._cursor(self._changed)

    def snapshot(self) -> Cursor:
        """All blocks. O(bytes); those that have not changed are not encoded again."""
        return self._cursor(self._blocks)

    def saved(self) -> None:
        """Count changes from here on. What was not touched since the last call is kept as bytes alone."""
        for number in self._open - self._changed:
            if number in self._blocks:
                self._blocks[number].close()
        self._open, self._changed = self._changed & self._blocks.keys(), set()

    @classmethod
    def restore(cls, head: bytes, blocks: Mapping[int, bytes]) -> Outstanding:
        """The state of which these are the newest head and, by number, all blocks. O(bytes); none is decoded.

        Raises:
            CorruptBytes: truncated, altered, foreign, of an unknown version, or blocks that the head does not know.
        """
        known = Head.from_bytes(head)
        state = cls(known.version, known.highest)
        for number, data in blocks.items():
            found, counts = block_counts(data)
            if found != number:
                raise CorruptBytes("cursor block", f"it is number {found}, not {number}")
            state._blocks[number] = _Block(data, None)
            state._counts = [a + b for a, b in zip(state._counts, counts, strict=True)]
        if (state.counts, len(blocks)) != (known.counts, known.blocks):
            raise CorruptBytes("cursor", f"blocks hold {state.counts} in {len(blocks)}, the head says {known}")
        return state

    def check_invariants(self) -> None:
        """Decode everything and compare it with the counts. O(bytes).

        Raises:
            CorruptBytes: they differ, or a block cannot be read.
        """
        ledgers = [block.read() for block in self._blocks.values()]
        counts = [sum(each) for each in zip(*(counted(each) for each in ledgers), strict=True)] or [0, 0, 0]
        if counts != self._counts or not all(ledgers):
            raise CorruptBytes("cursor", f"blocks hold {counts}, counted were {self._counts}")
        for number, block in self._blocks.items():
            read_block(block.to_bytes(number))

    def _apply(self, event: _Placed, parts: list[_Part], now: Ms, policy: RetryPolicy) -> Iterator[Effect]:
        """Apply an event to its ledgers; the same moves of all of them are one effect."""
        if isinstance(event, Released):
            self._version = max(self._version, event.version)
        found: dict[Step, list[_Part]] = defaultdict(list)
        for ledger, entries in parts:
            for step, moved in self._move(event, ledger, entries, policy):
                found[step].append((ledger, moved))
        for step in sorted(found, key=lambda step: step.order):
            yield from _effects(event, step, Positions.gathered(found[step]), now, policy)

    def _move(self, event: _Placed, ledger: int, entries: BitMap, policy: RetryPolicy) -> Moves:
        """Apply an event to one ledger."""
        cells = self._opened(ledger // LEDGERS).get(ledger, {})
        match event:
            case Released():
                self._highest = max(self._highest or (0, 0), (ledger, entries.max()))
                moves = release_again(cells, entries, event.round) if event.round else release_first(cells, entries)
            case Nack():
                moves = put_back(cells, entries, event.redelivery_count, policy) + self._unknown(ledger, entries)
            case LeftOut():
                moves = leave_out(cells, entries, event.round, waits=event.waits)
            case Move():
                moves = move(cells, entries, event.redelivery_count, event.round, fresh=event.fresh)
            case _:
                moves = settle(cells, entries) + self._unknown(ledger, entries)
        if any(step.before != step.after for step, _ in moves):
            self._note(ledger, cells, moves)
        return moves

    def _unknown(self, ledger: int, entries: BitMap) -> Moves:
        """Why entries are in no cell, as far as it is known: the history is not kept."""
        highest, last = self._highest or (0, -1)
        end = last + 1 if ledger == highest else 0 if ledger > highest else MAX_ENTRY + 1
        before = BitMap(entries)
        before.remove_range(end, MAX_ENTRY + 1)
        split = ((Reason.NOT_OUTSTANDING, before), (Reason.NEVER_DELIVERED, entries - before))
        return [(Step(None, None, reason), part) for reason, part in split if part]

    def _note(self, ledger: int, cells: Cells, moves: Moves) -> None:
        """Keep the changed cells of a ledger."""
        for step, entries in moves:
            if step.before is not None:
                self._counts[step.before.condition] -= len(entries)
            if step.after is not None:
                self._counts[step.after.condition] += len(entries)
        number = ledger // LEDGERS
        block = self._blocks.setdefault(number, _Block())
        block.change(ledger, cells)
        if not block.opened():
            del self._blocks[number]
        self._changed.add(number)
        self._open.add(number)

    def _opened(self, number: int) -> dict[int, Cells]:
        """The ledgers of a block, decoded; none when there is no such block."""
        if number not in self._blocks:
            return {}
        self._open.add(number)
        return self._blocks[number].opened()

    def _clear(self) -> Cleared:
        counts = self.counts
        self._changed |= self._blocks.keys()
        self._blocks, self._counts = {}, [0, 0, 0]
        return Cleared(counts.outstanding, counts.waiting)

    def _cursor(self, numbers: Iterable[int]) -> Cursor:
        head = Head(self._version, self._highest, self.counts, len(self._blocks))
        blocks = {n: self._blocks[n].to_bytes(n) if n in self._blocks else None for n in sorted(numbers)}
        return Cursor(head.to_bytes(), blocks)


def _effects(event: _Placed, step: Step, positions: Positions, now: Ms, policy: RetryPolicy) -> Iterator[Effect]:
    """What comes of an event for the positions that made one step."""
    before, after = step.before, step.after
    if step.reason is not None:
        yield Ignored(positions, step.reason)
    elif isinstance(event, Move):
        yield Moved(positions, event.round, event.redelivery_count)
    elif before is None or isinstance(event, Released | LeftOut):
        return
    elif not isinstance(event, Nack):
        withdrawn = before.condition == Condition.WAITING
        count = before.redelivery_count
        late = isinstance(event, Ack) and not withdrawn and count not in (0, event.redelivery_count)
        yield Closed(positions, before.round, count, event.cause, withdrawn, late)
    elif after is None:
        yield DeadLetter(positions, before.round, before.redelivery_count, event.reason)
        yield Closed(positions, before.round, before.redelivery_count, Cause.DEAD_LETTER)
    else:
        due = policy.due(now, before.redelivery_count, event.after_ms)
        yield Retry(positions, after.round, after.redelivery_count, due, event.reason)
