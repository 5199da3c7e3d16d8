"""Who listens to the positions of a topic: what encoding them needs to know."""

from dataclasses import dataclass

Listener = tuple[str, int, int]
"""Name, life, and tick in ms."""


@dataclass(frozen=True)
class Audience:
    """Whom the positions of one topic are for.

    `since` holds, ascending, the ledgers at which the audience grows; `listeners[i]` are those who get ledgers from
    `since[i]` up to `since[i + 1]`. `entries[i]` is the first entry that they get of ledger `since[i]`; no
    `entries`: they get all of it.
    """

    since: tuple[int, ...]
    listeners: tuple[tuple[Listener, ...], ...]
    entries: tuple[int, ...] = ()

    def tick_ms(self, cohort: int) -> int:
        """The finest tick of those who listen: what is encoded with it, every one of them can read."""
        return min(tick for _, _, tick in self.listeners[cohort])
