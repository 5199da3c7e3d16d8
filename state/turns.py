"""Everybody's turn: what of several values, such as tenants, comes next when all of them shall have their share.

Deficit round robin over messages: values have their turns one after the other, in the order of their numbers, and again
from the beginning; in its turn a value has as many messages as its weight says, or what it has. So of `n` values that
wait each has a message within `n` turns, however many messages the others have.

A value is a number: what it is called is not known here. Nothing has to be kept between two choices but whose turn it
is, which is two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from state.buckets import IntArray

Weigh = Callable[[IntArray], IntArray]
"""The weights of values: whole numbers from 1 on."""


class Turn(NamedTuple):
    """Whose turn it is.

    Attributes:
        value: that of this value, or of the next one if it has nothing that waits.
        used: so many messages it has had in this turn.
    """

    value: int = 0
    used: int = 0


FIRST_TURN = Turn()


def in_turn(values: IntArray, waiting: IntArray, weights: IntArray, turn: Turn, count: int) -> tuple[IntArray, Turn]:
    """How many messages of each value come next, and whose turn it is then. O(values x log messages).

    Args:
        values: different ones, ascending, from 0 on.
        waiting: how many messages wait of each, from 0 on.
        weights: of each, from 1 on.
        turn: whose turn it is.
        count: so many are taken, or all if there are fewer.

    >>> taken, then = in_turn(np.array([3, 5, 9]), np.array([9, 9, 1]), np.array([2, 1, 1]), Turn(5), 6)
    >>> taken.tolist(), then
    ([3, 2, 1], Turn(value=3, used=1))
    """
    count = min(count, int(waiting.sum()))
    if count <= 0:
        return np.zeros(len(values), np.int64), turn
    first = int(np.searchsorted(values, turn.value)) % len(values)
    order = np.roll(np.arange(len(values)), -first)
    rounds = _Rounds(waiting[order], weights[order], turn.used if values[first] == turn.value else 0)
    taken, last, used = rounds.of(count)
    found = np.empty(len(values), np.int64)
    found[order] = taken
    value = int(values[order[last]])
    is_over = taken[last] == rounds.waiting[last] or used == rounds.weights[last]
    return found, Turn(value + 1) if is_over else Turn(value, used)


class _Rounds:
    """Rounds of turns, from the one of the first value on, which has used some of it."""

    def __init__(self, waiting: IntArray, weights: IntArray, used: int) -> None:
        self.waiting, self.weights = waiting, weights
        self._used = np.zeros(len(waiting), np.int64)
        self._used[0] = min(used, int(weights[0]))

    def taken(self, number: int) -> IntArray:
        """What each has had after so many rounds."""
        had: IntArray = np.clip(number * self.weights - self._used, 0, self.waiting)
        return had

    def of(self, count: int) -> tuple[IntArray, int, int]:
        """What each has of the first messages, from one to all; who had the last one, and so many in that turn."""
        low, high = 0, int((-(-(self.waiting + self._used) // self.weights)).max())
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if int(self.taken(middle).sum()) < count else (low, middle)
        before, after = self.taken(low), self.taken(high)
        ends = int(before.sum()) + np.cumsum(after - before)
        last = int(np.searchsorted(ends, count))
        had = np.where(np.arange(len(ends)) <= last, after, before)
        had[last] -= int(ends[last]) - count
        return had, last, int(had[last] - low * self.weights[last] + self._used[last])


class Keys(NamedTuple):
    """Positions that wait: arrays of one length.

    Attributes:
        value: whose each is.
        due: from when on it may come, in any unit.
        ledger, entry: where it is.
        round: how often it was put there.
    """

    value: IntArray
    due: IntArray
    ledger: IntArray
    entry: IntArray
    round: IntArray

    def at(self, rows: IntArray) -> Keys:
        """Some of them."""
        return Keys(*(each[rows] for each in self))

    def ordered(self) -> IntArray:
        """Their numbers by value, and then as they come."""
        order: IntArray = np.lexsort((self.round, self.entry, self.ledger, self.due, self.value))
        return order

    @classmethod
    def together(cls, parts: Sequence[Keys]) -> Keys:
        """Several ones as one."""
        return cls(*(np.concatenate(each) for each in zip(NO_KEYS, *parts, strict=True)))


NO_KEYS = Keys(*(np.empty(0, np.int64) for _ in range(5)))


@dataclass(frozen=True, eq=False)
class Choice:
    """What is chosen, and whose turn it is then.

    Attributes:
        keys: by value, and then as they come.
        then: whose turn it is.
        parts: where a queue has each of them.
    """

    keys: Keys = NO_KEYS
    then: Turn = FIRST_TURN
    parts: IntArray = field(default_factory=lambda: np.empty(0, np.int64))


class _Part:
    """Positions, sorted, and how far those of each value are taken."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys.at(keys.ordered())
        self.values, self.starts = np.unique(self.keys.value, return_index=True)
        self.ends = np.append(self.starts[1:], len(self.keys.value))
        self.last_due = int(self.keys.due.max(initial=np.iinfo(np.int64).min))

    def __len__(self) -> int:
        """How many are not taken."""
        return int((self.ends - self.starts).sum())

    def due_until(self, until: int) -> IntArray:
        """How many of each value are not taken, and due until then."""
        if self.last_due <= until:
            return self.ends - self.starts
        before = np.concatenate([[0], np.cumsum(self.keys.due <= until)])
        found: IntArray = np.maximum(before[self.ends] - before[self.starts], 0)
        return found

    def first(self, counts: IntArray) -> IntArray:
        """Where so many of each value are, or all that are not taken."""
        lengths = np.minimum(counts, self.ends - self.starts)
        begins = np.repeat(self.starts - np.cumsum(lengths) + lengths, lengths)
        return begins + np.arange(len(begins))

    def left(self) -> Keys:
        """Those that are not taken."""
        return self.keys.at(self.first(self.ends - self.starts))


class TurnQueue:
    """Positions that wait, by value, out of which the next ones are chosen in turn.

    They lie in few sorted parts, of which each is at least twice as large as the next one. A position takes 40 bytes.
    """

    def __init__(self) -> None:
        """Nothing waits."""
        self._parts: list[_Part] = []

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._parts))

    def add(self, keys: Keys) -> None:
        """Positions that wait now, too. O(n log n), and now and then of more."""
        if not len(keys.value):
            return
        self._parts.append(_Part(keys))
        while len(self._parts) > 1 and len(self._parts[-2]) < 2 * len(self._parts[-1]):
            last = [self._parts.pop().left() for _ in range(2)]
            self._parts.append(_Part(Keys.together(last)))

    def choose(self, weigh: Weigh, turn: Turn, most: int, until: int, late: int = 0, late_until: int = 0) -> Choice:
        """The next positions. Nothing is taken yet. O(values x log(waiting) + chosen x parts) when all is due.

        Args:
            weigh: gives the weights of values.
            turn: whose turn it is.
            most: so many are chosen.
            until: of those that are due until then.
            late: so many more, the first ones of those that are due until `late_until`; they use up nobody's turn.
            late_until: a time that is not after `until`.
        """
        if not self._parts:
            return Choice(then=turn)
        values = np.unique(np.concatenate([NO_KEYS.value, *(each.values for each in self._parts)]))
        places = [np.searchsorted(values, each.values) for each in self._parts]
        weights = weigh(values)
        total = self._late(places, values, late, late_until)
        own, then = in_turn(values, self._due(places, len(values), until) - total, weights, turn, most)
        return self._first(places, values, total + own, then)

    def take(self, choice: Choice) -> None:
        """What was chosen last waits no longer."""
        for number, part in enumerate(self._parts):
            own = choice.keys.value[choice.parts == number]
            part.starts += np.bincount(np.searchsorted(part.values, own), minlength=len(part.values))
        self._parts = [_compact(part) for part in self._parts if len(part)]

    def _late(self, places: Sequence[IntArray], values: IntArray, most: int, until: int) -> IntArray:
        """How many of each value are among the first of those that are due until then."""
        counts = self._due(places, len(values), until) if most > 0 else np.zeros(len(values), np.int64)
        if int(counts.sum()) <= most:
            return counts
        keys = self._first(places, values, counts, FIRST_TURN).keys
        first = np.lexsort((keys.round, keys.entry, keys.ledger, keys.due))[:most]
        return np.bincount(np.searchsorted(values, keys.value[first]), minlength=len(values))

    def _due(self, places: Sequence[IntArray], count: int, until: int) -> IntArray:
        """How many of each value are due until then."""
        found = np.zeros(count, np.int64)
        for place, part in zip(places, self._parts, strict=True):
            found[place] += part.due_until(until)
        return found

    def _first(self, places: Sequence[IntArray], values: IntArray, counts: IntArray, then: Turn) -> Choice:
        """The first positions of each value: so many."""
        found = [(part, part.first(counts[place])) for place, part in zip(places, self._parts, strict=True)]
        keys = Keys.together([part.keys.at(rows) for part, rows in found])
        number = np.repeat(np.arange(len(found)), [len(rows) for _, rows in found])
        order = keys.ordered()
        place = np.searchsorted(values, keys.value[order])
        heads = np.flatnonzero(np.diff(place, prepend=-1))
        rank = np.arange(len(order)) - np.repeat(heads, np.diff(np.append(heads, len(order))))
        chosen = order[rank < counts[place]]
        return Choice(keys.at(chosen), then, number[chosen])


def _compact(part: _Part) -> _Part:
    """A part of which most is taken, without that."""
    return part if 2 * len(part) > len(part.keys.value) else _Part(part.left())
