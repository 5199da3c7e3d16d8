"""What commands say, and what newer messages replaced: what is not pending any more, and what got another due time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable
from pyroaring import BitMap

from pipeline.client.subscribing.lives import lives
from pipeline.config.errors import NoWarehouse
from pipeline.delta.deltars import arrow_of, check_warehouse, instant, open_table, quoted
from pipeline.storage.arrays import IntArray, arrow_schema, longs
from pipeline.storage.files import Files
from pipeline.subscriptions.commands import READ, due_times, moves, withdrawals
from pipeline.subscriptions.incarnations import alive
from pipeline.subscriptions.replacedrows import by_topic, of_lives
from pipeline.subscriptions.settled import read_mark
from schemas import COMMANDS, NEVER_COMES, REJECTED_DISPATCH, REPLACED
from state.bitmaps import bitmap_of_entries
from state.positionset import PositionSet, last_of_each
from state.runs import Runs
from state.withdrawals import Parts, Round, merged


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


Named = tuple[Chosen, IntArray | None]
"""Positions, and when each is to be due, ms UTC; None: a cancel names them, or an undo of one."""


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


_DELIVERED = """
    SELECT ledger_id, entry_id FROM deliveries
    WHERE {named} AND ledger_id BETWEEN {first} AND {last} AND {until}
"""
_BY_LEDGER = "SELECT topic, subscription, life, ledger_id, array_agg(entry_id) AS entries FROM t"
_POSITIONS = pa.schema([("topic", pa.string()), ("ledger_id", pa.int64()), ("entry_id", pa.int64())])
_FOR_GOOD = f"reason IN ({', '.join(map(quoted, NEVER_COMES))}) AND redelivery_count = 0 AND life IS NOT NULL"


@dataclass(frozen=True)
class InForce:
    """What commands say.

    Attributes:
        withdrawn: the positions that are cancelled, also those that dispatch had taken before.
        moved: those that got another due time, with that and its round.
    """

    withdrawn: Parts = field(default_factory=dict)
    moved: dict[Round, Chosen] = field(default_factory=dict)


def rows(root: str, columns: Sequence[str], where: str = "true") -> pa.Table:
    """Columns of the rows of `commands` that meet a condition.

    A warehouse that an earlier version of this project made has no such table, and none; what it lacks is NULL.

    Raises:
        NoWarehouse: the folder has no table at all.
    """
    schema = arrow_schema(COMMANDS.columns)
    wanted = pa.schema([schema.field(name) for name in columns])
    try:
        opened = open_table(root, COMMANDS)
    except NoWarehouse:
        check_warehouse(root)
        return wanted.empty_table()
    here = [name for name in columns if has(opened, name)]
    # DataFusion gives views of texts.
    found = arrow_of(f"SELECT {', '.join(here)} FROM commands WHERE {where}", commands=opened)  # noqa: S608 - our own words
    arrays = [found.column(f.name) if f.name in here else pa.nulls(found.num_rows, f.type) for f in wanted]
    return pa.Table.from_arrays(arrays, names=wanted.names).cast(wanted)


def has(opened: DeltaTable, column: str) -> bool:
    """Whether a table has a column: those of an earlier version of this project get the new ones at a start."""
    return any(field.name == column for field in opened.schema().fields)


def in_force(root: str, where: str = "true") -> InForce:
    """What the rows of commands say that meet a condition."""
    found = rows(root, READ, where)
    if not found.num_rows:
        return InForce()
    return InForce(withdrawals(found).in_force(), moved(found))


def at_work(root: str) -> InForce:
    """What commands say, what newer messages replaced, and what dispatch left out for good: nothing of it is pending.

    What was cancelled is among the latter, too: when dispatch had decided before an undo was written, only its row says
    that the message comes to nobody. What is below the mark of retention is left out: nobody asks for it. Of what a
    command moved the rows do not say whether its message is.
    """
    said, mark = in_force(root), read_mark(Files(), root)
    # Said so that files below the mark are not opened: by columns as they are.
    where = f"(due_time > {instant(mark.due_ms)} OR ledger_id >= {mark.ledger} OR round > 0)"
    return InForce(merged((said.withdrawn, replaced(root), left_out(root, where))), said.moved)


def replaced(root: str, where: str = "true") -> Parts:
    """What newer messages replaced, for the present lives of subscriptions, by rows that meet a condition.

    Also what dispatch had taken before. A warehouse of an earlier version has no such table, and nothing is replaced.

    Raises:
        NoWarehouse: the folder has no table at all.
    """
    try:
        opened = open_table(root, REPLACED)
    except NoWarehouse:
        check_warehouse(root)
        return {}
    text = f"SELECT topic, ledger_id, entry_id FROM t WHERE {where}"  # noqa: S608 - our own words
    rows = arrow_of(text, t=opened).cast(_POSITIONS)
    if not rows.num_rows:
        return {}
    return of_lives(by_topic(rows), {name: life.number for name, life in alive(lives(root)).items()})


def left_out(root: str, where: str = "true") -> Parts:
    """What of first deliveries dispatch left out for good, by rows of `rejected_dispatch` that meet a condition."""
    opened = open_table(root, REJECTED_DISPATCH)
    if not (has(opened, "life") and has(opened, "round")):
        # Nothing expires before a start has added them.
        return {}
    rows = arrow_of(f"{_BY_LEDGER} WHERE {_FOR_GOOD} AND {where} GROUP BY 1, 2, 3, 4", t=opened)
    ledgers: dict[Round, dict[int, BitMap]] = {}
    names = rows.select(["topic", "subscription", "life", "ledger_id"]).to_pylist()
    for name, entries in zip(names, rows.column("entries"), strict=True):
        of, ledger = Round(name["topic"], name["subscription"], name["life"], 0), name["ledger_id"]
        ledgers.setdefault(of, {})[ledger] = bitmap_of_entries(np.sort(entries.values.to_numpy()))
    return {of: PositionSet(each) for of, each in ledgers.items()}


def moved(found: pa.Table) -> dict[Round, Chosen]:
    """What rows of `commands` say of other due times: of each position the last round."""
    rows = moves(found)
    parts: dict[Round, list[tuple[int, Runs]]] = {}
    for (of, to), runs in due_times(rows).items():
        parts.setdefault(of, []).append((to, runs))
    until: dict[Round, list[Runs]] = {}
    for (of, _), runs in due_times(rows, "due_time").items():
        until.setdefault(of, []).append(runs)
    return {of: Chosen.of_runs(of, each, until[of]) for of, each in parts.items()}


def delivered(deliveries: DeltaTable, chosen: Chosen, until: int | None = None) -> PositionSet:
    """Which positions were delivered, or were so by an instant (ms UTC), as far as deliveries are kept."""
    ends = {"first": int(chosen.ledgers.min()), "last": int(chosen.ledgers.max())}
    then = "true" if until is None else f"arrow_cast(due_time, 'Int64') <= {until * 1_000}"
    found = arrow_of(_DELIVERED.format(named=of_round(chosen.of), **ends, until=then), deliveries=deliveries)
    return PositionSet.at(longs(found, "ledger_id"), longs(found, "entry_id"))
