"""Rows that a query is given beside the tables: spelled out, or as a table of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pipeline.delta.deltars import quoted
from pipeline.storage.arrays import IntArray

Row: TypeAlias = tuple[str | int, ...]
"""Texts and whole numbers."""
_SPELLED_OUT = 1_000
"""So many rows are named in a query."""


def longs_table(names: Sequence[str], parts: Iterable[Sequence[int | IntArray]]) -> pa.Table:
    """Columns of whole numbers, part behind part; a number is the same in all rows of its part, of one array at least.

    PyArrow imports pandas for an empty table of its own making, and for each array of NumPy, so they are made of bytes.
    """
    schema = pa.schema([(name, pa.int64()) for name in names])
    pieces = [pa.Table.from_batches([], schema)]
    for part in parts:
        columns = [np.ascontiguousarray(each, np.int64) for each in np.broadcast_arrays(*part)]
        arrays = [pa.Array.from_buffers(pa.int64(), len(each), [None, pa.py_buffer(each)]) for each in columns]
        pieces.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(pieces)


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as a table; there is at least one."""
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.Table.from_arrays([pa.array(each, field.type) for each, field in columns], schema=schema)


@contextmanager
def relation(name: str, rows: pa.Table) -> Iterator[tuple[str, dict[str, DeltaTable]]]:
    """Rows of texts and whole numbers as a subquery, and the tables that it reads.

    Few rows are spelled out. Of many the parser would take 25 kB each, so they are a table in a folder for temporary
    files.
    """
    if rows.num_rows <= _SPELLED_OUT:
        lines = zip(*(rows.column(each).to_pylist() for each in rows.column_names), strict=True)
        yield _values(list(lines), rows.column_names), {}
        return
    with TemporaryDirectory() as folder:
        write_deltalake(folder, rows)
        yield f"SELECT * FROM {name}", {name: DeltaTable(folder)}  # noqa: S608 - our own word


def _values(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Rows as a subquery, with texts quoted."""
    lines = (", ".join(quoted(each) if isinstance(each, str) else str(each) for each in row) for row in rows)
    values = ", ".join(f"({line})" for line in lines)
    named = (f"column{place} AS {name}" for place, name in enumerate(names, 1))
    return f"SELECT {', '.join(named)} FROM (VALUES {values})"  # noqa: S608 - quoted
