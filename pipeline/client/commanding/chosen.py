"""Positions that a command names, with the due time and the round of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.delta.deltars import quoted
from pipeline.storage.arrays import IntArray, longs
from state.positionset import PositionSet, last_of_each
from state.runs import Runs
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
        until: what is written of each counts at least until then, ms UTC, int64: no round of it was due later. A
            message may have been moved to before the mark of what is settled, and comes all the same.
    """

    of: Round
    ledgers: IntArray
    entries: IntArray
    due: IntArray
    rounds: IntArray
    until: IntArray

    @classmethod
    def of_runs(cls, of: Round, parts: Sequence[tuple[int, Runs]], until: Sequence[Runs] = ()) -> Self:
        """Positions of runs in any order, with the round of each of the runs; of each position the last round.

        Of two times in a round the later one counts, as for settle.

        Args:
            of: what commands name them by.
            parts: the rounds and their runs.
            until: times until which positions of these runs count at least, beside those at which they are due.
        """
        each = [(number, runs.expanded()) for number, runs in parts]
        rounds = np.concatenate([np.full(len(one), number) for number, one in each])
        ledgers, entries, due = (
            np.concatenate([getattr(one, name) for _, one in each]) for name in ("ledger_ids", "entry_ids", "due")
        )
        order = np.lexsort((due, rounds, entries, ledgers))
        order = order[last_of_each(ledgers[order], entries[order])]
        latest = _latest([*(runs for _, runs in parts), *until])
        return cls(of, ledgers[order], entries[order], due[order], rounds[order], latest)

    @classmethod
    def of_rows(cls, of: Round, rows: pa.Table, until: int = 0) -> Self:
        """First rounds, of rows ordered by position: `ledger_id`, `entry_id` and `due_ms`."""
        ledgers, entries, due = (longs(rows, name) for name in ("ledger_id", "entry_id", "due_ms"))
        return cls(of, ledgers, entries, due, np.zeros(len(due), np.int64), np.maximum(due, until))

    @property
    def positions(self) -> PositionSet:
        """As a set."""
        return PositionSet.at(self.ledgers, self.entries)

    def due_at(self, place: tuple[int, int]) -> int | None:
        """When the position (ledger, entry) is due, ms UTC; None: it is not among them."""
        here = np.flatnonzero((self.ledgers == place[0]) & (self.entries == place[1]))
        return int(self.due[here[0]]) if len(here) else None

    def less(self, other: PositionSet) -> Chosen:
        """Those that are not in a set."""
        return self.where(~other.holds(self.ledgers, self.entries))

    def only(self, other: PositionSet) -> Chosen:
        """Those that are in a set."""
        return self.where(other.holds(self.ledgers, self.entries))

    def where(self, flags: npt.NDArray[np.bool_]) -> Chosen:
        """Some of them."""
        columns = {name: getattr(self, name)[flags] for name in ("ledgers", "entries", "due", "rounds", "until")}
        return replace(self, **columns)

    def latest(self, other: Chosen | None) -> Chosen:
        """The same, each in the later one of its rounds; there may be others among the other ones."""
        if other is None:
            return self
        mine = other.only(self.positions)
        place = np.flatnonzero(mine.positions.holds(self.ledgers, self.entries))
        later = mine.rounds > self.rounds[place]
        due, rounds, until = self.due.copy(), self.rounds.copy(), self.until.copy()
        due[place[later]], rounds[place[later]] = mine.due[later], mine.rounds[later]
        until[place] = np.maximum(until[place], mine.until)
        return replace(self, due=due, rounds=rounds, until=until)


def _latest(runs: Sequence[Runs]) -> IntArray:
    """The last time of each position of some runs, ordered by position."""
    each = [one.expanded() for one in runs]
    ledgers, entries, due = (
        np.concatenate([getattr(one, name) for one in each]) for name in ("ledger_ids", "entry_ids", "due")
    )
    order = np.lexsort((due, entries, ledgers))
    return due[order[last_of_each(ledgers[order], entries[order])]]


def of_round(of: Round) -> str:
    """SQL: whether a row names positions by this."""
    subscription = f"topic = {quoted(of.topic)} AND subscription = {quoted(of.subscription)}"
    return f"{subscription} AND life = {of.life} AND redelivery_count = {of.redelivery_count}"
