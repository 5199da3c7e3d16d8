"""Messages that an application has, each with a time after which it is given up: ack timeouts and negative acks.

The times lie in a `TimeBucketIndex`, as those of delayed messages do. An index gives a position back when it is due and
not before, so what was acknowledged in between stays in there until then, and a bitmap says that nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from sys import getsizeof

import numpy as np
from pyroaring import BitMap

from state.buckets import MAX_TICK, check_range, trim_up
from state.index import TimeBucketIndex
from state.positions import Positions
from state.runs import MAX_ENTRY, MAX_LEDGER, Due


class MessageTimers:
    """Each message fires once, in `(delay, delay + tick]` after it was added, unless it is removed before.

    Adding a message that waits already starts its time again. Time is a monotonic clock of the caller in ms, from 0 on;
    a `now` before the last one counts as the last one.

    Attributes:
        delay_ms: how long a message waits at least.
        tick_ms: how much longer at most.
    """

    def __init__(self, delay_ms: int, tick_ms: int = 1000) -> None:
        """Nothing waits.

        Raises:
            OutOfRange: `delay_ms` or `tick_ms` not in 1..2^41.
        """
        self.delay_ms = check_range("delay_ms", delay_ms, 1, MAX_TICK)
        self._index = TimeBucketIndex(tick_ms)
        self._bits = self._index.rule.bits
        self._now = 0
        self._waiting: dict[int, BitMap] = {}
        # What was added last has one bucket, because the delay is always the same; the index gets it as a whole.
        self._open: dict[int, BitMap] = {}
        self._open_key = 0
        # Positions that the index has, waiting or not; the time that counts of those that it has more than once.
        self._timed: dict[int, BitMap] = {}
        self._again: dict[tuple[int, int], int] = {}

    @property
    def tick_ms(self) -> int:
        """See the class."""
        return self._index.rule.tick_ms

    def add_one(self, ledger_id: int, entry_id: int, now: int) -> None:
        """Start the time of a message. O(1), and once a tick as `TimeBucketIndex.add` of what was added in it.

        Raises:
            OutOfRange: a number outside its range; nothing was added.
        """
        check_range("ledger_id", ledger_id, 0, MAX_LEDGER)
        check_range("entry_id", entry_id, 0, MAX_ENTRY)
        self._begin(now)
        for sets in (self._open, self._waiting):
            entries = sets.get(ledger_id)
            if entries is None:
                sets[ledger_id] = entries = BitMap()
            entries.add(entry_id)

    def add(self, positions: Positions, now: int) -> None:
        """Start the time of many messages at once. As `add_one` of each, O(runs)."""
        self._begin(now)
        for ledger, added in positions.by_ledger():
            for sets in (self._open, self._waiting):
                sets[ledger] = sets.get(ledger, BitMap()) | added

    def remove(self, positions: Positions) -> int:
        """Stop the time of messages, as an ack does; return how many waited. O(runs), whatever waits."""
        removed = 0
        for ledger, entries in positions.by_ledger():
            waiting = self._waiting.get(ledger)
            if waiting is not None:
                removed += waiting.intersection_cardinality(entries)
                self._waiting[ledger] = waiting - entries
                self._tidy(ledger)
        return removed

    def remove_one(self, ledger_id: int, entry_id: int) -> bool:
        """Stop the time of a message; False when it did not wait. O(1)."""
        waiting = self._waiting.get(ledger_id)
        if waiting is None or entry_id not in waiting:
            return False
        waiting.discard(entry_id)
        self._tidy(ledger_id)
        return True

    def take_due(self, now: int) -> Positions:
        """Take out the messages whose time is over, by ledger and entry. As `TimeBucketIndex.pop_due`."""
        self._begin(now)
        self._close()
        due = self._index.pop_due(self._now)
        parts = []
        for ledger, entries in self._by_ledger(due):
            fired = self._waiting.get(ledger, BitMap()) & entries
            if fired:
                parts.append((ledger, fired))
                self._waiting[ledger] = self._waiting[ledger] - fired
            self._timed[ledger] = self._timed[ledger] - entries
        for ledger, _ in parts:
            self._tidy(ledger)
        self._timed = {ledger: entries for ledger, entries in self._timed.items() if entries}
        return Positions.gathered(parts) if parts else Positions.of([], [], [])

    @property
    def next_deadline(self) -> int | None:
        """When to call `take_due`; None when nothing waits. What is due then may have been removed."""
        deadlines = [self._index.next_due, self._open_key if self._open else None]
        return min((each for each in deadlines if each is not None), default=None)

    def __len__(self) -> int:
        """Messages that wait. O(ledgers)."""
        return sum(map(len, self._waiting.values()))

    def clear(self) -> None:
        """Forget all messages, as a redelivery of everything does. O(1)."""
        self._index.clear()
        self._waiting, self._open, self._timed, self._again = {}, {}, {}, {}

    @property
    def memory_usage(self) -> int:
        """Bytes held, about. O(bytes)."""
        bitmaps = [*self._waiting.values(), *self._open.values(), *self._timed.values()]
        return self._index.nbytes + sum(map(_bytes_of, bitmaps)) + 200 * len(self._again) + getsizeof(self._timed)

    def _begin(self, now: int) -> None:
        """The clock is at `now`: what is added from here on is due in the bucket after the first ms after the delay."""
        self._now = max(self._now, now)
        key = trim_up(self._now + self.delay_ms + 1, self._bits)
        if key != self._open_key:
            self._close()
            self._open_key = key

    def _close(self) -> None:
        """Give what was added last to the index."""
        if not self._open:
            return
        for ledger, added in self._open.items():
            timed = self._timed.get(ledger, BitMap())
            self._again |= dict.fromkeys(((ledger, entry) for entry in timed & added), self._open_key)
            self._timed[ledger] = timed | added
        messages = Positions.gathered(list(self._open.items())).due_at(self._open_key).expanded()
        self._index.add(messages.ledger_ids, messages.entry_ids, messages.due)
        self._open = {}

    def _by_ledger(self, due: Due) -> Iterator[tuple[int, BitMap]]:
        """The entries of each ledger whose last time this was."""
        last = np.array([self._is_last(*each) for each in _triples(due)], np.bool_) if self._again else slice(None)
        ledgers, entries = due.ledger_ids[last], due.entry_ids[last]
        order = np.argsort(ledgers, kind="stable")
        ledgers, entries = ledgers[order], entries[order].astype(np.uint32)
        heads = np.flatnonzero(np.diff(ledgers, prepend=-1)).tolist()
        for head, end in pairwise([*heads, len(ledgers)]):
            yield int(ledgers[head]), BitMap(entries[head:end])

    def _is_last(self, due: int, ledger_id: int, entry_id: int) -> bool:
        """Whether a time of a message is the one that counts; an earlier one was overtaken when it came again."""
        if self._again.get((ledger_id, entry_id), due) != due:
            return False
        self._again.pop((ledger_id, entry_id), None)
        return True

    def _tidy(self, ledger_id: int) -> None:
        """Forget a ledger of which nothing waits, and all times when nothing waits at all."""
        if not self._waiting.get(ledger_id, True):
            del self._waiting[ledger_id]
        if not self._waiting:
            self.clear()


def _triples(due: Due) -> list[tuple[int, int, int]]:
    return list(zip(due.due.tolist(), due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True))


def _bytes_of(bitmap: BitMap) -> int:
    """What a bitmap takes, about: it is close to its own serialized form."""
    return getsizeof(bitmap) + len(bitmap.serialize())
