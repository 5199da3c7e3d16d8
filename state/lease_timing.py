"""The times of leases: how long one holds, how often it is renewed, how long a hand-over may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from state.buckets import check_range
from state.leases import MAX_LEASE, MIN_LEASE


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Times of leases, ms. Consumers of one subscription may use different ones: a renewal says how long it holds.

    Attributes:
        lease_ms: how long the others wait after a renewal, 1 000 to 600 000.
        renew_ms: a renewal in each span of this length; at most `(lease - margin) / 3`, so that one may be lost and the
            next one may be as late.
        margin_ms: an owner stops so much earlier, a twentieth of the lease to a half. It covers clocks of which one is
            faster than the other by `lease / (lease - margin)`.
        drain_ms: how long a slot that is to be handed over waits for its messages that are not settled.

    Raises:
        OutOfRange: a time outside its range.
    """

    lease_ms: int = 10_000
    renew_ms: int = 3_000
    margin_ms: int = 1_000
    drain_ms: int = 10_000

    def __post_init__(self) -> None:
        """Refuse what would not be safe, or would lose its slots when one commit fails."""
        check_range("lease_ms", self.lease_ms, MIN_LEASE, MAX_LEASE)
        check_range("margin_ms", self.margin_ms, self.lease_ms // 20, self.lease_ms // 2)
        check_range("renew_ms", self.renew_ms, 50, (self.lease_ms - self.margin_ms) // 3)
        check_range("drain_ms", self.drain_ms, 0, MAX_LEASE)

    @classmethod
    def at_interval(cls, commit_ms: int) -> Self:
        """The times for a client whose turn to append comes once in `commit_ms`: the defaults, or a longer lease.

        Commits are shared by all processes of a warehouse, so with many of them each waits for its turn. Each turn has
        a renewal that is not older than half of the time between two, and a lease has room for three turns.

        Raises:
            OutOfRange: `commit_ms` below 0, or so long that the lease would be longer than ten minutes.
        """
        check_range("commit_ms", commit_ms, 0, MAX_LEASE * 3 // 10)
        renew_ms = max(cls().renew_ms, commit_ms // 2)
        lease_ms = -(-max(renew_ms, commit_ms) * 10 // 3)
        return cls(lease_ms, renew_ms, lease_ms // 10)
