"""The index as a plain dict of sets, and batches of messages to drive both with; times are integers throughout.

The arithmetic of buckets is written here a second time, from the table in the promises, with division instead of
shifts: a test that took it from `state` would agree with any mistake there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from state import Due, Runs

MAX_TIME = 253_402_300_799_999
MAX_LEDGER = 2**62
MAX_ENTRY = 2**31 - 1

Pending = tuple[int, int, int]
"""Bucket key, ledger id, entry id."""


class Message(NamedTuple):
    """One message to add: where it stands, and when it is to be delivered (ms)."""

    ledger_id: int
    entry_id: int
    deliver_at: int


@dataclass
class Rule:
    """The due rule of a tick, as the table states it."""

    tick: int
    strict: bool

    @property
    def width(self) -> int:
        """The largest power of two that is not above the tick."""
        width = 1
        while 2 * width <= self.tick:
            width *= 2
        return width

    def key(self, at: int) -> int:
        """The bucket of a time."""
        return (-(-at // self.width) if self.strict else at // self.width) * self.width

    def is_due(self, key: int, now: int) -> bool:
        """True when the bucket is released at `now`."""
        return key <= now if self.strict else key <= now + self.tick - self.width + 1

    def deadline(self, key: int) -> int:
        """The first instant at which the bucket is due."""
        return key if self.strict else key - (self.tick - self.width + 1)


@dataclass
class IndexModel:
    """Bucket key -> positions, and nothing clever."""

    rule: Rule
    buckets: dict[int, set[tuple[int, int]]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Messages pending."""
        return sum(len(bucket) for bucket in self.buckets.values())

    def add(self, messages: Iterable[Message], tick: int | None = None) -> int:
        """Add messages, rounded to `tick` before they come where one is given; how many were new."""
        before = len(self)
        first = Rule(tick or 1, strict=True)
        for ledger_id, entry_id, deliver_at in messages:
            at = first.key(deliver_at) if tick else deliver_at
            self.buckets.setdefault(self.rule.key(at), set()).add((ledger_id, entry_id))
        return len(self) - before

    def pop(self, now: int, limit: int | None = None) -> list[Pending]:
        """Take out what is due, in order, or the first `limit` of it."""
        keys = sorted(key for key in self.buckets if self.rule.is_due(key, now))
        taken = [(key, *position) for key in keys for position in sorted(self.buckets[key])][:limit]
        for key, ledger_id, entry_id in taken:
            self.buckets[key].remove((ledger_id, entry_id))
            if not self.buckets[key]:
                del self.buckets[key]
        return taken

    @property
    def next_due(self) -> int | None:
        """When something is due next."""
        return self.rule.deadline(min(self.buckets)) if self.buckets else None

    def counts(self, width: int) -> dict[int, int]:
        """The histogram of what is pending."""
        bars = Counter[int]()
        for key, bucket in self.buckets.items():
            bars[key // width * width] += len(bucket)
        return dict(sorted(bars.items()))

    def clear(self) -> None:
        """Forget everything."""
        self.buckets.clear()


def popped(due: Due) -> list[Pending]:
    """What a pop returned, as tuples."""
    return list(zip(due.due.tolist(), due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True))


def popped_runs(runs: Runs) -> list[Pending]:
    """What a pop returned as runs, one tuple a message, expanded by hand."""
    columns = (runs.due.tolist(), runs.ledger_ids.tolist(), runs.first_entries.tolist(), runs.last_entries.tolist())
    return [
        (due, ledger, entry)
        for due, ledger, first, last in zip(*columns, strict=True)
        for entry in range(first, last + 1)
    ]


def run_count(pending: list[Pending]) -> int:
    """How many runs of neighbouring entries ordered positions make."""
    return sum(
        1 for i, (key, ledger, entry) in enumerate(pending) if i == 0 or pending[i - 1] != (key, ledger, entry - 1)
    )


def columns_of(messages: Iterable[Message]) -> tuple[list[int], list[int], list[int]]:
    """Messages as the three columns that `add` and `encode_chunk` take."""
    ledger_ids, entry_ids, deliver_ats = [], [], []
    for ledger_id, entry_id, deliver_at in messages:
        ledger_ids.append(ledger_id)
        entry_ids.append(entry_id)
        deliver_ats.append(deliver_at)
    return ledger_ids, entry_ids, deliver_ats


SPANS = (40, 3_000, 200_000, 10**9)
"""How far apart deliveries lie, ms: within one bucket, and over many."""
LEDGERS = st.sampled_from([0, 1, 2, 7, MAX_LEDGER - 1, MAX_LEDGER])
ENTRIES = st.one_of(st.integers(0, 40), st.integers(MAX_ENTRY - 40, MAX_ENTRY), st.integers(0, MAX_ENTRY))


@st.composite
def strokes(draw: st.DrawFn, start: int, span: int) -> list[Message]:
    """Neighbouring entries of one ledger whose times stand still or step by a fixed amount, forwards or back."""
    ledger, first = draw(LEDGERS), draw(ENTRIES)
    size = min(draw(st.integers(1, 30)), MAX_ENTRY - first + 1)
    at, step = draw(st.integers(0, span)), draw(st.sampled_from([0, 0, 1, -1, 7, span // 10]))
    times = (min(max(at + i * step, 0), span) + start for i in range(size))
    return [Message(ledger, first + i, time) for i, time in enumerate(times)]


def batches(start: int, span: int) -> st.SearchStrategy[list[Message]]:
    """Messages of one call: a few strokes, single positions among them, out of order, some of them twice."""
    return st.lists(strokes(start, span), max_size=5).map(lambda parts: [message for part in parts for message in part])
