"""What a consumer's leases are told and what they ask for: events and instructions. `state/member.py` uses them."""

from __future__ import annotations

from dataclasses import dataclass

from state.lease_timing import LeaseTiming
from state.leases import LeaseReplay, LeaseRow

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
class Died:
    """The processes of these sessions have ended: they hand out nothing more, and nobody has to wait for their leases.

    Rows of theirs that were under way may still land.
    """

    sessions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Leave:
    """The consumer is closed; its last acks were appended."""


Event = Looked | Rebased | Handed | CaughtUp | Drained | Paced | Died | Leave

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
