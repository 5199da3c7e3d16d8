"""Columns in Arrow, as the files of a table have them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.config import arrowcompute as pc

_PLAIN = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}


class StructColumns(Protocol):
    """Columns that say what they are, by Spark's JSON: a contract's, or a struct of Spark's."""

    def json(self) -> str:
        """A struct."""
        ...


@cache
def arrow_schema(columns: StructColumns) -> pa.Schema:
    """The same columns in Arrow: times in microseconds, UTC; everything nullable."""
    return pa.schema([(each["name"], _arrow_type(each["type"])) for each in json.loads(columns.json())["fields"]])


def _arrow_type(kind: Any) -> pa.DataType:  # noqa: ANN401 - what JSON holds
    if isinstance(kind, str):
        return _PLAIN[kind]
    match kind["type"]:
        case "struct":
            return pa.struct([pa.field(e["name"], _arrow_type(e["type"]), e["nullable"]) for e in kind["fields"]])
        case "map":
            item = pa.field("value", _arrow_type(kind["valueType"]), kind["valueContainsNull"])
            return pa.map_(pa.field("key", _arrow_type(kind["keyType"]), nullable=False), item)
        case _:
            return pa.list_(pa.field("element", _arrow_type(kind["elementType"]), kind["containsNull"]))


IntArray = npt.NDArray[np.int64]
_FIRST_US, _END_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Of the years 1 to 9999, which Python's times have."""


def completed(
    schema: pa.Schema,
    columns: Mapping[str, pa.Array | pa.ChunkedArray | IntArray | list[Any]],
    same: Mapping[str, object],
    rows: int,
) -> pa.Table:
    """So many rows: some columns are given, others have one value in all rows, and the rest is NULL."""
    made = [
        columns[field.name] if field.name in columns else pa.repeat(pa.scalar(same.get(field.name), field.type), rows)
        for field in schema
    ]
    return pa.Table.from_arrays(made, schema=schema)


def sizes(rows: pa.Table) -> IntArray:
    """Bytes of the texts of each row, about."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_map(column.type):
            total += map_bytes(column)
        elif pa.types.is_binary(column.type) or pa.types.is_string(column.type):
            total += lengths(column)
    return total


def map_bytes(maps: pa.Array | pa.ChunkedArray, entry: int = 0) -> IntArray:
    """Bytes of the texts of each map, and so many more for each of its entries; 0 where it is NULL."""
    held = maps.combine_chunks() if isinstance(maps, pa.ChunkedArray) else maps
    ends = np.cumsum(np.append(0, lengths(held.keys) + lengths(held.items) + entry))[held.offsets.to_numpy()]
    found: IntArray = ends[1:] - ends[:-1]
    return found


def lengths(texts: pa.Array | pa.ChunkedArray) -> IntArray:
    """Bytes of each text; 0 where it is NULL."""
    found: IntArray = pc.fill_null(pc.binary_length(texts), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def longs(rows: pa.Table | pa.RecordBatch, column: str) -> IntArray:
    """A column of numbers, or of times in microseconds, without NULL."""
    array: IntArray = rows.column(column).cast(pa.int64()).to_numpy()
    return array


def filled(rows: pa.Table, column: str) -> IntArray:
    """A column of numbers; -1 where it is NULL."""
    found: IntArray = pc.fill_null(rows.column(column), -1).to_numpy()
    return found


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows with Python's values; a time that Python has no number for is NULL."""
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
    except (OverflowError, ValueError):
        for number, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):
                rows = rows.set_column(number, field, _within_calendar(rows.column(number)))
        found = rows.to_pylist()
    return found


def _within_calendar(times: pa.ChunkedArray) -> pa.ChunkedArray:
    micros = pc.cast(times, pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
    inside = pc.and_(pc.greater_equal(micros, _FIRST_US), pc.less(micros, _END_US))
    return pc.if_else(inside, times, pa.scalar(None, times.type))


def grouped(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], IntArray]]:
    """The different values of some columns, NULL too, and the numbers of the rows that have them, ascending."""
    if not rows.num_rows:
        return
    codes = np.zeros(rows.num_rows, np.int64)
    for name in names:
        own = rows.column(name).combine_chunks().dictionary_encode()
        place = pc.fill_null(own.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        # Numbered anew with each column, so that they stay small.
        codes = np.unique(codes * (int(place.max()) + 1) + place, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    values = rows.select(list(names))
    for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield values.slice(int(part[0]), 1).to_pylist()[0], part


def first_reason(flags: Sequence[tuple[str, pa.Array | pa.ChunkedArray]]) -> pa.Array:
    """The first of some reasons that holds for each row; NULL: none does."""
    found = pc.case_when(pc.make_struct(*(holds for _, holds in flags)), *(reason for reason, _ in flags))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def rounds(rows: pa.Table) -> IntArray:
    """The round of each row; where the column is NULL it is the redelivery count."""
    return longs(pa.table({"round": pc.coalesce(rows.column("round"), rows.column("redelivery_count"))}), "round")


def ranks(rows: pa.Table, column: str) -> IntArray:
    """The place of each text among the different ones of a column, in the order in which Spark sorts them.

    That is the order of their UTF-8 bytes, and so of their code points.
    """
    codes = rows.column(column).combine_chunks().dictionary_encode()
    texts = codes.dictionary.to_pylist()
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    found: IntArray = rank[codes.indices.to_numpy()]
    return found


def ordered(columns: Sequence[IntArray]) -> IntArray:
    """The numbers of rows in the order of several columns, the first one first."""
    distinguishing = [column for column in columns if len(column) and column.min() != column.max()]
    if not distinguishing:
        return np.arange(len(columns[0]))
    return np.lexsort(distinguishing[::-1])
