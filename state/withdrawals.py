"""What commands say of positions that wait: cancels, undos and other due times in, what is not to be delivered out.

The order of commands does not matter, and none counts twice: what is cancelled is the union of all cancels, each less
what was undone of it, and of the rounds of a position only the highest one that a command made is delivered. So whoever
reads the same rows, in whatever order and pieces, comes to the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from state.positionset import PositionSet, last_of_each
from state.retry import MAX_ROUND
from state.runs import Runs

_NOTHING = PositionSet()


class Round(NamedTuple):
    """What commands name: positions of one life of a subscription that were redelivered equally often.

    Each is delivered once at most, in one of its rounds: there is another one for each due time that it was given.
    """

    topic: str
    subscription: str
    life: int
    redelivery_count: int


class Span(NamedTuple):
    """Rounds that are not to be delivered, and why.

    Attributes:
        of: what commands name.
        first: the first of these rounds.
        end: the round behind the last one.
        moved: True: the positions come in a later round. False: they were cancelled.
    """

    of: Round
    first: int
    end: int
    moved: bool


Rounds = Mapping[int, PositionSet]
"""Positions of one name by their rounds."""
Parts = dict[Round, PositionSet]
"""Positions by what commands name."""


@dataclass
class Withdrawals:
    """What commands say.

    Attributes:
        cancelled: positions that a command withdraws, by its id.
        undone: positions of which a command was taken back, by the id of that command.
        moved: positions that got another due time, by the round in which they are due at that time.
    """

    cancelled: dict[str, Parts] = field(default_factory=dict)
    undone: dict[str, Parts] = field(default_factory=dict)
    moved: dict[int, Parts] = field(default_factory=dict)

    def cancel(self, command: str, of: Round, positions: PositionSet) -> None:
        """A command withdraws positions. O(containers)."""
        _add(self.cancelled.setdefault(command, {}), of, positions)

    def undo(self, command: str, of: Round, positions: PositionSet) -> None:
        """What a command says of positions is taken back, also when the command comes later. O(containers)."""
        _add(self.undone.setdefault(command, {}), of, positions)

    def move(self, to: int, of: Round, positions: PositionSet) -> None:
        """Positions are due at another time in a round, and in none before it. O(containers)."""
        _add(self.moved.setdefault(to, {}), of, positions)

    def follow(self, others: Withdrawals) -> None:
        """What other commands, or other rows of the same ones, say counts, too. O(containers of the others)."""
        for command, parts in others.cancelled.items():
            for of, positions in parts.items():
                self.cancel(command, of, positions)
        for command, parts in others.undone.items():
            for of, positions in parts.items():
                self.undo(command, of, positions)
        for to, parts in others.moved.items():
            for of, positions in parts.items():
                self.move(to, of, positions)

    def left_out(self) -> dict[Span, PositionSet]:
        """Which rounds of which positions are not to be delivered. O(containers)."""
        found = {Span(of, 0, MAX_ROUND + 1, moved=False): each for of, each in self.in_force().items()}
        moved = ((to, of, each) for to, parts in self.moved.items() for of, each in parts.items())
        return found | {Span(of, 0, to, moved=True): each for to, of, each in moved}

    def in_force(self) -> Parts:
        """The positions that are cancelled. O(containers)."""
        return merged(left(parts, self.undone.get(command, {})) for command, parts in self.cancelled.items())


def left(parts: Parts, less: Parts) -> Parts:
    """What is in some parts and not in others; rounds of which nothing is left are left out."""
    found = {of: positions - less.get(of, _NOTHING) for of, positions in parts.items()}
    return {of: positions for of, positions in found.items() if len(positions)}


def merged(each: Iterable[Parts]) -> Parts:
    """What is in any of some parts. O(containers)."""
    found: dict[Round, list[PositionSet]] = defaultdict(list)
    for parts in each:
        for of, positions in parts.items():
            found[of].append(positions)
    return {of: PositionSet.union(sets) for of, sets in found.items()}


def free(wanted: PositionSet, released: Rounds, left_out: Rounds, to: int) -> PositionSet:
    """Those of which no round was taken, none may be, and none from one round on is in the index.

    Args:
        wanted: positions that a command gives another due time.
        released: what became due.
        left_out: what of it is left out for a later round.
        to: the round that the command makes.
    """
    taken = [positions - left_out.get(number, _NOTHING) for number, positions in released.items()]
    return wanted - PositionSet.union([*taken, *(each for number, each in released.items() if number >= to)])


def due_of(runs: Runs, positions: PositionSet) -> Runs:
    """When positions are due that runs name; of two times of a position the later one counts. O(n log n).

    Args:
        runs: in any order; they may overlap.
        positions: of which runs name all.
    """
    named = PositionSet.of_runs(runs)
    if runs.messages == len(named) and named == positions:
        return runs
    each = runs.expanded()
    order = np.lexsort((each.due, each.entry_ids, each.ledger_ids))
    due, ledgers, entries = (column[order] for column in (each.due, each.ledger_ids, each.entry_ids))
    mine = last_of_each(ledgers, entries) & positions.holds(ledgers, entries)
    return Runs(due[mine], ledgers[mine], entries[mine], entries[mine])


def count(parts: Parts) -> int:
    """How many positions, of all rounds."""
    return sum(len(positions) for positions in parts.values())


def _add(parts: Parts, of: Round, positions: PositionSet) -> None:
    parts[of] = parts.get(of, _NOTHING) | positions
