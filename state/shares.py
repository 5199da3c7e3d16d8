"""Who is to have how many slots: the same answer for all who have read the same log and see the same consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from state.slots import SubscriptionType


@dataclass(frozen=True, slots=True)
class Candidate:
    """A consumer that lives: session, name, priority (0 is the best), slots that it has."""

    session: int
    consumer: str
    priority: int
    owned: int


def fair_shares(kind: SubscriptionType, candidates: Sequence[Candidate], slots: int) -> dict[int, int]:
    """Slots that each session is to have; they differ by one at most. O(n log n).

    Who has the most keeps the one more, so that nothing moves without need. Failover gives all to the best by priority,
    then by name, whoever has it now.
    """
    if kind == SubscriptionType.FAILOVER:
        ranked = sorted(candidates, key=lambda each: (each.priority, each.consumer, each.session))
    else:
        ranked = sorted(candidates, key=lambda each: (-each.owned, each.consumer, each.session))
    base, more = divmod(slots, len(ranked))
    return {each.session: base + (number < more) for number, each in enumerate(ranked)}


def parts_of_free(
    shares: Mapping[int, int], owned: Mapping[int | None, int], free: Sequence[int]
) -> dict[int, list[int]]:
    """Which free slots each session is to claim, so that no two want the same one. O(n log n).

    Args:
        shares: slots that each session is to have.
        owned: slots that each has; under None those that nobody has.
        free: slots that may be claimed, ascending.
    """
    parts, at = dict[int, list[int]](), 0
    for session in sorted(shares):
        missing = max(0, shares[session] - owned[session])
        parts[session] = list(free[at : at + missing])
        at += missing
    return parts
