"""What the example tests of the index share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from state import Due, Runs, TimeBucketIndex

MakeIndex = Callable[..., TimeBucketIndex]
Triple = tuple[int, int, int]

FOREVER = 10**15
LAST_MS = 253_402_300_799_999
LAST_LEDGER, LAST_ENTRY = 2**62, 2**31 - 1


def triples(due: Due) -> list[Triple]:
    """A drain as (due, ledger, entry)."""
    return list(zip(due.due.tolist(), due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True))


def quads(runs: Runs) -> list[tuple[int, int, int, int]]:
    """A drain in runs as (due, ledger, first, last)."""
    columns = (runs.due, runs.ledger_ids, runs.first_entries, runs.last_entries)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def batch(ledger: int, entries: Sequence[int], at: int | Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The three columns of messages of one ledger, all at one time or each at its own."""
    return [ledger] * len(entries), list(entries), [at] * len(entries) if isinstance(at, int) else list(at)
