"""Positions that a command names, with the due time of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.storage.arrays import IntArray
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Round


@dataclass(frozen=True)
class Chosen:
    """Positions of one round of a subscription; all columns have one length, ordered by position.

    Attributes:
        of: the round.
        ledgers: int64.
        entries: int64.
        due: when each is due, ms UTC, int64.
        until: what is written of them counts at least until then, ms UTC.
    """

    of: Round
    ledgers: IntArray
    entries: IntArray
    due: IntArray
    until: int = 0

    @property
    def positions(self) -> PositionSet:
        """As a set."""
        return PositionSet.of(Positions.of(self.ledgers, self.entries, self.entries))

    def less(self, other: PositionSet) -> Chosen:
        """Those that are not in a set."""
        return self._where(~self._in(other))

    def only(self, other: PositionSet) -> Chosen:
        """Those that are in a set."""
        return self._where(self._in(other))

    def _in(self, other: PositionSet) -> npt.NDArray[np.bool_]:
        """Which are in a set; a ledger at a time."""
        found = np.zeros(len(self.ledgers), np.bool_)
        for ledger, entries in other.by_ledger():
            low, high = np.searchsorted(self.ledgers, (ledger, ledger + 1))
            found[low:high] = np.isin(self.entries[low:high], np.asarray(entries.to_array(), np.int64))
        return found

    def _where(self, flags: npt.NDArray[np.bool_]) -> Chosen:
        return Chosen(self.of, self.ledgers[flags], self.entries[flags], self.due[flags], self.until)
