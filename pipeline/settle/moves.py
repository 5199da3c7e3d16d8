"""Commands that give positions another due time: which of these go into the index, and when they are due (0058).

Dispatch leaves out every round of a position but the last one that a command made, in whatever is released after the
command. So settle puts a position into the index in its new round as soon as it is sure that no earlier one was taken:
at once, when none is in `redelivery` yet, or else when dispatch has said that it left it out. Which it is, the tables
say, so to ask twice gives the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.reading.messages import Bounds
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.arrays import longs, rounds
from pipeline.subscriptions.commandlog import CommandLog
from pipeline.subscriptions.commands import due_times, moves
from pipeline.subscriptions.incarnations import Incarnation, Name
from schemas import REDELIVERY, REJECTED_DISPATCH, RESCHEDULED, Table
from state import LeftOut, Move, Moved, Outstanding, Runs
from state.positionset import PositionSet, by_number
from state.withdrawals import Round, Rounds, due_of, free

Key = tuple[Round, int]
"""What names positions, and the round that commands make of them."""
_NOTHING = PositionSet()
_FORGETS = 256
"""Every so many batches what is settled is looked for."""


@dataclass(frozen=True)
class _DueTimes:
    """When positions are due.

    Attributes:
        runs: by the rows of `commands`.
        positions: all of them.
    """

    runs: Runs
    positions: PositionSet

    @classmethod
    def of(cls, runs: Runs) -> _DueTimes:
        return cls(runs, PositionSet.of_runs(runs))

    def __or__(self, other: _DueTimes) -> _DueTimes:
        return _DueTimes(Runs.concat([self.runs, other.runs]), self.positions | other.positions)


class Moves:
    """What commands say of other due times."""

    def __init__(self, commands: CommandLog, released: RoundLog, refused: RoundLog) -> None:
        """Read what there is. Without any command that is a look at a log.

        Args:
            commands: what was commanded.
            released: what became due.
            refused: what dispatch left out for a later round.
        """
        self._log, self._released, self._refused = commands, released, refused
        self._seen, self._times, self._turns = -1, dict[Key, _DueTimes](), 0
        self._asked: dict[Key, PositionSet] = {}
        self._own: dict[tuple[Name, int], list[Key]] = {}
        self._unsure: dict[Round, PositionSet] = {}
        self._look()
        self._begun = dict(self._times)

    @classmethod
    def of_tables(cls, warehouse: Warehouse) -> Moves:
        """By the tables of a warehouse."""
        released, refused = (RoundLog(warehouse, table) for table in (REDELIVERY, REJECTED_DISPATCH))
        return cls(CommandLog(warehouse), released, refused)

    @property
    def any(self) -> bool:
        """Whether some may still have something to do: they are not below the mark of what is settled."""
        return bool(self._times)

    def take(self, news: pa.Table) -> None:
        """Follow rows that have come, and now and then forget what is below the mark of what is settled.

        Args:
            news: rows that give positions another due time (`moves`).
        """
        self._turns += 1
        if self._times and self._turns % _FORGETS == 0:
            self._log.forget()
            self._seen = -1
        self._look()
        self._asked = {}
        for key, runs in due_times(news).items():
            fresh, known = _DueTimes.of(runs), self._times.get(key)
            self._asked[key] = fresh.positions
            # What was below the mark before it came is not in the log.
            if known is None or len(fresh.positions - known.positions):
                self._add(key, fresh)
        self._own = defaultdict(list)
        for of, to in sorted(self._times):
            self._own[(of.topic, of.subscription), of.life].append((of, to))

    def names(self, lives: Mapping[Name, Incarnation]) -> set[Name]:
        """The subscriptions that are named, in their present lives."""
        return {name for name, life in self._own if name in lives and lives[name].number == life}

    def of(self, name: Name, life: int, open_: Outstanding, left_out: Iterable[LeftOut]) -> Iterator[Move]:
        """What is to be put into the index for a subscription, by round.

        Args:
            name: the subscription.
            life: its present life.
            open_: what is open of it, when all that was released and left out is known.
            left_out: what dispatch has left out since the last time.
        """
        gone = [(each.round, PositionSet.of(each.positions)) for each in left_out]
        for of, to in self._own.get((name, life), ()):
            named, asked = self._times[of, to].positions, self._asked.get((of, to), _NOTHING)
            again = PositionSet.union(positions & named for number, positions in gone if number < to)
            if len(asked | again):
                yield Move((asked | again).positions(), of.redelivery_count, to)
                if not of.redelivery_count and len(free := self._free(of, to, open_, asked, again)):
                    yield Move(free.positions(), 0, to, fresh=True)

    def due(self, name: Name, life: int, moved: Moved) -> Runs:
        """When positions are due that were moved."""
        times = self._times[Round(*name, life, moved.redelivery_count), moved.round]
        return due_of(times.runs, PositionSet.of(moved.positions))

    def _look(self) -> None:
        seen = self._log.look()
        if seen.version == self._seen:
            return
        if seen.anew:
            self._times = {}
        for key, runs in due_times(moves(seen.rows)).items() if seen.rows.num_rows else ():
            self._add(key, _DueTimes.of(runs))
        self._seen = seen.version

    def _add(self, key: Key, times: _DueTimes) -> None:
        known = self._times.get(key)
        self._times[key] = times if known is None else known | times

    def _free(self, of: Round, to: int, open_: Outstanding, asked: PositionSet, again: PositionSet) -> PositionSet:
        """Those of which dispatch took no round, and takes none, and that wait for none.

        What was not released yet when it was asked for was put into the index then. So of what dispatch has left out
        since only what was released by then is looked for.
        """
        new = open_.unknown(asked)
        wanted = new | (open_.unknown(again) & self._were_unsure(of)) if len(again) else new
        released, left = self._released.of(of, wanted), self._refused.of(of, wanted)
        self._remember(of, (asked - new) | (PositionSet.union(released.values()) & wanted))
        return free(wanted, released, left, to)

    def _were_unsure(self, of: Round) -> PositionSet:
        """The positions that were released when they were asked for; if that was before the start, by now."""
        for (each, _), times in self._begun.items():
            if not each.redelivery_count:
                released = self._released.of(each, times.positions).values()
                self._remember(each, PositionSet.union(released) & times.positions)
        self._begun = {}
        return self._unsure.get(of, _NOTHING)

    def _remember(self, of: Round, positions: PositionSet) -> None:
        self._unsure[of] = self._unsure.get(of, _NOTHING) | positions


class RoundLog:
    """A table that says of positions what became of their rounds."""

    def __init__(self, warehouse: Warehouse, table: Table) -> None:
        self._table = table
        self._ends = ("entry_id", "entry_id") if table is REJECTED_DISPATCH else ("first_entry", "last_entry")
        self._live = LiveFiles(warehouse, table, Bounds.of_file)

    def of(self, of: Round, wanted: PositionSet) -> Rounds:
        """The positions of some ledgers, by round: what was released, or was left out for a later round."""
        ledgers = [ledger for ledger, _ in wanted.by_ledger()]
        if not ledgers:
            return {}
        around = Bounds(ledgers[0], ledgers[-1])
        paths = [path for path, held in self._live.look()[1].items() if held.meets(around)]
        more = ("reason",) if self._table is REJECTED_DISPATCH else ()
        columns = (*Round._fields, "ledger_id", *dict.fromkeys(self._ends), "round", *more)
        rows = self._live.rows(paths, columns) if paths else None
        if rows is None:
            return {}
        same = [pc.equal(rows.column(name), value) for name, value in zip(Round._fields, of, strict=True)]
        same += [pc.equal(rows.column("reason"), RESCHEDULED)] if more else []
        same.append(pc.is_in(rows.column("ledger_id"), pa.array(ledgers)))
        for each in same:
            same[0] = pc.and_(same[0], pc.fill_null(each, fill_value=False))
        own = rows.filter(pc.fill_null(same[0], fill_value=False))
        return by_number(rounds(own), *(longs(own, name) for name in ("ledger_id", *self._ends)))
