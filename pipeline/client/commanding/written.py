"""Rows of `commands`, as clients write them: one commit for each command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pipeline.client.commanding.chosen import Chosen
from pipeline.delta.deltars import append
from pipeline.storage.arrays import IntArray, arrow_schema
from pipeline.subscriptions.commands import MAX_RUN, rows_of
from schemas import COMMANDS

Moved = tuple[Chosen, IntArray]
"""Positions, and when each is to be due, ms UTC."""


def withdraw(root: str, chosen: Sequence[Chosen], told: Mapping[str, object]) -> str:
    """Write a cancel of positions, or an undo of one; give its id.

    Raises:
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    whole = _whole(told)
    return _append(root, whole, [_withdrawn(each, whole) for each in chosen])


def move(root: str, moved: Sequence[Moved], told: Mapping[str, object]) -> str:
    """Write that positions are due at other times, each in a round of its own; give the id of the command.

    Raises:
        StillConflicting: others wrote at the same time, every time; nothing was written.
    """
    whole = _whole(told)
    return _append(root, whole, [_moved(chosen, due, whole) for chosen, due in moved])


def _whole(told: Mapping[str, object]) -> dict[str, object]:
    return {**told, "command_id": str(uuid4()), "at": datetime.now(UTC)}


def _append(root: str, whole: Mapping[str, object], rows: Sequence[pa.Table]) -> str:
    append(root, COMMANDS, pa.concat_tables(rows))
    return str(whole["command_id"])


def _withdrawn(chosen: Chosen, told: Mapping[str, object]) -> pa.Table:
    """Rows of one subscription."""
    rows = rows_of({chosen.of: chosen.positions}, told)
    until = _until(chosen, chosen.due, rows.column("ledger_id").to_numpy())
    column = rows.column_names.index("due_time")
    return rows.set_column(column, rows.schema.field(column), until)


def _moved(chosen: Chosen, due: IntArray, told: Mapping[str, object]) -> pa.Table:
    """Rows of one subscription: a run has one due time, and had one."""
    columns = (chosen.ledgers, chosen.entries - np.arange(len(due)), due, chosen.due, chosen.rounds)
    steps = np.logical_or.reduce([np.diff(each) != 0 for each in columns])
    lengths = np.diff(np.append(np.append(0, np.flatnonzero(steps) + 1), len(due)))
    # A run that is too long is cut.
    heads = np.concatenate([np.append(0, np.flatnonzero(steps) + 1), _cuts(lengths)])
    heads.sort()
    ends = np.append(heads[1:], len(due)) - 1
    values: dict[str, pa.Array] = {
        "ledger_id": pa.array(chosen.ledgers[heads]),
        "first_entry": pa.array(chosen.entries[heads]),
        "last_entry": pa.array(chosen.entries[ends]),
        "round": pa.array(chosen.rounds[heads] + 1),
        "due_time": _until(chosen, np.maximum(due, chosen.due), chosen.ledgers[heads]),
        "deliver_at": _times(due[heads]),
        "due_before": _times(chosen.due[heads]),
    }
    same, schema = {**chosen.of._asdict(), **told}, arrow_schema(COMMANDS.columns)
    columns_of = [
        values[field.name]
        if field.name in values
        else pa.repeat(pa.scalar(same.get(field.name), field.type), len(heads))
        for field in schema
    ]
    return pa.Table.from_arrays(columns_of, schema=schema)


def _cuts(lengths: IntArray) -> IntArray:
    """Where runs begin anew, because they are longer than `MAX_RUN`; all runs follow one another."""
    starts = np.cumsum(lengths) - lengths
    more = [np.arange(start + MAX_RUN, start + length, MAX_RUN) for start, length in _long(starts, lengths)]
    return np.concatenate([np.empty(0, np.int64), *more])


def _long(starts: IntArray, lengths: IntArray) -> list[tuple[int, int]]:
    long = lengths > MAX_RUN
    return list(zip(starts[long].tolist(), lengths[long].tolist(), strict=True))


def _until(chosen: Chosen, due: IntArray, ledgers: IntArray) -> pa.Array:
    """Until when rows count, said by ledger: the latest due time of what is named there."""
    heads = np.flatnonzero(np.diff(chosen.ledgers, prepend=-1))
    latest = np.maximum(np.maximum.reduceat(due, heads), chosen.until)
    return _times(latest[np.searchsorted(chosen.ledgers[heads], ledgers)])


def _times(ms: IntArray) -> pa.Array:
    return pa.array(ms * 1_000).cast(arrow_schema(COMMANDS.columns).field("due_time").type)
