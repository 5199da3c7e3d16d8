"""Rows of several sources, each of them in order, merged into one order, some at a time.

A source is opened when its first row may come next, and one piece of each open source is held. So memory is bounded by
how many sources overlap, and not by how many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.storage.arrays import IntArray, longs, ordered

Key = tuple[int, ...]
"""The place of a row in an order: the numbers in some columns. A shorter one comes before all that begin with it."""


@dataclass(frozen=True)
class Source:
    """Some rows, a piece at a time.

    Attributes:
        least: none of the rows comes before it; (): nobody knows.
        pieces: begins to read them.
    """

    least: Key
    pieces: Callable[[], Iterator[pa.Table]]


def in_order(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Rows in the order of columns of numbers or times; the same object when they are in it."""
    if not rows.num_rows:
        return rows
    order = ordered([longs(rows, name) for name in columns])
    return rows if (np.diff(order) == 1).all() else rows.take(pa.array(order))


def merged(sources: Iterable[Source], columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of all sources in the order of columns of numbers or times.

    Each row comes once, also where a source is not in order. A piece without rows comes as it is: whoever has little
    time may go on later. Costs O(n), and no copy, where sources do not overlap.
    """
    waiting = sorted(sources, key=lambda each: each.least, reverse=True)
    heads: list[_Head] = []
    while waiting or heads:
        if empty := next((each for each in heads if not each.rows.num_rows), None):
            yield empty.rows
            empty.advance()
        elif waiting and (not heads or waiting[-1].least <= min(each.first for each in heads)):
            heads.append(_Head(waiting.pop().pieces(), columns))
        else:
            limit, before = min(each.last for each in heads), waiting[-1].least if waiting else None
            found = [rows for each in heads if (rows := each.take(limit, before)).num_rows]
            yield found[0] if len(found) == 1 else in_order(pa.concat_tables(found), columns)
        heads = [each for each in heads if each.left]


class _Head:
    """A source that is open: what is left of one piece of it.

    Attributes:
        left: whether there is a piece.
        rows: the piece; that it has none tells nothing of the next one.
    """

    def __init__(self, pieces: Iterator[pa.Table], columns: Sequence[str]) -> None:
        self._pieces, self._columns = pieces, columns
        self.advance()

    def advance(self) -> None:
        """Go on with the next piece."""
        found = next(self._pieces, None)
        self.left = found is not None
        if found is not None:
            self.rows, self._at = in_order(found, self._columns), 0
            self._keys: list[IntArray] = [longs(self.rows, name) for name in self._columns]

    def _key(self, number: int) -> Key:
        return tuple(int(column[number]) for column in self._keys)

    @property
    def first(self) -> Key:
        """The place of the first row that is left of the piece."""
        return self._key(self._at)

    @property
    def last(self) -> Key:
        """The place of its last row."""
        return self._key(self.rows.num_rows - 1)

    def take(self, upto: Key, before: Key | None) -> pa.Table:
        """Take the rows of the piece up to a place, and before another one."""
        past = bisect_right(range(self.rows.num_rows), upto, self._at, key=self._key)
        if before is not None:
            past = bisect_left(range(past), before, self._at, key=self._key)
        rows = self.rows.slice(self._at, past - self._at)
        self._at = past
        if past == self.rows.num_rows:
            self.advance()
        return rows
