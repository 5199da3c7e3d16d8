"""States of settling for tests: made in a line, asked in a line, and checked whenever they are asked."""

from __future__ import annotations

from state import Cursor, Event, Outstanding, Positions, Released, RetryPolicy
from state.units import Ms
from tests.support.outstanding_model import Fate, fates

NOW = 1_700_000_000_000
FOREVER = 253_402_300_799_999


def at(*runs: tuple[int, int, int]) -> Positions:
    """Positions by (ledger, first entry, last entry)."""
    return Positions.of_runs(runs)


def released(*runs: tuple[int, int, int], version: int = 0) -> Outstanding:
    """A state with positions outstanding in round 0."""
    state = Outstanding()
    assert state.handle(Released(at(*runs), 0, version), now=Ms(NOW)) == []
    return state


def apply(state: Outstanding, *events: Event, policy: RetryPolicy | None = None, now: int = NOW) -> list[Fate]:
    """What comes of events, position by position, once the state was found sound."""
    effects = fates(state.handle(*events, now=Ms(now), policy=policy or RetryPolicy()))
    state.check_invariants()
    return effects


def restored(cursor: Cursor) -> Outstanding:
    """A state from all of its blocks."""
    return Outstanding.restore(cursor.head, {n: data for n, data in cursor.blocks.items() if data is not None})
