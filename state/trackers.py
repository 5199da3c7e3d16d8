"""Two trackers of delayed messages behind one contract, with the reference's vocabulary in Python's style.

`HeapTracker` is the published first form, a priority queue of triples, kept to test and measure against.
`TimeBucketTracker` is a thin door to `TimeBucketIndex`. Time is an argument; the owner holds the one timer and
calls again at `next_deadline`.
"""

from __future__ import annotations

import heapq
from sys import getsizeof
from typing import NamedTuple, Protocol

from state.buckets import MAX_TIME, DueRule, check_range
from state.index import TimeBucketIndex
from state.runs import MAX_ENTRY, MAX_LEDGER


class Position(NamedTuple):
    """Where a message stands in the log of its topic."""

    ledger_id: int
    entry_id: int


class DelayedDeliveryTracker(Protocol):
    """What a dispatcher asks of the tracker of one subscription. Instants are int ms, UTC."""

    def add_message(self, ledger_id: int, entry_id: int, deliver_at: int | None, now: int) -> bool:
        """Track a message; False when it is due now: no `deliver_at`, or `<= now` (tolerant: `<= now + tick`).

        Raises:
            OutOfRange: `ledger_id`, `entry_id` or `deliver_at` outside its range.
        """

    def has_message_available(self, now: int) -> bool:
        """True when a message is due at `now`."""

    def get_scheduled_messages(self, max_messages: int, now: int) -> list[Position]:
        """Take out at most `max_messages` due messages: earliest bucket, lowest ledger and entry first.

        Raises:
            OutOfRange: a negative `max_messages`.
        """

    @property
    def number_of_delayed_messages(self) -> int:
        """Messages that are tracked."""

    @property
    def next_deadline(self) -> int | None:
        """When the owner must call again; None when nothing is tracked. Only an earlier message moves it forward."""

    def clear(self) -> None:
        """Forget all messages."""

    @property
    def memory_usage(self) -> int:
        """Bytes held."""


def _is_due(rule: DueRule, ledger_id: int, entry_id: int, deliver_at: int, now: int) -> bool:
    """Whether a message is to be delivered now; refuses one whose numbers are out of range."""
    check_range("ledger_id", ledger_id, 0, MAX_LEDGER)
    check_range("entry_id", entry_id, 0, MAX_ENTRY)
    return rule.refuses(check_range("deliver_at", deliver_at, 0, MAX_TIME), now)


class HeapTracker:
    """A heap of (bucket key, ledger, entry). Every add and take costs O(log n).

    The published triples hold the exact time and let the bits fall only in the comparison with now; with the key in
    the triple the order of equal buckets is by position, which is what the reference states of its drains.
    """

    def __init__(self, tick_ms: int = 1000, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - the published signature
        """An empty tracker.

        Raises:
            OutOfRange: `tick_ms` not in 1..2^41.
        """
        self.rule = DueRule(tick_ms, strict)
        self._heap: list[tuple[int, int, int]] = []
        self._tracked: set[tuple[int, int, int]] = set()

    def add_message(self, ledger_id: int, entry_id: int, deliver_at: int | None, now: int) -> bool:
        """See `DelayedDeliveryTracker`. O(log n)."""
        if deliver_at is None or _is_due(self.rule, ledger_id, entry_id, deliver_at, now):
            return False
        triple = (self.rule.key(deliver_at), ledger_id, entry_id)
        if triple not in self._tracked:
            self._tracked.add(triple)
            heapq.heappush(self._heap, triple)
        return True

    def has_message_available(self, now: int) -> bool:
        """See `DelayedDeliveryTracker`. O(1)."""
        return bool(self._heap) and self._heap[0][0] <= self.rule.horizon(now)

    def get_scheduled_messages(self, max_messages: int, now: int) -> list[Position]:
        """See `DelayedDeliveryTracker`. O(taken * log n)."""
        check_range("max_messages", max_messages, 0, MAX_LEDGER)
        taken: list[Position] = []
        while len(taken) < max_messages and self.has_message_available(now):
            triple = heapq.heappop(self._heap)
            self._tracked.remove(triple)
            taken.append(Position(*triple[1:]))
        return taken

    @property
    def number_of_delayed_messages(self) -> int:
        """See `DelayedDeliveryTracker`. O(1)."""
        return len(self._heap)

    @property
    def next_deadline(self) -> int | None:
        """See `DelayedDeliveryTracker`. O(1)."""
        return self.rule.deadline(self._heap[0][0]) if self._heap else None

    def clear(self) -> None:
        """See `DelayedDeliveryTracker`. O(1)."""
        self._heap, self._tracked = [], set()

    @property
    def memory_usage(self) -> int:
        """See `DelayedDeliveryTracker`: heap, set and triples of Python ints. O(1)."""
        return getsizeof(self._heap) + getsizeof(self._tracked) + len(self._heap) * (64 + 3 * 32)


class TimeBucketTracker:
    """The index behind the tracker's contract."""

    def __init__(self, tick_ms: int = 1000, strict: bool = True) -> None:  # noqa: FBT001, FBT002 - the published signature
        """An empty tracker.

        Raises:
            OutOfRange: `tick_ms` not in 1..2^41.
        """
        self.index = TimeBucketIndex(tick_ms, strict)

    def add_message(self, ledger_id: int, entry_id: int, deliver_at: int | None, now: int) -> bool:
        """See `DelayedDeliveryTracker`. As `TimeBucketIndex.add_one`."""
        if deliver_at is None or _is_due(self.index.rule, ledger_id, entry_id, deliver_at, now):
            return False
        self.index.add_one(ledger_id, entry_id, deliver_at)
        return True

    def has_message_available(self, now: int) -> bool:
        """See `DelayedDeliveryTracker`. O(chunks)."""
        deadline = self.index.next_due
        return deadline is not None and deadline <= now

    def get_scheduled_messages(self, max_messages: int, now: int) -> list[Position]:
        """See `DelayedDeliveryTracker`. As `TimeBucketIndex.pop_due`."""
        due = self.index.pop_due(now, check_range("max_messages", max_messages, 0, MAX_LEDGER))
        return [Position(*pair) for pair in zip(due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True)]

    @property
    def number_of_delayed_messages(self) -> int:
        """See `DelayedDeliveryTracker`. O(chunks)."""
        return len(self.index)

    @property
    def next_deadline(self) -> int | None:
        """See `DelayedDeliveryTracker`. O(chunks)."""
        return self.index.next_due

    def clear(self) -> None:
        """See `DelayedDeliveryTracker`. O(1)."""
        self.index.clear()

    @property
    def memory_usage(self) -> int:
        """See `DelayedDeliveryTracker`. O(blocks)."""
        return self.index.nbytes
