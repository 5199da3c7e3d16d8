"""Messages of a subscription on which its guard failed, and when they are asked about again (decision 0100).

They are known in this process only: after a start they are found again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from state.units import Ms

RESTS = 10
"""What took long to fail is tried again after so many times as long: so dispatch does not wait for it all the time."""
LONGEST_REST_MS = 3_600_000
"""A message on which a guard took too long is asked about again after so long at the latest."""
Place = tuple[int, int, int]
"""Ledger, entry and redelivery count."""


class Slow(NamedTuple):
    """A failure that took long, ms, and the positions that were asked about then."""

    took_ms: int = 0
    places: Sequence[Place] = ()


@dataclass
class Suspects:
    """Messages on which a guard failed, or was not asked about in the end; they are asked about apart from others.

    Attributes:
        guard: the guard; another one knows of none.
        places: their positions, each with the time before which it is not asked about, ms UTC, and with how long it
            waits for that, ms: twice as long after each failure that takes long, for those that were asked about then.
        until: none is asked about before, ms UTC, since the guard took long to fail.
    """

    guard: tuple[str | None, str | None]
    places: dict[Place, tuple[int, int]] = field(default_factory=dict)
    until: int = 0

    def ready(self, now: Ms) -> dict[Place, bool]:
        """Whether each is asked about at a time, ms UTC."""
        return {place: max(until, self.until) <= now for place, (until, _) in self.places.items()}

    def follow(self, decided: Collection[Place], undecided: Collection[Place], slow: Slow, now: Ms) -> None:
        """Take over what a batch has found at a time, ms UTC."""
        for place in decided:
            self.places.pop(place, None)
        for place in undecided:
            self.places.setdefault(place, (0, 0))
        for place in slow.places:
            rest_ms = min(2 * max(self.places[place][1], RESTS * slow.took_ms), LONGEST_REST_MS)
            self.places[place] = now + rest_ms, rest_ms
        self.until = now + RESTS * slow.took_ms if slow.took_ms else self.until
