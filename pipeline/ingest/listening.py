"""Who listens to a batch of ingest, and how coarse the ticks are by which a topic with a window is released."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.ingest.plan import Plan
from pipeline.ingest.segments import Membership, MembershipCache
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.markers import IngestMemory, Markers
from pipeline.subscriptions.registry import Registry


class Listening:
    """What follows from the registry, and from what ingest knows of it, for each batch."""

    def __init__(self, registry: Registry, markers: Markers) -> None:
        """Nothing is read before it is asked."""
        self._registry, self._markers = registry, markers
        self._membership = MembershipCache()
        self._known: tuple[Membership | None, Topics | None, Mapping[str, int]] = (None, None, {})

    def members(self, plan: Plan, lives: Mapping[Name, Incarnation]) -> Membership:
        """Who listens from a batch on, by the lives that there were before it."""
        gone = self._registry.gone_between(lives, plan.seen, plan.registry)
        lines = self._registry.at(plan.registry).subscriptions
        return self._membership.at(lines, lives, plan.first_ledger, gone)

    def ticks(self, plan: Plan, topics: Topics, memory: IngestMemory | None) -> Mapping[str, int]:
        """The coarsest tick of those who listen from a batch on to each topic with a window, ms.

        A life keeps the tick with which it began, whatever the registry says now. Whoever repeats the batch, also when
        others were made since, finds the same: the plan says up to which marker lives count.

        Args:
            plan: of the batch.
            topics: the policies of topics.
            memory: what ingest knows now; None: nothing was read yet.
        """
        if not topics.windows:
            return {}
        is_newest = memory is not None and plan.marker in (-1, memory.marker)
        lives = memory.lives if memory is not None and is_newest else self._lives(plan.marker)
        members = self.members(plan, lives)
        if self._known[0] is not members or self._known[1] is not topics:
            self._known = (members, topics, coarsest(members, topics))
        return self._known[2]

    def _lives(self, marker: int) -> Mapping[Name, Incarnation]:
        """Up to a marker; -1: a plan of an earlier version of this project does not say it."""
        return self._markers.lives(None if marker < 0 else marker)


def coarsest(members: Membership, topics: Topics) -> dict[str, int]:
    """The coarsest tick of those who listen to each topic with a window, ms."""
    heard = ((topic, each) for topic, each in members.everybody.items() if topics.of(topic).opening is not None)
    return {topic: max(tick for _, _, tick in audience.members) for topic, audience in heard}
