"""Who listens to a topic, at which tick, since which ledger: what encoding positions needs to know of the registry."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.storage.texts import MAX_NAMES_BYTES, REPLACED
from pipeline.subscriptions.incarnations import BAD_NAME, BAD_START, TICK_OUT_OF_RANGE, Incarnation, Name
from pipeline.subscriptions.sought import Sought
from pipeline.worker.audience import Audience, Listener
from state import OutOfRange, tick_bits

Place = tuple[int, int]
"""Ledger, entry."""


@dataclass(frozen=True)
class Subscription:
    """A line of the registry; `tick_ms` is the subscription's precision, `sought` where a seek lets it begin.

    `lost`: it says a life or a place that cannot be.
    """

    topic: str
    name: str
    tick_ms: int
    earliest: bool
    sought: Sought | None = None
    lost: bool = False

    @property
    def wrong(self) -> str | None:
        """Why nobody can join by this line; None: somebody can."""
        if wrong_names(self.topic, self.name) is not None:
            return BAD_NAME
        if self.lost:
            return BAD_START
        try:
            tick_bits(self.tick_ms)
        except OutOfRange:
            return TICK_OUT_OF_RANGE
        return None

    @property
    def fits(self) -> bool:
        """Whether names and tick are such that somebody can join by this line."""
        return self.wrong is None


def wrong_names(topic: str, name: str) -> str | None:
    """What names have to be that a topic and a subscription do not have; None: they can be."""
    if not topic.strip() or not name.strip():
        return "a name"
    if REPLACED in topic or REPLACED in name:
        return f"a name without {REPLACED!r}, which stands for bytes that are no text"
    size = len(f"{topic}{name}".encode())
    return None if size <= MAX_NAMES_BYTES else f"{MAX_NAMES_BYTES} bytes at most, with the topic"


def audiences(subscriptions: Iterable[Subscription], lives: Mapping[Name, Incarnation]) -> dict[str, Audience]:
    """The audience of each topic; all subscriptions are alive, and keep the tick with which their life began."""
    topics: dict[str, list[tuple[Place, Listener]]] = defaultdict(list)
    for each in subscriptions:
        life = lives[each.topic, each.name]
        topics[each.topic].append(((life.since or 0, life.entry), (each.name, life.number, life.tick_ms)))
    return {topic: _audience(members) for topic, members in topics.items()}


def _audience(members: list[tuple[Place, Listener]]) -> Audience:
    if len(members) == 1:
        # Most topics have one subscription, and there may be ten thousand of them.
        ((ledger, entry), listener) = members[0]
        return Audience((ledger,), (listener,), (1,), (entry,) if entry else ())
    members.sort()
    ends: dict[Place, int] = {}
    for number, (first, _) in enumerate(members, 1):
        ends[first] = number
    entries = tuple(entry for _, entry in ends)
    listeners = tuple(listener for _, listener in members)
    return Audience(
        tuple(ledger for ledger, _ in ends), listeners, tuple(ends.values()), entries if any(entries) else ()
    )
