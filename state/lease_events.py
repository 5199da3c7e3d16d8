"""What a consumer's leases are told and what they ask for: times, events, instructions. `state/member.py` uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from state.buckets import check_range
from state.leases import MAX_LEASE, MIN_LEASE, LeaseReplay, LeaseRow


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


# ---- events


@dataclass(frozen=True, slots=True)
class Looked:
    """The log was read to its end, and all of it is in the replay. Claims are made only then."""


@dataclass(frozen=True, slots=True)
class Rebased:
    """The rows that come next are gone: go on with this replay, made of a snapshot and the rows behind it."""

    replay: LeaseReplay


@dataclass(frozen=True, slots=True)
class Handed:
    """Messages up to this place may have been handed to the application, in all slots that keep up.

    With a slot: in this one, which is behind. It is appended at once, after the rows that the caller appended before:
    so nacks that were owed come first. `Announced` answers it.
    """

    upto: int
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A slot that was behind is level with the others: what a renewal says goes for it from now on."""

    slot: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing of a slot that is to be handed over is left with the application, and its acks were appended."""

    slot: int


@dataclass(frozen=True, slots=True)
class Paced:
    """Renew at these times from now on; a lease that was promised stays as long as it was."""

    timing: LeaseTiming


@dataclass(frozen=True, slots=True)
class Leave:
    """The consumer is closed; its last acks were appended."""


Event = Looked | Rebased | Handed | CaughtUp | Drained | Paced | Leave

# ---- instructions


@dataclass(frozen=True, slots=True)
class Append:
    """Append these rows in one commit, in this order, after what the caller appended before.

    When that fails they may be appended again, or forgotten: what does not show is said once more.
    """

    rows: tuple[LeaseRow, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """The slot is ours: nack what is outstanding up to place `owed` (None: nothing), then work on what was there."""

    slot: int
    owed: int | None


@dataclass(frozen=True, slots=True)
class Announced:
    """The log has it that messages of a slot that is behind may be handed out up to this place."""

    slot: int
    upto: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Give out nothing more of this slot; say `Drained` when its messages are settled."""

    slot: int


@dataclass(frozen=True, slots=True)
class Resume:
    """The slot stays after all."""

    slot: int


@dataclass(frozen=True, slots=True)
class Drop:
    """The slot is not ours any more: throw away what is queued of it."""

    slot: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else has the exclusive subscription. Who goes on calling gets it when it is free."""

    consumer: str


@dataclass(frozen=True, slots=True)
class Active:
    """A failover consumer came to be the one that gets messages, or to stand by."""

    active: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The session is over, by `Leave` or because others took it for dead. Go on with a new member and session."""


Instruction = Append | Take | Announced | Drain | Resume | Drop | Busy | Active | Ended
