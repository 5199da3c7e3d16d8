"""What rows of `commands` say, by whole arrays; and why some cannot be followed.

Users append rows with any Delta writer, and dispatch reads them on its way. So each row is looked at before it counts,
and one that is wrong changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.storage.arrays import filled, first_reason, grouped
from state.buckets import MAX_TIME
from state.positions import Positions
from state.positionset import PositionSet
from state.retry import MAX_ROUND
from state.runs import MAX_ENTRY, MAX_LEDGER, Runs
from state.withdrawals import Parts, Round, Withdrawals

CANCEL, UNDO = "cancel", "undo"
RESCHEDULE, SHIFT, RELEASE = MOVES = "reschedule", "shift", "release"
"""Kinds of commands that give positions another due time. A row of kind `undo` with a round takes such a one back."""
MAX_RUN = 1 << 20
"""A row names no more entries: whoever takes it apart can hold them."""
UNKNOWN_KIND, NO_NAME, NO_DUE_TIME, NO_DELIVER_AT = "unknown_kind", "no_name", "no_due_time", "no_deliver_at"
BAD_POSITION, BAD_ROUND = "bad_position", "bad_round"
READ = (
    "kind", "command_id", "undoes", "topic", "subscription", "life", "redelivery_count", "ledger_id", "first_entry",
    "last_entry", "due_time", "round", "deliver_at",
)  # fmt: skip
"""The columns that say what is withdrawn, and until when."""
_RUN = ("ledger_id", "first_entry", "last_entry")
_WHO = ("kind", "command_id", "undoes", "round")
Who = dict[str, Any]
"""Kind, command, what it takes back, and the round that it makes, if it makes one."""


def withdrawals(rows: pa.Table) -> Withdrawals:
    """What rows of `commands` say; those that cannot be followed say nothing. O(rows log rows).

    Args:
        rows: the columns `READ`, in any order.
    """
    found = Withdrawals()
    for who, of, positions in _parts(_followed(rows)):
        if who["round"] is not None:
            found.move(who["round"], of, PositionSet.of(positions))
            continue
        take = found.cancel if who["kind"] == CANCEL else found.undo
        take(who["undoes"] or who["command_id"], of, PositionSet.of(positions))
    return found


def named_by(rows: pa.Table) -> dict[str, Parts]:
    """The positions that each command names; rows that cannot be followed name none."""
    found: dict[str, Parts] = {}
    for who, of, positions in _parts(_followed(rows)):
        parts = found.setdefault(who["command_id"], {})
        parts[of] = parts.get(of, PositionSet()) | PositionSet.of(positions)
    return found


def wrong(rows: pa.Table) -> pa.Array:
    """Why each row cannot be followed; NULL: it can."""
    ledger, first, last, life, count = (filled(rows, name) for name in (*_RUN, "life", "redelivery_count"))
    number, moved = filled(rows, "round"), pa.array(_moved(rows))
    placed = (ledger >= 0) & (ledger <= MAX_LEDGER) & (first >= 0) & (first <= last) & (last <= MAX_ENTRY)
    # A difference of numbers that are in their ranges cannot overflow.
    placed &= np.where(placed, last - first, MAX_RUN) < MAX_RUN
    kinds = pc.fill_null(rows.column("kind"), "")
    named = pc.or_(pc.not_equal(kinds, UNDO), pc.is_valid(rows.column("undoes")))
    for name in ("command_id", "topic", "subscription"):
        named = pc.and_(named, pc.is_valid(rows.column(name)))
    return first_reason(
        (
            (UNKNOWN_KIND, pc.invert(pc.is_in(kinds, pa.array([CANCEL, UNDO, *MOVES])))),
            (NO_NAME, pc.invert(named)),
            (NO_DUE_TIME, pc.is_null(rows.column("due_time"))),
            (BAD_POSITION, pa.array(~placed)),
            (BAD_ROUND, pa.array((life < 0) | (count < 0) | (count > MAX_ROUND))),
            (BAD_ROUND, pc.and_(moved, pa.array((number <= count) | (number > MAX_ROUND)))),
            (NO_DELIVER_AT, pc.and_(moved, _unreachable(rows.column("deliver_at")))),
        )
    )


def _followed(rows: pa.Table) -> pa.Table:
    """The rows that count; a cancel undoes and moves nothing, whatever it says."""
    rows = rows.filter(pc.is_null(wrong(rows)))
    undoes = pc.if_else(pc.equal(rows.column("kind"), UNDO), rows.column("undoes"), pa.scalar(None, pa.string()))
    rows = rows.set_column(rows.column_names.index("undoes"), "undoes", undoes)
    number = pc.if_else(pc.equal(rows.column("kind"), CANCEL), pa.scalar(None, pa.int64()), rows.column("round"))
    return rows.set_column(rows.column_names.index("round"), "round", number)


def moves(rows: pa.Table) -> pa.Table:
    """The rows that give positions another due time and can be followed."""
    found = _followed(rows)
    return found.filter(pa.array(_moved(found)))


def _moved(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows give positions another due time, or should."""
    kinds = pc.fill_null(rows.column("kind"), "")
    undo = pc.and_(pc.equal(kinds, UNDO), pc.is_valid(rows.column("round")))
    found: npt.NDArray[np.bool_] = pc.or_(pc.is_in(kinds, pa.array(MOVES)), undo).to_numpy()
    return found


def _unreachable(times: pa.ChunkedArray) -> pa.Array:
    """Which times no clock will ever show, or are none."""
    ms = pc.fill_null(times.cast(pa.int64()), -1).to_numpy() // 1_000
    return pa.array((ms < 0) | (ms > MAX_TIME))


def due_times(moved: pa.Table, column: str = "deliver_at") -> dict[tuple[Round, int], Runs]:
    """When positions are due, by what names them and by round; O(rows log rows).

    Args:
        moved: what `moves` gives.
        column: another one with times, that are to stand in the place of the due times.
    """
    found = {}
    for columns, own in _alike(moved, (*Round._fields, "round")):
        due = own.column(column).cast(pa.int64()).to_numpy() // 1_000
        of = Round(*(columns[name] for name in Round._fields))
        found[of, int(columns["round"])] = Runs(due, *(filled(own, name) for name in _RUN))
    return found


def _parts(rows: pa.Table) -> Iterator[tuple[Who, Round, Positions]]:
    """The positions of each kind and command, of what it names, and of the round that it makes."""
    for columns, own in _alike(rows, (*_WHO, *Round._fields)):
        of = Round(*(columns[name] for name in Round._fields))
        yield {name: columns[name] for name in _WHO}, of, Positions.of(*(filled(own, name) for name in _RUN))


def _alike(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The rows that have the same values in some columns, and those."""
    for columns, numbers in grouped(rows, names):
        yield columns, rows.take(pa.array(numbers))
