"""Which messages wait, by their keys: for a topic of which no two messages with one key shall wait.

A key is known by 80 bits of a hash. A message takes 24 bytes, or 32 where it has a latest time. Messages lie in blocks
by ranges of hashes, each sorted by hash; a change writes the blocks anew that it touches, without what is due by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from state.buckets import MAX_TIME, IntArray
from state.errors import OutOfRange
from state.runs import MAX_ENTRY

Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Checks = npt.NDArray[np.uint16]
_ENTRY_BITS = 31
MOST_LEDGERS = 1 << 32
"""Ledgers below it have a place here."""
_BLOCK = 1 << 16
"""Messages of a block on the average, before blocks are divided."""
_LOW_BITS, _LOW = 32, (1 << 32) - 1
_CHECK_BITS = 16


def places_of(ledgers: IntArray, entries: IntArray) -> IntArray:
    """Positions as single numbers, in the same order.

    Raises:
        OutOfRange: a ledger has too large a number.
    """
    if len(ledgers) and int(ledgers.max()) >= MOST_LEDGERS:
        raise OutOfRange("ledger", int(ledgers.max()), 0, MOST_LEDGERS - 1)
    return ledgers << _ENTRY_BITS | entries


def positions_of(places: IntArray) -> tuple[IntArray, IntArray]:
    """Ledgers and entries of places."""
    return places >> _ENTRY_BITS, places & MAX_ENTRY


@dataclass(frozen=True)
class KeyHashes:
    """Keys by 80 bits of a hash: the same for equal keys.

    Attributes:
        words: 64 bits of each.
        checks: the other ones.
    """

    words: Words
    checks: Checks

    @classmethod
    def of(cls, keys: Iterable[bytes], salt: bytes) -> Self:
        """Of keys, by the hash that this process has for bytes: those of other processes are others.

        Args:
            keys: the keys.
            salt: bytes that nobody else knows: whoever does not know them finds no two keys that meet.
        """
        salted = [salt + key for key in keys]
        words = np.fromiter(map(hash, salted), np.int64, len(salted)).view(np.uint64)
        more = np.fromiter((hash(key + salt) for key in salted), np.int64, len(salted)).view(np.uint64)
        return cls(words, (more >> np.uint64(64 - _CHECK_BITS)).astype(np.uint16))

    def __len__(self) -> int:
        """How many."""
        return len(self.words)

    def take(self, numbers: IntArray | Flags) -> KeyHashes:
        """Some of them, by number or flag."""
        return KeyHashes(self.words[numbers], self.checks[numbers])

    def in_order(self) -> tuple[IntArray, IntArray]:
        """Their numbers, equal keys together and each of these in the given order; and where other keys begin."""
        order = np.lexsort((self.checks, self.words))
        words, checks = self.words[order], self.checks[order]
        other = np.append([True], (np.diff(words) != 0) | (np.diff(checks) != 0)) if len(order) else np.empty(0, bool)
        return order, np.flatnonzero(other)


@dataclass(frozen=True)
class Waiting:
    """Messages that wait.

    Attributes:
        keys: their keys.
        places: their positions (`places_of`).
        due: when they are due, ms UTC.
        latest: to when they may be put off at most, ms UTC; `MAX_TIME` where nothing says it.
    """

    keys: KeyHashes
    places: IntArray
    due: IntArray
    latest: IntArray

    def take(self, numbers: IntArray | Flags) -> Waiting:
        """Some of them, by number or flag."""
        return Waiting(self.keys.take(numbers), self.places[numbers], self.due[numbers], self.latest[numbers])


NOBODY = Waiting(KeyHashes(np.empty(0, np.uint64), np.empty(0, np.uint16)), *(np.empty(0, np.int64) for _ in range(3)))
"""No messages."""


class WaitingKeys:
    """The messages of a topic that wait."""

    def __init__(self, *, bounded: bool = False) -> None:
        """None yet; `bounded`: each has a latest time."""
        self._bounded, self._bits = bounded, 0
        self._blocks = [_Block.of(NOBODY, bounded=bounded)]

    def __len__(self) -> int:
        """How many messages, with those that are due and not forgotten yet. O(blocks)."""
        return sum(map(len, self._blocks))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays. O(blocks)."""
        return sum(block.nbytes for block in self._blocks)

    def find(self, keys: KeyHashes) -> tuple[IntArray, Waiting]:
        """The messages with some keys, in no order: for each the number of the key, and the message itself.

        Those that are due may be among them. O(n log n) for n keys that are asked for.
        """
        numbers, found = [np.empty(0, np.int64)], [NOBODY]
        for block, own in self._parted(keys):
            asked, here = block.meet(keys.take(own))
            numbers.append(own[asked])
            found.append(block.messages(here))
        return np.concatenate(numbers), _joined(found)

    def change(self, gone: Waiting, new: Waiting, now: int) -> None:
        """Take messages out and others in, and forget what is due by `now` (ms UTC) where something changes.

        O(n log n + blocks touched) for n messages that go or come. What is not there is not taken out.
        """
        going, coming = dict(self._parted_by_number(gone.keys)), dict(self._parted_by_number(new.keys))
        nothing = np.empty(0, np.int64)
        for number in going.keys() | coming.keys():
            block, left, taken = self._blocks[number], going.get(number, nothing), coming.get(number, nothing)
            self._blocks[number] = block.changed(gone.take(left), new.take(taken), now)
        if len(self) > _BLOCK << self._bits:
            self.forget(now)
        while len(self) > _BLOCK << self._bits:
            # One after the other, so that not all are there twice.
            whole, self._blocks = self._blocks[::-1], []
            while whole:
                self._blocks += whole.pop().halves(self._bits)
            self._bits += 1

    def forget(self, now: int) -> None:
        """Let go what is due by then (ms UTC). O(messages)."""
        for number, block in enumerate(self._blocks):
            self._blocks[number] = block.changed(NOBODY, NOBODY, now)

    def _parted(self, keys: KeyHashes) -> Iterator[tuple[_Block, IntArray]]:
        return ((self._blocks[number], own) for number, own in self._parted_by_number(keys))

    def _parted_by_number(self, keys: KeyHashes) -> Iterator[tuple[int, IntArray]]:
        """The numbers of blocks in which keys may be, and of these keys, sorted by hash."""
        order = np.argsort(keys.words)
        firsts = np.arange(1 << self._bits, dtype=np.uint64) << np.uint64(64 - self._bits) if self._bits else [0]
        starts = [*np.searchsorted(keys.words[order], np.array(firsts, np.uint64)).tolist(), len(order)]
        for number, (first, last) in enumerate(pairwise(starts)):
            if last > first:
                yield number, order[first:last]


@dataclass(frozen=True)
class _Block:
    """Messages of a range of hashes, sorted by hash; due times have 48 bits, in two arrays."""

    words: Words
    checks: Checks
    places: IntArray
    due_low: npt.NDArray[np.uint32]
    due_high: npt.NDArray[np.uint16]
    latest: IntArray | None

    @classmethod
    def of(cls, rows: Waiting, *, bounded: bool) -> _Block:
        """From messages that are sorted."""
        low, high = (rows.due & _LOW).astype(np.uint32), (rows.due >> _LOW_BITS).astype(np.uint16)
        return cls(rows.keys.words, rows.keys.checks, rows.places, low, high, rows.latest if bounded else None)

    @classmethod
    def of_columns(cls, columns: Sequence[npt.NDArray[Any]]) -> _Block:
        """From `columns` of a block."""
        words, checks, places, low, high, *latest = columns
        return cls(words, checks, places, low, high, latest[0] if latest else None)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns)

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        columns: list[npt.NDArray[Any]] = [self.words, self.checks, self.places, self.due_low, self.due_high]
        return columns if self.latest is None else [*columns, self.latest]

    def meet(self, keys: KeyHashes) -> tuple[IntArray, IntArray]:
        """The numbers of keys that are here, once for each message with one, and the numbers of these messages."""
        low, high = (np.searchsorted(self.words, keys.words, side) for side in ("left", "right"))
        counts = high - low
        asked = np.repeat(np.arange(len(counts)), counts)
        here = np.arange(len(asked)) - np.repeat(np.cumsum(counts) - counts, counts) + low[asked]
        same = self.checks[here] == keys.checks[asked]
        return asked[same], here[same]

    def messages(self, numbers: IntArray) -> Waiting:
        keys = KeyHashes(self.words[numbers], self.checks[numbers])
        due = self._due(numbers)
        latest = np.full(len(due), MAX_TIME) if self.latest is None else self.latest[numbers]
        return Waiting(keys, self.places[numbers], due, latest)

    def _due(self, numbers: IntArray | slice) -> IntArray:
        return self.due_high[numbers].astype(np.int64) << _LOW_BITS | self.due_low[numbers].astype(np.int64)

    def changed(self, gone: Waiting, new: Waiting, now: int) -> _Block:
        """Without some messages and those that are due by then, and with others, which are sorted."""
        stays = self._due(slice(None)) > now
        asked, here = self.meet(gone.keys)
        stays[here[self.places[here] == gone.places[asked]]] = False
        new = new.take(new.due > now)
        if stays.all() and not len(new.keys):
            return self
        more = _Block.of(new, bounded=self.latest is not None)
        places = np.searchsorted(self.words[stays], more.words) + np.arange(len(more))
        is_old = np.ones(int(stays.sum()) + len(more), np.bool_)
        is_old[places] = False
        columns = list[npt.NDArray[Any]]()
        for old, added in zip(self.columns, more.columns, strict=True):
            column = np.empty(len(is_old), old.dtype)
            column[is_old], column[places] = old[stays], added
            columns.append(column)
        return _Block.of_columns(columns)

    def halves(self, bits: int) -> Iterator[_Block]:
        """The lower and the upper half of the range, of blocks that have so many bits in common."""
        middle = int(np.searchsorted(self.words >> np.uint64(63 - bits) & np.uint64(1), 1))
        for part in (slice(middle), slice(middle, None)):
            # Copies: the whole shall not stay for a half of it.
            columns = [column[part].copy() for column in self.columns]
            yield _Block.of_columns(columns)


def _joined(found: list[Waiting]) -> Waiting:
    keys = KeyHashes(*(np.concatenate([getattr(each.keys, name) for each in found]) for name in ("words", "checks")))
    columns = (np.concatenate([getattr(each, name) for each in found]) for name in ("places", "due", "latest"))
    return Waiting(keys, *columns)
