"""Who listens to a topic, at which tick, since which ledger: what encoding positions needs to know of the registry."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.worker.audience import Audience, Listener
from state import OutOfRange, tick_bits


@dataclass(frozen=True)
class Subscription:
    """A line of the registry; `tick_ms` is the subscription's precision."""

    topic: str
    name: str
    tick_ms: int
    earliest: bool

    @property
    def fits(self) -> bool:
        """Whether the tick is one that the index takes."""
        try:
            tick_bits(self.tick_ms)
        except OutOfRange:
            return False
        return True


def audiences(subscriptions: Iterable[Subscription], lives: Mapping[Name, Incarnation]) -> dict[str, Audience]:
    """The audience of each topic; all subscriptions are alive, and keep the tick with which their life began."""
    topics: dict[str, list[tuple[int, Listener]]] = defaultdict(list)
    for each in subscriptions:
        life = lives[each.topic, each.name]
        topics[each.topic].append((life.since or 0, (each.name, life.number, life.tick_ms)))
    return {topic: _audience(sorted(members)) for topic, members in topics.items()}


def _audience(members: list[tuple[int, Listener]]) -> Audience:
    since = tuple(sorted({first for first, _ in members}))
    return Audience(since, tuple(tuple(listener for first, listener in members if first <= s) for s in since))
