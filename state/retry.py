"""How often and how fast a message comes again, and how much a consumer may hold: rules without state or clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from state.buckets import MAX_TIME, check_range
from state.units import Ms

MAX_ROUND = (1 << 31) - 1
"""The largest round, and the largest redelivery count."""
_MAX_MULTIPLIER = 1000
_ENOUGH = 48
"""A multiplier of at least 2 is past every delay after so many rounds: `MAX_TIME` is less than 2^48."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message waits after its n-th failure: `min_ms * multiplier^n`, up to `max_ms`.

    The defaults are the reference's backoff. Its multiplier may be a fraction; here it is an integer, so that each
    delay is exact and the same everywhere.

    Raises:
        OutOfRange: `min_ms` not in 0..`MAX_TIME`, `multiplier` not in 1..1000, `max_ms` not in `min_ms`..`MAX_TIME`.
    """

    min_ms: int = 10_000
    multiplier: int = 2
    max_ms: int = 600_000

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        check_range("min_ms", self.min_ms, 0, MAX_TIME)
        check_range("multiplier", self.multiplier, 1, _MAX_MULTIPLIER)
        check_range("max_ms", self.max_ms, self.min_ms, MAX_TIME)

    def delay(self, count: int) -> int:
        """The delay (ms) of a message that was redelivered `count` times before. O(1), for any count."""
        return min(self.max_ms, self.min_ms * int(self.multiplier ** min(count, _ENOUGH)))


NO_BACKOFF = Backoff(60_000, 1, 60_000)
"""What a nack gets without a backoff policy: a minute, each time."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What becomes of a message that was not acknowledged; it may change between any two batches.

    Attributes:
        backoff: the delay of a nack that names none.
        max_redeliver_count: redeliveries that a message may have had when it fails once more and still comes again;
            None: any number, so that there are no dead letters.

    Raises:
        OutOfRange: `max_redeliver_count` not in 0..2^31-1.
    """

    backoff: Backoff = NO_BACKOFF
    max_redeliver_count: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        if self.max_redeliver_count is not None:
            check_range("max_redeliver_count", self.max_redeliver_count, 0, MAX_ROUND)

    def gives_up(self, count: int) -> bool:
        """True when a message that was redelivered `count` times is not to come again."""
        return self.max_redeliver_count is not None and count >= self.max_redeliver_count

    def due(self, now: Ms, count: int, after_ms: int | None = None) -> int:
        """When a message that failed at `now` comes again (ms): after its own delay, or else after the backoff."""
        delay = self.backoff.delay(count) if after_ms is None else after_ms
        return min(now + delay, MAX_TIME)


@dataclass(frozen=True, slots=True)
class UnackedLimit:
    """How much a consumer holds and may be given: nothing new from `max_unacked` on, until half of it is back.

    Attributes:
        max_unacked: the limit; 0: none.
        unacked: messages that the consumer was given and that are not back: neither settled nor nacked.
        paused: True from the limit on until half of it is back.

    Raises:
        OutOfRange: `max_unacked` not in 0..2^31-1.
    """

    max_unacked: int
    unacked: int = 0
    paused: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be followed."""
        check_range("max_unacked", self.max_unacked, 0, MAX_ROUND)

    @property
    def room(self) -> int | None:
        """How many new messages the consumer may be given; None: any number. Redeliveries come all the same."""
        if self.max_unacked == 0:
            return None
        return 0 if self.paused else self.max_unacked - self.unacked

    def given(self, messages: int) -> Self:
        """The limit after the consumer was given messages, new ones or redeliveries."""
        return self._with(self.unacked + messages)

    def returned(self, messages: int) -> Self:
        """The limit after messages were settled or nacked.

        Raises:
            OutOfRange: more than the consumer holds.
        """
        return self._with(self.unacked - check_range("messages", messages, 0, self.unacked))

    def _with(self, unacked: int) -> Self:
        held = self.max_unacked > 0 and (
            unacked >= self.max_unacked or (self.paused and 2 * unacked > self.max_unacked)
        )
        return replace(self, unacked=unacked, paused=held)
