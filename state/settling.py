"""What happens to positions that were released, and what comes of it: the events and effects of `Outstanding`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from state.buckets import MAX_TIME, check_range
from state.positions import Positions
from state.retry import MAX_ROUND

MAX_VERSION = (1 << 62) - 1


class Cause(StrEnum):
    """Why a position was closed."""

    ACK = "ack"
    CANCEL = "cancel"
    UNDELIVERABLE = "undeliverable"
    DEAD_LETTER = "dead_letter"


class Reason(StrEnum):
    """Why an event changed nothing for some of its positions.

    Attributes:
        SETTLED: it is settled already, with a round in the index that is yet to be released.
        NOT_OUTSTANDING: it is settled already, or not delivered yet; which of the two, this state does not know.
        NEVER_DELIVERED: it lies behind all positions that were released so far.
        OTHER_ROUND: it is outstanding in another round, or waiting for one: the nack came late, or twice.
        REPEATED: this release is known already.
        WITHDRAWN: the release of a round that was acknowledged while it waited; it is not outstanding.
        NOT_WAITING: the release of a round that nothing waits for.
    """

    SETTLED = "settled"
    NOT_OUTSTANDING = "not_outstanding"
    NEVER_DELIVERED = "never_delivered"
    OTHER_ROUND = "other_round"
    REPEATED = "repeated"
    WITHDRAWN = "withdrawn"
    NOT_WAITING = "not_waiting"


@dataclass(frozen=True, slots=True)
class Released:
    """Positions that the table of releases (`redelivery`) shows in a version.

    Attributes:
        positions: what was released.
        round: 0 the first time, then the round for which it was put back.
        version: the table's version; all of one version come in one call, and never again.
    """

    positions: Positions
    round: int
    version: int

    def __post_init__(self) -> None:
        """Refuse numbers that no table has."""
        check_range("round", self.round, 0, MAX_ROUND)
        check_range("version", self.version, 0, MAX_VERSION)


@dataclass(frozen=True, slots=True)
class Ack:
    """A consumer is done with positions, whatever their redelivery count.

    Attributes:
        positions: what it is done with.
        redelivery_count: of the delivery that it had; None: it does not have them any more.
    """

    cause: ClassVar[Cause] = Cause.ACK
    positions: Positions
    redelivery_count: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Dispatch left positions out, because they were cancelled, or nobody may have them any more."""

    cause: ClassVar[Cause] = Cause.CANCEL
    positions: Positions


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """Dispatch refused positions, whatever their round: their messages are missing."""

    cause: ClassVar[Cause] = Cause.UNDELIVERABLE
    positions: Positions


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Dispatch left a round of positions out, because a command gave them another due time: they come in a later one.

    Attributes:
        positions: what was left out.
        round: the round that nobody gets.
        waits: they wait again; False: they are forgotten.
    """

    positions: Positions
    round: int
    waits: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that no table has."""
        check_range("round", self.round, 0, MAX_ROUND)


@dataclass(frozen=True, slots=True)
class Move:
    """A command gives positions another due time, in a round of their own.

    Attributes:
        positions: what it names.
        redelivery_count: what waits with this count is moved, if it waits for an earlier round.
        round: the round that it makes.
        fresh: nothing of the positions was delivered, so what this state does not know is moved, too.
    """

    positions: Positions
    redelivery_count: int
    round: int
    fresh: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that no command may say."""
        check_range("redelivery_count", self.redelivery_count, 0, MAX_ROUND)
        check_range("round", self.round, self.redelivery_count + 1, MAX_ROUND)


@dataclass(frozen=True, slots=True)
class Nack:
    """A delivery of positions failed: a consumer said so, did not acknowledge in time, or was lost.

    Attributes:
        positions: what failed.
        redelivery_count: of the delivery that the consumer had; a position is delivered once with each.
        after_ms: the delay that it asked for; None: that of the subscription's policy.
        reason: what goes with the retry or the dead letter, e.g. "nack", "ack_timeout", "owner_lost".
    """

    positions: Positions
    redelivery_count: int
    after_ms: int | None = None
    reason: str = "nack"

    def __post_init__(self) -> None:
        """Refuse numbers that no consumer may send."""
        check_range("redelivery_count", self.redelivery_count, 0, MAX_ROUND)
        if self.after_ms is not None:
            check_range("after_ms", self.after_ms, 0, MAX_TIME)


@dataclass(frozen=True, slots=True)
class Clear:
    """All that is outstanding or waiting is given up; so is what was withdrawn."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Positions are settled: dispatch must not take this round of them, and no consumer may be handed it.

    Attributes:
        positions: what is settled.
        round: the round that was outstanding or waiting.
        redelivery_count: with which it is, or would be, delivered.
        cause: why.
        withdrawn: True when the round was waiting: it is in the index, and its release is yet to come.
        late: True when it is a later delivery than the one that was acknowledged: it may be with another consumer.
    """

    positions: Positions
    round: int
    redelivery_count: int
    cause: Cause
    withdrawn: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Retry:
    """Positions go back into the index.

    Attributes:
        positions: what is put back.
        round: the next round.
        redelivery_count: nacks, time-outs and lost owners of each of them so far, this one included.
        due: when they come again, ms UTC.
        reason: that of the nack.
    """

    positions: Positions
    round: int
    redelivery_count: int
    due: int
    reason: str


@dataclass(frozen=True, slots=True)
class Moved:
    """Positions go into the index for the due time that a command gave them.

    Attributes:
        positions: what is put there.
        round: the round that the command made.
        redelivery_count: what it was.
    """

    positions: Positions
    round: int
    redelivery_count: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Positions failed once too often: a copy goes to the dead-letter topic. A `Closed` follows.

    Attributes:
        positions: what is given up.
        round: the last round that was delivered.
        redelivery_count: how often each of them was redelivered because it failed; the last failure gives no more.
        reason: that of the last nack.
    """

    positions: Positions
    round: int
    redelivery_count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """How many positions were given up."""

    outstanding: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Ignored:
    """Positions for which an event changed nothing, to be counted by reason."""

    positions: Positions
    reason: Reason


Settling = Ack | Cancel | Undeliverable
Event = Released | Settling | LeftOut | Move | Nack | Clear
Effect = Closed | Retry | Moved | DeadLetter | Cleared | Ignored
