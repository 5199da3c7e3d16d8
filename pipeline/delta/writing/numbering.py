"""Rows in a total order, numbered from 0 without gaps, by any number of tasks.

Spark's own `repartitionByRange` draws its bounds anew for each plan, and its tasks do not know how many rows the tasks
before them hold. Here the bounds are drawn once, from a sample by hash, and rows are counted between them: a number is
a row's place in the order, whatever the number of tasks.

An order is a sequence of `SortKey`: Spark sorts by their columns (`in_order`), the driver by their arrays (`order_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pipeline.config.lazyspark import F
from pipeline.storage.arrays import IntArray, ordered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

T = TypeVar("T")
NUMBER = "row_number"
"""The column with the number."""
_SAMPLE = 1_000
"""Rows looked at for each task: the largest part then has a few per cent more than its share."""
_ROW_BITS = 33
"""`monotonically_increasing_id` keeps the task above so many bits, and the row in the task below."""


@dataclass(frozen=True)
class SortKey(Generic[T]):
    """A part of an order, ascending.

    Attributes:
        columns: by which Spark sorts; none is NULL.
        array: from rows in the driver, a whole number for each, which sorts them alike.
    """

    columns: tuple[str, ...]
    array: Callable[[T], IntArray]


def columns_of(order: Sequence[SortKey[T]]) -> list[str]:
    """All columns of an order."""
    return [column for key in order for column in key.columns]


def order_of(rows: T, order: Sequence[SortKey[T]]) -> IntArray:
    """The numbers of rows in the driver, in order."""
    return ordered([key.array(rows) for key in order])


def in_order(
    frame: DataFrame, order: Sequence[str], count: int, tasks: int, small: DataFrame | None = None
) -> DataFrame:
    """Sort rows and add their number.

    Args:
        frame: the rows; without `small` read three times for more than one task, so persisted or cheap to read.
        order: columns that together tell any two rows apart; none is NULL.
        count: how many rows there are, about: it says how many to look at for bounds.
        tasks: tasks that share the work.
        small: the same rows with the columns of the order, persisted; the others are then read once.
    """
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    if tasks == 1:
        return frame.coalesce(1).sortWithinPartitions(*order).withColumn(NUMBER, row)
    known, keys = frame if small is None else small, _keys(frame, order)
    part = _part(keys, _bounds(known, keys, count, tasks))
    counts = {each["part"]: each["count"] for each in known.groupBy(part.alias("part")).count().collect()}
    before = [0, *accumulate(counts.get(number, 0) for number in range(tasks))][:tasks]
    placed = frame.repartitionById(tasks, part).sortWithinPartitions(*order)
    return placed.withColumn(NUMBER, F.element_at(F.array(*map(F.lit, before)), F.spark_partition_id() + 1) + row)


def _keys(frame: DataFrame, order: Sequence[str]) -> Column:
    """The order as one comparable value. Timestamps as numbers: as literals they would pass through a time zone."""
    types = dict(frame.dtypes)
    return F.struct(*(F.unix_micros(name) if types[name] == "timestamp" else F.col(name) for name in order))


def _bounds(frame: DataFrame, keys: Column, count: int, tasks: int) -> list[Column]:
    """Keys that part the rows about evenly, in order, one less than tasks."""
    every = max(1, count // (tasks * _SAMPLE))
    sample = frame.select(keys.alias("key")).where(F.pmod(F.xxhash64("key"), F.lit(every)) == 0)
    drawn: list[tuple[Any, ...]] = sorted(tuple(row["key"]) for row in sample.collect())
    cuts = (drawn[len(drawn) * number // tasks] for number in range(1, tasks) if drawn)
    kind = sample.schema["key"].dataType
    return [F.struct(*map(F.lit, cut)).cast(kind) for cut in cuts]


def _part(keys: Column, bounds: Sequence[Column]) -> Column:
    """How many bounds are not above a row."""
    return sum(((keys >= bound).cast("int") for bound in bounds), F.lit(0))
