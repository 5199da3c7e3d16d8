"""Positions that a command names, with the due time and the round of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pipeline.storage.arrays import IntArray
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round


@dataclass(frozen=True)
class Chosen:
    """Positions of a subscription that were redelivered equally often; all columns are ordered by position.

    Attributes:
        of: what commands name them by.
        ledgers: int64.
        entries: int64.
        due: when each is due, ms UTC, int64.
        rounds: the round in which it is due then, int64.
        until: what is written of them counts at least until then, ms UTC.
    """

    of: Round
    ledgers: IntArray
    entries: IntArray
    due: IntArray
    rounds: IntArray
    until: int = 0

    @property
    def positions(self) -> PositionSet:
        """As a set."""
        return PositionSet.of(Positions.of(self.ledgers, self.entries, self.entries))

    def less(self, other: PositionSet) -> Chosen:
        """Those that are not in a set."""
        return self.where(~other.holds(self.ledgers, self.entries))

    def only(self, other: PositionSet) -> Chosen:
        """Those that are in a set."""
        return self.where(other.holds(self.ledgers, self.entries))

    def where(self, flags: npt.NDArray[np.bool_]) -> Chosen:
        """Some of them."""
        columns = {name: getattr(self, name)[flags] for name in ("ledgers", "entries", "due", "rounds")}
        return replace(self, **columns)

    def latest(self, other: Chosen | None) -> Chosen:
        """The same, each in the later one of its rounds; there may be others among the other ones."""
        if other is None:
            return self
        mine = other.only(self.positions)
        place = np.flatnonzero(mine.positions.holds(self.ledgers, self.entries))
        later = mine.rounds > self.rounds[place]
        due, rounds = self.due.copy(), self.rounds.copy()
        due[place[later]], rounds[place[later]] = mine.due[later], mine.rounds[later]
        return replace(self, due=due, rounds=rounds)
