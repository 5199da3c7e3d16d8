"""How many messages are due in each minute: arrays, of which a million minutes take 16 MB."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.config.settings import MINUTE_MS
from pipeline.storage.arrays import IntArray, longs

_BITS = 32
"""A minute since 1970 has no more."""


@dataclass(frozen=True, eq=False)
class MinuteCounts(Mapping[int, int]):
    """Messages by the start of the minute in which they are due, as a mapping that reads two arrays.

    Attributes:
        starts: of minutes, ms UTC, ascending.
        counts: messages of each.
    """

    starts: IntArray
    counts: IntArray

    @classmethod
    def together(cls, parts: Sequence[Mapping[int, int]]) -> MinuteCounts:
        """Several ones as one."""
        arrays = [_arrays(each) for each in parts] or [NOTHING]
        starts, place = np.unique(np.concatenate([each.starts for each in arrays]), return_inverse=True)
        counts = np.zeros(len(starts), np.int64)
        np.add.at(counts, place, np.concatenate([each.counts for each in arrays]))
        return cls(starts, counts)

    def within(self, begin: int, end: int) -> int:
        """Messages of the minutes that begin from a time on and before another one, ms UTC."""
        first, last = np.searchsorted(self.starts, [begin, end])
        return int(self.counts[first:last].sum())

    def __getitem__(self, start: int) -> int:
        """Messages of a minute."""
        place = int(np.searchsorted(self.starts, start))
        if place == len(self.starts) or self.starts[place] != start:
            raise KeyError(start)
        return int(self.counts[place])

    def __iter__(self) -> Iterator[int]:
        """The starts."""
        return iter(self.starts.tolist())

    def __len__(self) -> int:
        """How many minutes there are."""
        return len(self.starts)

    def __repr__(self) -> str:
        """As a dictionary."""
        return repr(self._plain)

    def items(self) -> ItemsView[int, int]:
        """Starts and counts."""
        return self._plain.items()

    def values(self) -> ValuesView[int]:
        """The counts."""
        return self._plain.values()

    @property
    def _plain(self) -> dict[int, int]:
        return dict(zip(self.starts.tolist(), self.counts.tolist(), strict=True))


def _arrays(minutes: Mapping[int, int]) -> MinuteCounts:
    if isinstance(minutes, MinuteCounts):
        return minutes
    starts, counts = (np.fromiter(each, np.int64, len(minutes)) for each in (minutes.keys(), minutes.values()))
    return MinuteCounts(starts, counts)


NOTHING = MinuteCounts(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, eq=False)
class ListenerMinutes:
    """Messages by listener and minute.

    Attributes:
        keys: the number of a listener, and below it 32 bits for the minute since 1970 in which something is due; each
            is there once, ascending.
        counts: messages; less than none: more were delivered than accepted.
    """

    keys: IntArray
    counts: IntArray

    @classmethod
    def of_rows(cls, rows: pa.Table) -> ListenerMinutes:
        """Of rows ordered by `listener` and `minute`, with the `messages` of each."""
        listener, minute, messages = (longs(rows, name) for name in ("listener", "minute", "messages"))
        return cls(listener << _BITS | minute, messages)

    def __len__(self) -> int:
        """How many minutes of listeners there are."""
        return len(self.keys)

    def __add__(self, other: ListenerMinutes) -> ListenerMinutes:
        """Both together, without minutes in which nothing is left."""
        if not (self and other):
            return self or other
        keys = np.concatenate([self.keys, other.keys])
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], np.concatenate([self.counts, other.counts])[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        total = ListenerMinutes(keys[first], np.add.reduceat(counts, first))
        return total._where(total.counts != 0)

    def positive(self) -> ListenerMinutes:
        """The minutes in which something is pending: a delivery may be there longer than its message."""
        return self._where(self.counts > 0)

    def firsts(self) -> dict[int, int]:
        """The first minute of each listener, by its start, ms UTC."""
        numbers = self.keys >> _BITS
        first = np.flatnonzero(np.diff(numbers, prepend=-1))
        return dict(zip(numbers[first].tolist(), _starts(self.keys[first]).tolist(), strict=True))

    def by_listener(self, count: int) -> Sequence[MinuteCounts]:
        """The minutes of each of so many listeners, by its number."""
        bounds = np.searchsorted(self.keys, np.arange(count + 1) << _BITS).tolist()
        starts = _starts(self.keys)
        return [MinuteCounts(starts[begin:end], self.counts[begin:end]) for begin, end in pairwise(bounds)]

    def _where(self, rows: npt.NDArray[np.bool_]) -> ListenerMinutes:
        return self if rows.all() else ListenerMinutes(self.keys[rows], self.counts[rows])


NO_MINUTES = ListenerMinutes(NOTHING.starts, NOTHING.counts)


def _starts(keys: IntArray) -> IntArray:
    return (keys & ((1 << _BITS) - 1)) * MINUTE_MS
