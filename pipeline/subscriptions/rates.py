"""How a rate counts, and how long what has expired is held: dispatch goes by these rules, and so does a forecast.

The time of a rate begins when something is due and may come. Each message that is handed over takes a share of a
second of it.
"""

from __future__ import annotations

QUANTUM_MS = 500
"""What a rate allows is taken so often."""
EXPIRY_MS = 10_000
"""What is held and has expired goes when the first of it has done so for so long, if no batch takes it before."""


def budget_of(begun: float, rate: int, now: float) -> int:
    """How many messages may be handed over at a time, of a rate whose time has begun; both in ms UTC."""
    return max(0, int((now - begun) * rate // 1_000))


def used_by(count: int, rate: int) -> float:
    """How much time of a rate (messages a second) a number of messages takes, ms."""
    return count * 1_000 / rate
