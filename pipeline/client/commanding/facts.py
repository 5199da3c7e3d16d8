"""What the tables hold of positions that commands name: which rounds were released, left out, and delivered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.client.commanding.inforce import Chosen, has, of_round
from pipeline.client.subscribing.lives import lives
from pipeline.delta.deltars import arrow_of, open_table, quoted
from pipeline.storage.arrays import longs
from pipeline.subscriptions.incarnations import alive
from schemas import CANCELLED, DELIVERIES, MESSAGES, REDELIVERY, REJECTED_DISPATCH, RESCHEDULED, ROUND, Table
from state.positionset import PositionSet, by_number
from state.withdrawals import Parts, Round, Rounds, merged

_READ = ((REDELIVERY, "last_entry"), (REJECTED_DISPATCH, "entry_id"), (DELIVERIES, "entry_id"))
"""The tables that tell what became of a position, in the order in which they are read, with their last entries."""


@dataclass(frozen=True)
class Facts:
    """What became of positions of one subscription that were redelivered equally often.

    Attributes:
        released: rounds that became due.
        moved: rounds that dispatch left out because there is a later one.
        cancelled: positions that dispatch left out because they were cancelled.
        gone: positions that it left out for good for another reason: they expired, say, or have no message.
        shown: rounds that were delivered.
    """

    released: Rounds
    moved: Rounds
    cancelled: PositionSet
    gone: PositionSet
    shown: Rounds

    @property
    def delivered(self) -> PositionSet:
        """All that was delivered."""
        return PositionSet.union(self.shown.values())

    def taken(self, before: int | None = None) -> PositionSet:
        """What became due, in a round before one, and was not left out for a later round."""
        rounds = [number for number in self.released if before is None or number < before]
        return PositionSet.union(self.released[n] - self.moved.get(n, PositionSet()) for n in rounds)

    def of_cancel(self, asked: PositionSet, undone: PositionSet, others: PositionSet) -> tuple[int, int, int]:
        """Applied, too late, undone; of a cancel.

        Args:
            asked: what it names.
            undone: of what it was taken back.
            others: what another cancel names that was not taken back, or was given when this one had been.
        """
        known = undone & asked
        # What was left out although it had been taken back is so because of another cancel, if there is one.
        left_out = self.cancelled - (known & others)
        never = asked - known - self.delivered - self.taken()
        applied, late = (asked & (left_out | (self.gone - known))) | never, (asked & self.delivered) - known
        return len(applied), len(late), len(known - left_out)

    def of_undo(self, asked: PositionSet, others: PositionSet) -> tuple[int, int, int]:
        """The same of an undo of a cancel, of which nothing is undone."""
        left_out = self.cancelled - others
        deciding = (asked & self.taken()) - self.delivered - self.cancelled - self.gone
        return len(asked - left_out - deciding), len(asked & left_out), 0

    def too_late_at(self, number: int) -> PositionSet:
        """What was delivered, or left out for good, before a command made a round of it."""
        shown = PositionSet.union(each for before, each in self.shown.items() if before < number)
        return shown | (self.taken(number) & (self.cancelled | self.gone))

    def moved_at(self, number: int, asked: PositionSet) -> PositionSet:
        """What a command that made a round of some positions has moved for sure."""
        return asked - self.taken(number) - self.too_late_at(number)


def facts(root: str, commands: Iterable[Parts]) -> dict[Round, Facts]:
    """What the tables hold of the positions of some commands; what is released is read first.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    wanted = merged(commands)
    if not wanted:
        return {}
    present = {(*name, life.number) for name, life in alive(lives(root)).items()}
    found = [
        {of: _held(opened, table, of, each, end) for of, each in wanted.items()}
        for opened, table, end in [(open_table(root, table), table, end) for table, end in _READ]
    ]
    return {of: _facts(*(each[of] for each in found), present=of[:3] in present) for of in wanted}


def _facts(released: _Held, refused: _Held, shown: _Held, *, present: bool) -> Facts:
    moved = {number: each for (number, reason), each in refused.items() if reason == RESCHEDULED}
    cancelled = PositionSet.union(each for (_, reason), each in refused.items() if reason == CANCELLED)
    gone = PositionSet.union(each for (_, reason), each in refused.items() if reason not in (RESCHEDULED, CANCELLED))
    # What was released to a life that is over comes to nobody, unless it was delivered.
    due = {number: each for (number, _), each in released.items()} if present else {}
    return Facts(due, moved, cancelled, gone, {number: each for (number, _), each in shown.items()})


_Held = dict[tuple[int, str], PositionSet]
"""Positions by round and reason, which is empty where the table has none."""


def _held(opened: DeltaTable, table: Table, of: Round, wanted: PositionSet, last: str) -> _Held:
    """The positions that a table has, of the ledgers that are asked for."""
    ledgers = [ledger for ledger, _ in wanted.by_ledger()]
    if not ledgers:
        return {}
    first = "first_entry" if last == "last_entry" else last
    number = ROUND if has(opened, "round") else "redelivery_count"
    reason = "reason" if table is REJECTED_DISPATCH else "''"
    found = arrow_of(
        f"SELECT ledger_id, {first} AS first_entry, {last} AS last_entry, {number} AS round, {reason} AS reason "  # noqa: S608 - quoted
        f"FROM t WHERE {of_round(of)} AND ledger_id BETWEEN {ledgers[0]} AND {ledgers[-1]}",
        t=opened,
    )
    # DataFusion gives views of texts.
    why = found.column("reason").cast(pa.string())
    numbers, places = longs(found, "round"), [longs(found, n) for n in ("ledger_id", "first_entry", "last_entry")]
    held: _Held = {}
    for each_reason in pc.unique(why).to_pylist():
        here = pc.equal(why, each_reason).to_numpy(zero_copy_only=False)
        of_reason = by_number(numbers[here], *(each[here] for each in places))
        held |= {(number, each_reason): positions for number, positions in of_reason.items()}
    return held


def with_due(root: str, of: Round, positions: PositionSet, until: int) -> Chosen:
    """Positions with the due times of their messages; those without a message are left out.

    What comes again is due at the latest when the command says.
    """
    named = [ledger for ledger, _ in positions.by_ledger()]
    found = arrow_of(
        "SELECT ledger_id, entry_id, arrow_cast(due_time, 'Int64') / 1000 AS due_ms FROM messages "  # noqa: S608 - quoted
        f"WHERE topic = {quoted(of.topic)} AND ledger_id BETWEEN {named[0]} AND {named[-1]} "
        "ORDER BY ledger_id, entry_id",
        messages=open_table(root, MESSAGES),
    )
    each = Chosen.of_rows(of, found, until)
    due = np.full(len(each.due), until) if of.redelivery_count else each.due
    return replace(each, due=due).only(positions)
