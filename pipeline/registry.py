"""The registry of subscriptions: who listens to a topic, at which tick, since which ledger.

The registry moves while stages run. Ingest reads it once a batch, at a version that it notes in its commits, and
writes the answer into the rows of `segments`; the stages behind it look at those rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pipeline.deltalog import newest
from pipeline.files import Files
from pipeline.tables import Warehouse
from schemas import SUBSCRIPTIONS

Name = tuple[str, str]
"""Topic and subscription."""


@dataclass(frozen=True)
class Subscription:
    """A line of the registry; `tick_ms` is the subscription's precision."""

    topic: str
    name: str
    tick_ms: int
    earliest: bool


@dataclass(frozen=True)
class Audience:
    """Whom the positions of one topic are for.

    `since` holds, ascending, the ledgers at which the audience grows; `listeners[i]` are the (name, tick in ms) of
    those who get ledgers from `since[i]` up to `since[i + 1]`.
    """

    since: tuple[int, ...]
    listeners: tuple[tuple[tuple[str, int], ...], ...]

    def tick_ms(self, cohort: int) -> int:
        """The finest tick of those who listen: what is encoded with it, every one of them can read."""
        return min(tick for _, tick in self.listeners[cohort])


def audiences(subscriptions: Iterable[Subscription], since: Mapping[Name, int]) -> dict[str, Audience]:
    """The audience of each topic; `since` is the first ledger of each subscription."""
    topics: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
    for each in subscriptions:
        topics[each.topic].append((since[each.topic, each.name], each.name, each.tick_ms))
    return {topic: _audience(sorted(members)) for topic, members in topics.items()}


def _audience(members: list[tuple[int, str, int]]) -> Audience:
    since = tuple(sorted({first for first, _, _ in members}))
    return Audience(since, tuple(tuple((name, tick) for first, name, tick in members if first <= s) for s in since))


class Registry:
    """The registry at a version; read again only when the version has moved."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse) -> None:
        """Nothing is read yet."""
        self._spark, self._warehouse, self._files = spark, warehouse, Files(spark)
        self._known: tuple[int, dict[Name, Subscription]] = (-1, {})

    def version(self) -> int:
        """The newest version of the table. One look at its log, two when it has moved."""
        log = f"{self._warehouse.path(SUBSCRIPTIONS)}/_delta_log"
        known = self._known[0]
        if known >= 0 and not self._files.exists(f"{log}/{known + 1:020d}.json"):
            return known
        return newest(self._files, self._warehouse.path(SUBSCRIPTIONS))

    def at(self, version: int) -> dict[Name, Subscription]:
        """The active subscriptions at a version of the table, by topic and name."""
        if self._known[0] != version:
            rows = self._warehouse.read(self._spark, SUBSCRIPTIONS, version).where("active").collect()
            found = [Subscription(r["topic"], r["subscription"], r["tick_ms"], r["start"] == "earliest") for r in rows]
            self._known = (version, {(each.topic, each.name): each for each in sorted(found, key=_by_name)})
        return self._known[1]


def _by_name(subscription: Subscription) -> Name:
    return subscription.topic, subscription.name
