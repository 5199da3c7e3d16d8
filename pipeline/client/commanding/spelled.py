"""Positions that commands name, as tables for a query. Without pandas, which PyArrow imports for arrays of NumPy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipeline.client.commanding.chosen import Chosen
from pipeline.storage.arrays import IntArray
from state.positionset import PositionSet
from state.withdrawals import Round

_WITHDRAWN = pa.schema(
    [("topic", pa.string()), ("subscription", pa.string()), ("ledger_id", pa.int64()), ("entry_id", pa.int64())]
)
_LATER = _WITHDRAWN.append(pa.field("due_ms", pa.int64()))


def spelled(parts: Iterable[tuple[Round, PositionSet]]) -> pa.Table:
    """Topic, subscription, ledger and entry of positions."""
    # PyArrow imports pandas for an empty table of its own making, and for each array of NumPy.
    pieces = [pa.Table.from_batches([], _WITHDRAWN)]
    for of, positions in parts:
        for ledger, entries in positions.by_ledger():
            own = np.asarray(entries.to_array(), np.int64)
            same = [pa.repeat(value, len(own)) for value in (of.topic, of.subscription, ledger)]
            pieces.append(pa.Table.from_arrays([*same, _longs(own)], schema=_WITHDRAWN))
    return pa.concat_tables(pieces)


def later_of(moved: Iterable[Chosen]) -> pa.Table:
    """The same of positions with another due time, and that time."""
    pieces = [pa.Table.from_batches([], _LATER)]
    for each in moved:
        same = [pa.repeat(value, len(each.due)) for value in (each.of.topic, each.of.subscription)]
        columns = [_longs(column) for column in (each.ledgers, each.entries, each.due)]
        pieces.append(pa.Table.from_arrays([*same, *columns], schema=_LATER))
    return pa.concat_tables(pieces)


def _longs(numbers: IntArray) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
