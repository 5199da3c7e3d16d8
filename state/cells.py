"""The rules of settling for one ledger: bitmaps of entries by what holds for them, and how events move entries.

A cell is a bitmap of the entries that are in one condition, in one round, after one number of redeliveries. Mostly a
ledger has one cell. An event costs what it touches: in each cell, the containers (2^16 entries) of its own entries.

Entries 0 to 4 are released, 1 is acknowledged, and the delivery of 3 fails. It waits for its second round:

    >>> cells = {}
    >>> _ = release_first(cells, BitMap(range(5)))
    >>> _ = settle(cells, BitMap([1]))
    >>> _ = put_back(cells, BitMap([3]), 0, RetryPolicy())
    >>> for cell, entries in cells.items():
    ...     print(cell.condition.name, "round", cell.round, "failed", cell.redelivery_count, list(entries))
    OUTSTANDING round 0 failed 0 [0, 2, 4]
    WAITING round 1 failed 1 [3]
    >>> _ = release_again(cells, BitMap([3]), 1)
    >>> [(cell.condition.name, cell.delivered_with, list(entries)) for cell, entries in cells.items()]
    [('OUTSTANDING', 0, [0, 2, 4]), ('OUTSTANDING', 1, [3])]
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from pyroaring import BitMap

from state.retry import RetryPolicy
from state.settling import Reason


class Condition(IntEnum):
    """What holds for a position that is not forgotten yet.

    Attributes:
        OUTSTANDING: released, and not settled.
        WAITING: in the index, for its next round: it failed, or a command gave it another due time.
        WITHDRAWN: settled, with a round in the index that is yet to be released.
    """

    OUTSTANDING = 0
    WAITING = 1
    WITHDRAWN = 2


class Cell(NamedTuple):
    """What all entries of a bitmap have in common; the count is how often each failed, never above the round.

    Of what is withdrawn the count is 0 where it is the round, which it is but for what got another due time.
    """

    condition: Condition
    round: int
    redelivery_count: int

    @property
    def delivered_with(self) -> int:
        """The redelivery count with which it is, or would be, delivered."""
        return self.redelivery_count or (self.round if self.condition == Condition.WITHDRAWN else 0)


class Move(NamedTuple):
    """Where entries were and where they are now; None: in no cell. A reason: why nothing came of it."""

    before: Cell | None
    after: Cell | None
    reason: Reason | None = None

    @property
    def order(self) -> tuple[Cell | tuple[()], Cell | tuple[()], str]:
        """A key to sort by: what a batch says must not depend on the order in which cells were made."""
        return self.before or (), self.after or (), self.reason or ""


Cells = dict[Cell, BitMap]
Moves = list[tuple[Move, BitMap]]
FIRST = Cell(Condition.OUTSTANDING, 0, 0)


def release_first(cells: Cells, entries: BitMap) -> Moves:
    """Round 0 of entries was released: they are outstanding, unless they are known."""
    moves = _moved(cells, entries, [Move(cell, cell, Reason.REPEATED) for cell in cells])
    if entries:
        _put(cells, FIRST, entries)
        moves.append((Move(None, FIRST), entries))
    return moves


def release_again(cells: Cells, entries: BitMap, number: int) -> Moves:
    """A later round of entries was released: what waits for it is outstanding, what was withdrawn is forgotten."""
    moves = _moved(cells, entries, [_released(cell) for cell in cells if cell.round == number])
    if entries:
        moves.append((Move(None, None, Reason.NOT_WAITING), entries))
    return moves


def _released(cell: Cell) -> Move:
    match cell.condition:
        case Condition.WAITING:
            return Move(cell, cell._replace(condition=Condition.OUTSTANDING))
        case Condition.WITHDRAWN:
            return Move(cell, None, Reason.WITHDRAWN)
        case _:
            return Move(cell, cell, Reason.REPEATED)


def settle(cells: Cells, entries: BitMap) -> Moves:
    """Entries are done with, whatever their round; those that stay in `entries` are in no cell."""
    return _moved(cells, entries, [_settled(cell) for cell in cells])


def _settled(cell: Cell) -> Move:
    match cell.condition:
        case Condition.OUTSTANDING:
            return Move(cell, None)
        case Condition.WAITING if not cell.redelivery_count:
            # A command gave it another due time: nobody has got it yet.
            return Move(cell, cell, Reason.NOT_OUTSTANDING)
        case Condition.WAITING:
            count = cell.redelivery_count
            return Move(cell, Cell(Condition.WITHDRAWN, cell.round, 0 if count == cell.round else count))
        case _:
            return Move(cell, cell, Reason.SETTLED)


def leave_out(cells: Cells, entries: BitMap, number: int, *, waits: bool) -> Moves:
    """A round of entries was released and is nobody's: later rounds wait again, round 0 is as if never released."""
    own = [cell for cell in cells if cell.condition == Condition.OUTSTANDING and cell.round == number]
    return _moved(
        cells,
        entries,
        [Move(cell, cell._replace(condition=Condition.WAITING) if number and waits else None) for cell in own],
    )


def move(cells: Cells, entries: BitMap, count: int, number: int, *, fresh: bool) -> Moves:
    """Entries wait for another round: what waits for an earlier one, and what is in no cell if it is fresh."""
    to = Cell(Condition.WAITING, number, count)
    earlier = [c for c in cells if (c.condition, c.redelivery_count) == (Condition.WAITING, count) and c.round < number]
    moves = _moved(cells, entries, [Move(cell, to) for cell in earlier])
    new = entries - BitMap.union(BitMap(), *cells.values()) if fresh else BitMap()
    if new:
        _put(cells, to, new)
        moves.append((Move(None, to), new))
    return moves


def put_back(cells: Cells, entries: BitMap, count: int, policy: RetryPolicy) -> Moves:
    """A delivery of entries failed: what is outstanding waits or is given up; what stays is in no cell."""
    return _moved(cells, entries, [_failed(cell, count, policy) for cell in cells])


def _failed(cell: Cell, count: int, policy: RetryPolicy) -> Move:
    if cell.condition == Condition.WITHDRAWN:
        return Move(cell, cell, Reason.SETTLED)
    if cell.condition == Condition.WAITING or cell.redelivery_count != count:
        return Move(cell, cell, Reason.OTHER_ROUND)
    if policy.gives_up(cell.redelivery_count):
        return Move(cell, None)
    return Move(cell, Cell(Condition.WAITING, cell.round + 1, cell.redelivery_count + 1))


def _moved(cells: Cells, entries: BitMap, moves: Iterable[Move]) -> Moves:
    """Carry out moves for those entries that are where a move begins, and take them out of `entries`."""
    done = []
    for move in moves:
        if move.before is None or not (hit := entries & cells[move.before]):
            continue
        entries -= hit
        if move.after != move.before:
            _take(cells, move.before, hit)
            if move.after is not None:
                _put(cells, move.after, hit)
        done.append((move, hit))
    return done


def _take(cells: Cells, cell: Cell, entries: BitMap) -> None:
    cells[cell] -= entries
    if not cells[cell]:
        del cells[cell]


def _put(cells: Cells, cell: Cell, entries: BitMap) -> None:
    if cell in cells:
        cells[cell] |= entries
    else:
        cells[cell] = entries.copy()
