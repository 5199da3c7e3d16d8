"""Positions of listeners, as tables for a query. Without pandas, which PyArrow imports for arrays of NumPy.

A listener is a number that stands for a topic and a subscription: a join by texts takes twice as long.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipeline.client.commanding.inforce import Chosen
from pipeline.storage.arrays import IntArray
from state.positionset import PositionSet

_WITHDRAWN = pa.schema([(name, pa.int64()) for name in ("listener", "ledger_id", "entry_id")])
_LATER = _WITHDRAWN.append(pa.field("due_ms", pa.int64()))


def positions_table(parts: Iterable[tuple[int, PositionSet]]) -> pa.Table:
    """Listener, ledger and entry of positions."""
    # PyArrow imports pandas for an empty table of its own making, and for each array of NumPy.
    pieces = [pa.Table.from_batches([], _WITHDRAWN)]
    for listener, positions in parts:
        for ledger, entries in positions.by_ledger():
            own = np.asarray(entries.to_array(), np.int64)
            same = [_longs(np.full(len(own), value)) for value in (listener, ledger)]
            pieces.append(pa.Table.from_arrays([*same, _longs(own)], schema=_WITHDRAWN))
    return pa.concat_tables(pieces)


def due_times_table(moved: Iterable[tuple[int, Chosen]]) -> pa.Table:
    """The same of positions with another due time, and that time."""
    pieces = [pa.Table.from_batches([], _LATER)]
    for listener, each in moved:
        columns = (np.full(len(each.due), listener), each.ledgers, each.entries, each.due)
        pieces.append(pa.Table.from_arrays([_longs(column) for column in columns], schema=_LATER))
    return pa.concat_tables(pieces)


def _longs(numbers: IntArray) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
