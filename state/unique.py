"""What becomes of messages when one with their key waits: pure functions of arrays, in the order of arrival.

*Replace*: the newest message of a key counts, and the older ones that wait are replaced. *Extend*: the same, but nobody
is put off for ever: whoever replaces is due at its own time, or at the latest time of the chain that the first one
began. *Drop*: while one waits, newer ones are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from state.buckets import MAX_TIME, IntArray
from state.keys import Flags, KeyHashes, Waiting, WaitingKeys

NONE = -1
"""In the place of a number: there is none."""


class Mode(StrEnum):
    """What becomes of messages with the key of one that waits."""

    REPLACE = "replace"
    EXTEND = "extend"
    DROP = "drop"


@dataclass(frozen=True)
class Held:
    """For each of some keys, which are numbered, what waits with it.

    Attributes:
        numbers: of the first one of equal keys, once for each message that waits.
        waiting: the messages.
    """

    numbers: IntArray
    waiting: Waiting

    @classmethod
    def of(cls, keys: KeyHashes, waiting: WaitingKeys) -> Self:
        """What waits with some keys, which may be equal; what is due may be among it."""
        order, starts = keys.in_order()
        firsts = order[starts]
        numbers, found = waiting.find(keys.take(firsts))
        return cls(firsts[numbers], found)

    def only(self, flags: Flags) -> Held:
        """Some of them."""
        return Held(self.numbers[flags], self.waiting.take(flags))


@dataclass(frozen=True)
class _Sorted:
    """Arrivals with equal keys together, each in the order of arrival.

    Attributes:
        order: the numbers of the arrivals.
        group: the number of the key of each.
        starts: where keys begin.
    """

    order: IntArray
    group: IntArray
    starts: IntArray

    @classmethod
    def of(cls, keys: KeyHashes) -> Self:
        order, starts = keys.in_order()
        group = np.zeros(len(order), np.int64)
        group[starts[1:]] = 1
        return cls(order, np.cumsum(group), starts)

    @property
    def is_first(self) -> Flags:
        """Which are the first ones with their keys."""
        flags = np.zeros(len(self.order), np.bool_)
        flags[self.starts] = True
        return flags

    def groups_of(self, numbers: IntArray) -> IntArray:
        """The numbers of the keys of some arrivals."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = self.group
        return found[numbers]


@dataclass(frozen=True)
class Refused:
    """Arrivals that are refused since an older message waits.

    Attributes:
        flags: which.
        older: the number of the arrival that each of all arrivals is refused for; `NONE`: it is none of these.
        place: else the place of the message that waited before; `NONE`: there is none.
    """

    flags: Flags
    older: IntArray
    place: IntArray


def refused(keys: KeyHashes, due: IntArray, held: Held, now: int) -> Refused:
    """What is refused of arrivals: all with a key of which a message waits, or an arrival before them does.

    Args:
        keys: of the arrivals.
        due: when they are due, ms UTC.
        held: what waits with these keys.
        now: what is due by then waits for nothing, ms UTC.
    """
    count, sort = len(keys), _Sorted.of(keys)
    places = np.full(len(sort.starts), NONE)
    places[sort.groups_of(held.numbers)] = held.waiting.places
    waits = due[sort.order] > now
    ranks = np.where(waits, np.arange(count), count)
    firsts = np.minimum.reduceat(ranks, sort.starts)[sort.group] if count else ranks
    place = places[sort.group]
    behind = (place != NONE) | (np.arange(count) > firsts)
    flags, older, of = np.zeros(count, np.bool_), np.full(count, NONE), np.full(count, NONE)
    flags[sort.order] = behind
    by_arrival = behind & (place == NONE)
    older[sort.order[by_arrival]] = sort.order[firsts[by_arrival]]
    of[sort.order] = np.where(behind, place, NONE)
    return Refused(flags, older, of)


def last_times(waiting: Waiting, now: int) -> IntArray:
    """To when newer messages may be put off at most that find messages waiting, ms UTC.

    It is the latest time of their chain. Behind that it is when a message is due that a window has put off so far.

    Args:
        waiting: the messages, with the due times that ingest decided.
        now: what is due by then waits for nothing.
    """
    return np.where(waiting.latest > now, waiting.latest, np.maximum(waiting.latest, waiting.due))


def latest_times(
    keys: KeyHashes, due: IntArray, published: IntArray, held: Held, now: int, longest_ms: int
) -> tuple[IntArray, IntArray]:
    """To when arrivals may be put off at most, and which of these times bound them; each ms UTC.

    A chain begins with a message of a key of which none waits, or when its latest time has come, so that commands alone
    let a message wait. It ends with one that waits for nothing.

    Args:
        keys: of the arrivals.
        due: when they would be due if nothing waited.
        published: when they were published.
        held: what waits with these keys, with `last_times`.
        now: what is due by then waits for nothing.
        longest_ms: from the publication of the first one of a chain to the latest time, unless that one is due later.

    Returns:
        The latest time of the chain of each, and the same where it bounds the arrival, else `MAX_TIME`.
    """
    sort = _Sorted.of(keys)
    own, sent = due[sort.order], published[sort.order]
    before = np.full(len(sort.starts), MAX_TIME + 1)
    held = held.only(held.waiting.latest > now)
    np.minimum.at(before, sort.groups_of(held.numbers), held.waiting.latest)
    after_none = np.append([True], own[:-1] <= now)[: len(own)]
    begins = sort.is_first | after_none
    goes_on = sort.is_first & (before[sort.group] <= MAX_TIME)
    first = np.minimum(np.maximum(own, sent + longest_ms), MAX_TIME)
    chain = np.cumsum(begins) - 1
    latest_of = np.where(goes_on, before[sort.group], first)[begins]
    latest, bound = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    latest[sort.order] = latest_of[chain]
    bound[sort.order] = np.where(begins & ~goes_on, MAX_TIME, latest_of[chain])
    return latest, bound


@dataclass(frozen=True)
class Replaced:
    """What arrivals replace.

    Attributes:
        by: for each message of `Held` the number of the arrival that replaces it; `NONE`: it goes on waiting.
        arrivals: the numbers of the arrivals that are replaced.
        by_arrivals: for each of these the number of the arrival that replaces it.
        newest: the numbers of the arrivals that none behind them replaces.
    """

    by: IntArray
    arrivals: IntArray
    by_arrivals: IntArray
    newest: IntArray


def replaced(keys: KeyHashes, due: IntArray, held: Held, now: int, asks: Flags | None = None) -> Replaced:
    """What arrivals replace: each all messages of its key before it that wait and that nobody has replaced before.

    Args:
        keys: of the arrivals.
        due: when they are due, ms UTC.
        held: what waits with these keys.
        now: what is due by then waits for nothing, ms UTC.
        asks: which arrivals replace others; None: all of them. The others wait, and may be replaced.
    """
    sort = _Sorted.of(keys)
    count = len(keys)
    ranks = np.arange(count) if asks is None else np.where(asks[sort.order], np.arange(count), count)
    # For each rank the next one, itself included, that replaces; behind the last one there is none.
    coming = np.append(np.minimum.accumulate(ranks[::-1])[::-1], count)
    ends = np.append(sort.starts[1:], count)
    first = coming[sort.starts[sort.groups_of(held.numbers)]]
    by = np.where(first < ends[sort.groups_of(held.numbers)], np.append(sort.order, NONE)[first], NONE)
    after = coming[1:]
    has_next = after < ends[sort.group]
    gone = np.flatnonzero(has_next & (due[sort.order] > now))
    return Replaced(by, sort.order[gone], sort.order[after[gone]], sort.order[~has_next])
