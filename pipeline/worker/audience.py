"""Who listens to the positions of a topic: what encoding them needs to know."""

from dataclasses import dataclass

Listener = tuple[str, int, int]
"""Name, life, and tick in ms."""


@dataclass(frozen=True)
class Audience:
    """Whom the positions of one topic are for.

    `since` holds, ascending, the ledgers at which the audience grows. `members` are all who listen, those who came
    first before the others. Of ledgers from `since[i]` up to `since[i + 1]`, which are the cohort `i`, the first
    `ends[i]` members get the positions; no `ends`: all do. `entries[i]` is the first entry that they get of ledger
    `since[i]`; no `entries`: they get all of it. The size is that of the members, however many cohorts there are.
    """

    since: tuple[int, ...]
    members: tuple[Listener, ...]
    ends: tuple[int, ...] = ()
    entries: tuple[int, ...] = ()

    def listeners(self, cohort: int) -> tuple[Listener, ...]:
        """Those who get the positions of a cohort."""
        return self.members[: self.ends[cohort]] if self.ends else self.members

    def tick_ms(self, cohort: int) -> int:
        """The finest tick of those who listen: what is encoded with it, every one of them can read."""
        return min(tick for _, _, tick in self.listeners(cohort))
