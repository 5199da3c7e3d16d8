"""What commands withdraw: cancels and undos in, the positions that are not to be delivered out.

The order of commands does not matter, and none counts twice: what is in force is the union of all cancels, each less
what was undone of it. So whoever reads the same rows, in whatever order and pieces, comes to the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from state.positionset import PositionSet

_NOTHING = PositionSet()


class Round(NamedTuple):
    """What positions are withdrawn of: one round of one life of a subscription."""

    topic: str
    subscription: str
    life: int
    redelivery_count: int


Parts = dict[Round, PositionSet]
"""Positions by their rounds."""


@dataclass
class Withdrawals:
    """What commands say, by the id of the command that a row belongs to or takes back.

    Attributes:
        cancelled: positions that a command withdraws.
        undone: positions of which it was taken back.
    """

    cancelled: dict[str, Parts] = field(default_factory=dict)
    undone: dict[str, Parts] = field(default_factory=dict)

    def cancel(self, command: str, of: Round, positions: PositionSet) -> None:
        """A command withdraws positions. O(containers)."""
        _add(self.cancelled.setdefault(command, {}), of, positions)

    def undo(self, command: str, of: Round, positions: PositionSet) -> None:
        """What a command says of positions is taken back, also when the command comes later. O(containers)."""
        _add(self.undone.setdefault(command, {}), of, positions)

    def in_force(self) -> Parts:
        """The positions that are not to be delivered. O(containers)."""
        found: dict[Round, list[PositionSet]] = defaultdict(list)
        for command, parts in self.cancelled.items():
            for of, positions in left(parts, self.undone.get(command, {})).items():
                found[of].append(positions)
        return {of: PositionSet.union(sets) for of, sets in found.items()}


def left(parts: Parts, less: Parts) -> Parts:
    """What is in some parts and not in others; rounds of which nothing is left are left out."""
    found = {of: positions - less.get(of, _NOTHING) for of, positions in parts.items()}
    return {of: positions for of, positions in found.items() if len(positions)}


def both(one: Parts, other: Parts) -> Parts:
    """What is in one of two parts."""
    return {of: one.get(of, _NOTHING) | other.get(of, _NOTHING) for of in one.keys() | other.keys()}


def count(parts: Parts) -> int:
    """How many positions, of all rounds."""
    return sum(len(positions) for positions in parts.values())


def _add(parts: Parts, of: Round, positions: PositionSet) -> None:
    parts[of] = parts.get(of, _NOTHING) | positions
