"""What became of commands, from the tables alone.

A cancelled position that was delivered was cancelled too late. One that dispatch left out will never come, and neither
will one that is not in `redelivery`, when that is read after the command was committed: dispatch looks at `commands`
after its batch ends. What is released and neither left out nor delivered is being decided, or is prepared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pipeline.client.commanding.chosen import Chosen
from pipeline.client.commanding.inforce import rows
from pipeline.client.exceptions import CommandNotFound
from pipeline.client.subscribing.subscriptions import lives
from pipeline.delta.deltars import arrow_of, open_table, quoted
from pipeline.storage.arrays import longs
from pipeline.subscriptions.commands import CANCEL, READ, named_by, withdrawals
from pipeline.subscriptions.incarnations import alive
from schemas import DELIVERIES, MESSAGES, REDELIVERY, REJECTED_DISPATCH
from state.positions import Positions
from state.positionset import PositionSet
from state.withdrawals import Parts, Round, Withdrawals, count

_TOLD = ("asked", "issued_by", "reason", "at")
_READ = ((REDELIVERY, "last_entry"), (REJECTED_DISPATCH, "entry_id"), (DELIVERIES, "entry_id"))
"""The tables that tell what became of a position, in the order in which they are read, with their last entries."""
_NOTHING = PositionSet()


@dataclass(frozen=True)
class Outcome:
    """What became of a command. The counts add up to `count`, each message counted for each subscription.

    Attributes:
        command_id: its id.
        kind: `cancel` or `undo`.
        topic: its topic.
        subscriptions: whose messages it names.
        asked: the condition of a cancel.
        undoes: the command that an undo takes back.
        by: who gave it.
        reason: why.
        at: when, by the clock of who gave it.
        count: messages that it names.
        applied: a cancel: they come to nobody. An undo: they come again at their time, or came since.
        too_late: a cancel: they were delivered. An undo: dispatch had left them out before.
        undone: a cancel that was taken back for them.
        deciding: dispatch is about to take them, or has prepared them.
    """

    command_id: str
    kind: str
    topic: str
    subscriptions: tuple[str, ...]
    asked: str | None
    undoes: str | None
    by: str | None
    reason: str | None
    at: datetime | None
    count: int
    applied: int
    too_late: int
    undone: int
    deciding: int


@dataclass(frozen=True)
class _Facts:
    """What the tables hold of the positions of one round."""

    released: PositionSet
    left_out: PositionSet
    delivered: PositionSet

    def of_cancel(self, asked: PositionSet, undone: PositionSet) -> tuple[int, int, int]:
        """Applied, too late, undone."""
        known = undone & asked
        never = asked - known - self.delivered - self.released
        return len((asked & self.left_out) | never), len((asked & self.delivered) - known), len(known - self.left_out)

    def of_undo(self, asked: PositionSet) -> tuple[int, int, int]:
        """The same of an undo, of which nothing is undone."""
        deciding = (asked & self.released) - self.delivered - self.left_out
        return len(asked - self.left_out - deciding), len(asked & self.left_out), 0


def outcomes(root: str, limit: int = 20) -> list[Outcome]:
    """What became of the last commands, the newest first.

    Counts of a command are right until retention deletes deliveries of its time; its rows go then, too.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    found = rows(root, (*READ, *_TOLD))
    newest = _newest(found, limit)
    ids = pa.array(list(newest), pa.string())
    found = found.filter(
        pc.or_(*(pc.fill_null(pc.is_in(found.column(n), ids), fill_value=False) for n in ("command_id", "undoes")))
    )
    named, said = named_by(found), withdrawals(found)
    facts = _facts(root, [named.get(command, {}) for command in newest])
    return [_outcome(row, named.get(command, {}), said, facts) for command, row in newest.items()]


def remaining(root: str, command_id: str) -> list[Chosen]:
    """What an undo of a cancel brings back: what was neither undone, left out nor delivered, with the due times.

    Raises:
        NoWarehouse: the folder lacks a table.
        CommandNotFound: there is no such cancel.
    """
    found_rows = rows(root, READ)
    said = withdrawals(found_rows)
    parts = said.cancelled.get(command_id)
    if parts is None:
        raise CommandNotFound(command_id)
    mine = found_rows.filter(pc.fill_null(pc.equal(found_rows.column("command_id"), command_id), fill_value=False))
    # An undo counts as long as what it takes back.
    until = pc.max(mine.column("due_time").cast(pa.int64())).as_py() // 1_000
    found = []
    for of, fact in _facts(root, [parts]).items():
        undone = said.undone.get(command_id, {}).get(of, _NOTHING)
        left = parts[of] - undone - fact.left_out - fact.delivered
        if len(left):
            found.append(_with_due(root, of, left, until))
    return [each for each in found if len(each.ledgers)]


def _newest(found: pa.Table, limit: int) -> dict[str, dict[str, Any]]:
    """The first row of each of the last commands, the newest first, by its id."""
    sound = found.filter(pc.is_valid(found.column("command_id")))
    if not sound.num_rows:
        return {}
    last = sound.group_by("command_id").aggregate([("at", "max")])
    ids = last.sort_by([("at_max", "descending")]).column("command_id").to_pylist()[:limit]
    texts = sound.column("command_id")
    return {each: sound.slice(pc.index(texts, each).as_py(), 1).to_pylist()[0] for each in ids}


def _outcome(row: Mapping[str, Any], parts: Parts, said: Withdrawals, facts: Mapping[Round, _Facts]) -> Outcome:
    undone, cancel = said.undone.get(row["command_id"], {}), row["kind"] == CANCEL
    figures = [
        facts[of].of_cancel(asked, undone.get(of, _NOTHING)) if cancel else facts[of].of_undo(asked)
        for of, asked in parts.items()
    ]
    total = count(parts)
    applied, late, back = (sum(each) for each in zip(*figures, strict=True)) if figures else (0, 0, 0)
    return Outcome(
        command_id=row["command_id"],
        kind=row["kind"] or "",
        topic=row["topic"] or "",
        subscriptions=tuple(sorted({of.subscription for of in parts})),
        asked=row["asked"],
        undoes=row["undoes"],
        by=row["issued_by"],
        reason=row["reason"],
        at=row["at"],
        count=total,
        applied=applied,
        too_late=late,
        undone=back,
        deciding=total - applied - late - back,
    )


def _facts(root: str, commands: Iterable[Parts]) -> dict[Round, _Facts]:
    """What the tables hold of the rounds of some commands; what is released is read first."""
    asked: dict[Round, list[PositionSet]] = {}
    for parts in commands:
        for of, positions in parts.items():
            asked.setdefault(of, []).append(positions)
    if not asked:
        return {}
    present = {(*name, life.number) for name, life in alive(lives(root)).items()}
    wanted = {of: PositionSet.union(sets) for of, sets in asked.items()}
    released, left_out, delivered = (
        {of: _held(opened, of, each, end) for of, each in wanted.items()}
        for opened, end in ((open_table(root, table), end) for table, end in _READ)
    )
    # What was released to a life that is over comes to nobody, unless it was delivered.
    over = {of: _NOTHING for of in wanted if of[:3] not in present}
    return {of: _Facts((released | over)[of], left_out[of], delivered[of]) for of in wanted}


def _held(opened: DeltaTable, of: Round, wanted: PositionSet, last: str) -> PositionSet:
    """The positions of a round that a table has, of the ledgers that are asked for."""
    ledgers = [ledger for ledger, _ in wanted.by_ledger()]
    if not ledgers:
        return _NOTHING
    first = "first_entry" if last == "last_entry" else last
    found = arrow_of(
        f"SELECT ledger_id, {first} AS first_entry, {last} AS last_entry FROM t WHERE {of_round(of)} "  # noqa: S608 - quoted
        f"AND ledger_id BETWEEN {ledgers[0]} AND {ledgers[-1]}",
        t=opened,
    )
    return PositionSet.of(Positions.of(*(longs(found, name) for name in ("ledger_id", "first_entry", "last_entry"))))


def of_round(of: Round) -> str:
    """SQL: whether a row is of a round."""
    told = f"topic = {quoted(of.topic)} AND subscription = {quoted(of.subscription)}"
    return f"{told} AND life = {of.life} AND redelivery_count = {of.redelivery_count}"


def _with_due(root: str, of: Round, positions: PositionSet, until: int) -> Chosen:
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
    ledgers, entries, due = (longs(found, name) for name in ("ledger_id", "entry_id", "due_ms"))
    due = np.full(len(due), until) if of.redelivery_count else due
    return Chosen(of, ledgers, entries, due, until).only(positions)
