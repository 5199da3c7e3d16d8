"""Rows of `commands`, as clients write them: one commit for each command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pipeline.client.commanding.inforce import Chosen
from pipeline.delta.deltars import append
from pipeline.storage.arrays import IntArray, arrow_schema, completed
from pipeline.subscriptions.commands import MAX_RUN
from schemas import COMMANDS

Named = tuple[Chosen, IntArray | None]
"""Positions, and when each is to be due, ms UTC; None: a cancel names them, or an undo of one."""


def write(root: str, named: Sequence[Named], columns: Mapping[str, object]) -> str:
    """Write a command; give its id. What is to be due at another time gets a round of its own.

    Raises:
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    whole = {**columns, "command_id": str(uuid4()), "at": datetime.now(UTC)}
    append(root, COMMANDS, pa.concat_tables([rows_of(chosen, due, whole) for chosen, due in named]))
    return str(whole["command_id"])


def rows_of(chosen: Chosen, due: IntArray | None, columns: Mapping[str, object]) -> pa.Table:
    """Rows that name some positions, a row for each run; one that is to be due at another time has one, and had one.

    Args:
        chosen: the positions, at least one.
        due: when each is to be due, as in `Named`.
        columns: other columns, the same in all rows.
    """
    times = () if due is None else (due, chosen.due, chosen.rounds)
    heads = _heads(chosen.ledgers, chosen.entries - np.arange(len(chosen.entries)), *times)
    ends = np.append(heads[1:], len(chosen.entries)) - 1
    until = chosen.until if due is None else np.maximum(due, chosen.until)
    values: dict[str, pa.Array] = {
        "ledger_id": pa.array(chosen.ledgers[heads]),
        "first_entry": pa.array(chosen.entries[heads]),
        "last_entry": pa.array(chosen.entries[ends]),
        "due_time": _until(chosen.ledgers, until, heads),
    }
    if due is not None:
        values["round"] = pa.array(chosen.rounds[heads] + 1)
        values["deliver_at"], values["due_before"] = _times(due[heads]), _times(chosen.due[heads])
    return completed(arrow_schema(COMMANDS.columns), values, {**chosen.of._asdict(), **columns}, len(heads))


def _heads(*columns: IntArray) -> IntArray:
    """Where runs begin: where a column has another value, and where a run would get longer than `MAX_RUN`."""
    anew = np.append([True], np.logical_or.reduce([np.diff(each) != 0 for each in columns]))
    places = np.arange(len(anew))
    begun = np.maximum.accumulate(np.where(anew, places, 0))
    return np.flatnonzero((places - begun) % MAX_RUN == 0)


def _until(ledgers: IntArray, until: IntArray, rows: IntArray) -> pa.Array:
    """Until when rows count, said by ledger: as long as any position that is named there."""
    heads = np.flatnonzero(np.diff(ledgers, prepend=-1))
    latest = np.maximum.reduceat(until, heads)
    return _times(latest[np.searchsorted(ledgers[heads], ledgers[rows])])


def _times(ms: IntArray) -> pa.Array:
    return pa.array(ms * 1_000).cast(arrow_schema(COMMANDS.columns).field("due_time").type)
