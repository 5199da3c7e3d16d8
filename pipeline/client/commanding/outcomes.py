"""What became of commands, from the tables alone.

A cancelled position that was delivered was cancelled too late. One that dispatch left out will never come, and neither
will one that is not in `redelivery`, when that is read after the command was committed: dispatch looks at `commands`
after its batch ends. What is released and neither left out nor delivered is being decided, or is prepared. Of what got
another due time the same holds for the rounds before the one that the command made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.client.commanding.facts import Facts, facts, with_due
from pipeline.client.commanding.inforce import Chosen, Named, rows
from pipeline.client.commanding.inforce import moved as moved_by
from pipeline.client.exceptions import CommandNotFound
from pipeline.config.errors import check_count
from pipeline.storage.arrays import python_rows
from pipeline.subscriptions.commands import CANCEL, MOVES, READ, UNDO, due_times, moves, named_by, withdrawals
from state.positionset import PositionSet
from state.withdrawals import Parts, Round, Withdrawals, count, due_of, merged

_COLUMNS = ("asked", "issued_by", "reason", "at")
_NOTHING = PositionSet()


@dataclass(frozen=True)
class Outcome:
    """What became of a command. The counts add up to `count`, each message counted for each subscription.

    Attributes:
        command_id: its id.
        kind: `cancel`, `reschedule`, `shift`, `release` or `undo`.
        topic: its topic.
        subscriptions: whose messages it names.
        asked: the condition.
        undoes: the command that an undo takes back.
        by: who gave it.
        reason: why.
        at: when, by the clock of who gave it.
        count: messages that it names.
        applied: a cancel: they come to nobody. Another due time: they come then, or came, if no later command said
            otherwise. An undo: they come again at their time, or came since.
        too_late: they were delivered before. An undo of a cancel: dispatch had left them out before.
        undone: it was taken back for them.
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


def outcomes(root: str, limit: int = 20) -> list[Outcome]:
    """What became of the last commands, the newest first.

    Counts of a command are right until retention deletes deliveries of its time; its rows go then, too.

    Raises:
        NoWarehouse: the folder lacks a table.
        BadValue: the limit is not positive.
    """
    check_count("limit", limit)
    found = rows(root, (*READ, *_COLUMNS))
    newest, said = _newest(found, limit), withdrawals(found)
    ids = pa.array(list(newest), pa.string())
    found = found.filter(
        pc.or_(*(pc.fill_null(pc.is_in(found.column(n), ids), fill_value=False) for n in ("command_id", "undoes")))
    )
    commands = _Commands.of(found, said, _again(newest, found, said.cancelled))
    known = facts(root, [commands.named.get(command, {}) for command in newest])
    return [_outcome(row, commands, known) for row in newest.values()]


def remaining(root: str, command_id: str) -> list[Named]:
    """What an undo of a command brings back, with the due times before it when the command gave others.

    Of a cancel that is what was neither undone, left out nor delivered; of another due time what is not delivered, and
    got none since.

    Raises:
        NoWarehouse: the folder lacks a table.
        CommandNotFound: there is no such command, or it is an undo.
    """
    found_rows = rows(root, (*READ, "due_before"))
    mine = found_rows.filter(pc.fill_null(pc.equal(found_rows.column("command_id"), command_id), fill_value=False))
    said = withdrawals(found_rows)
    if command_id in said.cancelled:
        return _cancelled(root, mine, said, command_id)
    own = mine.filter(pc.is_in(mine.column("kind"), pa.array(MOVES)))
    if not moves(own).num_rows:
        raise CommandNotFound(command_id)
    return _moved(root, moves(own), said, moved_by(found_rows))


def _cancelled(root: str, mine: pa.Table, said: Withdrawals, command_id: str) -> list[Named]:
    parts = said.cancelled[command_id]
    # An undo counts as long as what it takes back.
    until = pc.max(mine.column("due_time").cast(pa.int64())).as_py() // 1_000
    found = []
    for of, fact in facts(root, [parts]).items():
        undone = said.undone.get(command_id, {}).get(of, _NOTHING)
        left = parts[of] - undone - fact.cancelled - fact.gone - fact.delivered
        if len(left):
            found.append(with_due(root, of, left, until))
    return [(each, None) for each in found if len(each.ledgers)]


def _moved(root: str, mine: pa.Table, said: Withdrawals, last: Mapping[Round, Chosen]) -> list[Named]:
    """Positions of which a command said the last word, with the time at which they were due before."""
    times = mine.set_column(mine.column_names.index("deliver_at"), "deliver_at", mine.column("due_before"))
    in_force, before = said.in_force(), due_times(times)
    found: list[Named] = []
    known = facts(root, [{of: PositionSet.of_runs(runs)} for (of, _), runs in before.items()])
    for (of, number), runs in before.items():
        own = due_of(runs, PositionSet.of_runs(runs))
        chosen = last[of].only(PositionSet.of_runs(own))
        over = known[of].delivered | known[of].gone | in_force.get(of, _NOTHING)
        chosen = chosen.where(chosen.rounds == number).less(over)
        if len(chosen.ledgers):
            each = due_of(own, chosen.positions).expanded()
            found.append((chosen, each.due))
    return found


def _newest(found: pa.Table, limit: int) -> dict[str, dict[str, Any]]:
    """The first row of each of the last commands, the newest first, by its id."""
    sound = found.filter(pc.is_valid(found.column("command_id")))
    if not sound.num_rows:
        return {}
    last = sound.group_by("command_id").aggregate([("at", "max")])
    ids = last.sort_by([("at_max", "descending"), ("command_id", "ascending")]).column("command_id").to_pylist()[:limit]
    texts = sound.column("command_id")
    return {each: python_rows(sound.slice(pc.index(texts, each).as_py(), 1))[0] for each in ids}


def _outcome(row: Mapping[str, Any], commands: _Commands, known: Mapping[Round, Facts]) -> Outcome:
    command, parts = row["command_id"], commands.named.get(row["command_id"], {})
    figures = [commands.figures(command, row["kind"], known[of], of, asked) for of, asked in parts.items()]
    total = count(parts)
    applied, late, back = (sum(each) for each in zip(*figures, strict=True)) if figures else (0, 0, 0)
    return Outcome(
        command_id=command,
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


@dataclass(frozen=True)
class _Commands:
    """What rows of `commands` say, by command.

    Attributes:
        named: the positions that each names.
        undone: those for which a cancel was taken back.
        in_force: the positions that are cancelled at present, by any command.
        again: those for which a cancel was taken back before another one of them was given, by cancel and by undo.
        moved: positions that a command gave another due time, by the round that it made.
        back: those for which such a command was taken back, by that round, and by the command that was taken back.
    """

    named: Mapping[str, Parts]
    undone: Mapping[str, Parts]
    in_force: Parts
    again: Mapping[str, Parts]
    moved: Mapping[str, Mapping[tuple[Round, int], PositionSet]]
    back: Mapping[str, Mapping[tuple[Round, int], PositionSet]]

    @classmethod
    def of(cls, found: pa.Table, said: Withdrawals, again: Mapping[str, Parts]) -> _Commands:
        moving = moves(found)
        each = {name: _by(moving, name) for name in ("command_id", "undoes")}
        return cls(named_by(found), said.undone, said.in_force(), again, each["command_id"], each["undoes"])

    def figures(self, command: str, kind: str, fact: Facts, of: Round, asked: PositionSet) -> tuple[int, int, int]:
        """Applied, too late, undone; of the positions of one command that have one name."""
        moved = {number: each for (name, number), each in self.moved.get(command, {}).items() if name == of}
        if moved:
            # An undo that came too late took nothing back.
            undone = PositionSet.union(
                fact.moved_at(number, each) for (name, number), each in self.back.get(command, {}).items() if name == of
            )
            return _of_moves(fact, moved, undone)
        others = self.in_force.get(of, _NOTHING) | self.again.get(command, {}).get(of, _NOTHING)
        if kind == CANCEL:
            return fact.of_cancel(asked, self.undone.get(command, {}).get(of, _NOTHING), others)
        return fact.of_undo(asked, others)


def _again(newest: Iterable[str], found: pa.Table, cancelled: Mapping[str, Parts]) -> dict[str, Parts]:
    """The positions for which a cancel was taken back before another one of them was given, by cancel and by undo.

    A cancel names what is not cancelled. So that undo was in time, whatever became of the other cancel.

    Args:
        newest: the ids of commands, the newest first by the clocks of who gave them.
        found: their rows.
        cancelled: what each cancel names.
    """
    undos = found.filter(pc.equal(found.column("kind"), UNDO))
    later: Parts = {}
    again = defaultdict[str, list[Parts]](list)
    for command in newest:
        if command in cancelled:
            later = merged([later, cancelled[command]])
        own = undos.filter(pc.equal(undos.column("command_id"), command))
        for cancel, parts in withdrawals(own).undone.items():
            both = {of: positions & later[of] for of, positions in parts.items() if of in later}
            again[cancel].append(both)
            again[command].append(both)
    return {command: merged(each) for command, each in again.items()}


def _of_moves(fact: Facts, moved: Mapping[int, PositionSet], undone: PositionSet) -> tuple[int, int, int]:
    applied = late = back = 0
    for number, asked in moved.items():
        sure = fact.moved_at(number, asked)
        back += len(sure & undone)
        applied += len(sure - undone)
        late += len(asked & fact.too_late_at(number))
    return applied, late, back


def _by(moving: pa.Table, name: str) -> dict[str, dict[tuple[Round, int], PositionSet]]:
    """The positions of rows that give another due time, by the command in a column."""
    ids = [each for each in pc.unique(moving.column(name)).to_pylist() if each is not None]
    return {each: _positions(moving.filter(pc.equal(moving.column(name), each))) for each in ids}


def _positions(moving: pa.Table) -> dict[tuple[Round, int], PositionSet]:
    return {key: PositionSet.of_runs(runs) for key, runs in due_times(moving).items()}
