"""Rows in a total order, numbered from 0 without gaps, by any number of tasks.

Spark's own `repartitionByRange` draws its bounds anew for each plan, and its tasks do not know how many rows the tasks
before them hold. Here the bounds are drawn once, from a sample by hash, and rows are counted between them: a number is
a row's place in the order, whatever the number of tasks.

An order is a sequence of `SortKey`: Spark sorts by their columns (`in_order`), the driver by their arrays (`order_of`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
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
_SEED, _WORD = 42, (1 << 32) - 1
"""Of the hash by which Spark's `repartition` gives rows to tasks, and its bits."""
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
    before = [0, *itertools.accumulate(counts.get(number, 0) for number in range(tasks))][:tasks]
    placed = frame.repartition(tasks, _nth(key_of_each(tasks), part)).sortWithinPartitions(*order)
    return placed.withColumn(NUMBER, _nth(before, F.spark_partition_id()) + row)


@cache
def key_of_each(tasks: int) -> tuple[int, ...]:
    """For each task a number that Spark's `repartition` by that number sends to it.

    `repartitionById`, which needs none, is not there before Spark 4.1; this is the same on all lines.
    """
    found = dict[int, int]()
    numbers = itertools.count()
    while len(found) < tasks:
        number = next(numbers)
        found.setdefault(_hash(number) % tasks, number)
    return tuple(found[task] for task in range(tasks))


def _hash(number: int) -> int:
    """Murmur3 of a positive integer of 32 bits, as Spark's `hash` has it."""
    mixed = _turned(number * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    value = (_turned(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _turned(word: int, bits: int) -> int:
    """The bits of a word moved to the left; those that fall out come in at the right."""
    return (word << bits | word >> 32 - bits) & _WORD


def _nth(values: Sequence[int], place: Column) -> Column:
    """The value at a place that each row says, counted from 0."""
    return F.element_at(F.array(*map(F.lit, values)), place + 1)


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
