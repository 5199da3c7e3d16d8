"""Lines of the registry, as everybody reads them: the stages, the client and the command.

Any Delta writer may append a line. So a line may say what nobody can follow, and several lines may name one
subscription. Of these one counts, and it is the same one for everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.config.errors import BadValue
from pipeline.subscriptions.incarnations import Name, Sought, Subscription
from pipeline.subscriptions.policies import Policies
from state import SubscriptionType

COLUMNS = ("topic", "subscription", "type", "start", "tick_ms", "policies")
"""The columns of the registry that a line is made of."""
_EARLIEST = "earliest"
_TYPES = {str(each) for each in SubscriptionType}
_SHARED = str(SubscriptionType.SHARED)


@dataclass(frozen=True)
class RegistryLine:
    """An active line of the registry, with the texts that it has there; NULL is an empty text, or 0.

    What follows from them is found out when it is asked for, and kept: lines stay from version to version.

    Attributes:
        topic: the topic listened to.
        name: the subscription.
        kind: its type, which may be none of `SubscriptionType`.
        start: where it begins: `earliest`, `latest`, or the text of the last seek.
        tick_ms: its precision, ms.
        texts: names and texts of its policies, by name.
    """

    topic: str
    name: str
    kind: str
    start: str
    tick_ms: int
    texts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> RegistryLine:
        """From the columns of the registry (`COLUMNS`)."""
        texts = tuple(sorted(dict(row["policies"] or ()).items()))
        names = row["topic"] or "", row["subscription"] or ""
        return cls(*names, row["type"] or "", row["start"] or "", row["tick_ms"] or 0, texts)

    @property
    def named(self) -> Name:
        """Topic and subscription."""
        return self.topic, self.name

    @property
    def type(self) -> str:
        """Its type; one that is none is read as shared."""
        return self.kind if self.kind in _TYPES else _SHARED

    @cached_property
    def subscription(self) -> Subscription:
        """What ingest follows: from where on it listens, and how precisely."""
        sought = Sought.of_text(self.start)
        lost = Sought.is_meant(self.start, sought)
        return Subscription(self.topic, self.name, self.tick_ms, self.start == _EARLIEST, sought, lost)

    @property
    def policies(self) -> Policies:
        """What is followed of its policies, whatever they say."""
        return self._followed[0]

    @property
    def wrong(self) -> str | None:
        """Why not all of its policies can be followed; None: they can."""
        return self._followed[1]

    @cached_property
    def _followed(self) -> tuple[Policies, str | None]:
        texts = dict(self.texts)
        try:
            return Policies.of_map(texts), None
        except BadValue as error:
            return Policies.followed(texts), str(error)

    @property
    def acknowledges(self) -> bool:
        """Whether its consumers acknowledge."""
        return ("ack", "true") in self.texts

    @cached_property
    def _order(self) -> tuple[object, ...]:
        sought = self.subscription.sought
        texts = [(name, text or "") for name, text in self.texts]
        life = 0 if sought is None else sought.life
        return self.subscription.fits, -self.tick_ms, life, self.start == _EARLIEST, self.kind, texts

    def counts_before(self, other: RegistryLine) -> bool:
        """Whether this line counts, and not the other one, of two that name one subscription.

        A line by which somebody can join counts before one by which nobody can. Then the finest tick counts, then the
        latest seek, then `earliest`. The last word has the order of types and policies, which says nothing, but is the
        same for everybody: how lines lie in the table is not.
        """
        return self._order > other._order


def counted(lines: Iterable[RegistryLine]) -> dict[Name, RegistryLine]:
    """The line that counts of each subscription, by topic and name; in the order of the lines."""
    found: dict[Name, RegistryLine] = {}
    for line in lines:
        other = found.get(line.named)
        if other is None or line.counts_before(other):
            found[line.named] = line
    return found
