"""Who acknowledges, by which policies: lines of the registry, with the incarnations that ingest gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pipeline.config.errors import BadValue
from pipeline.delta.logs.entries import newest
from pipeline.delta.smallqueries import ask
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.listener import Listener
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.policies import Policies, line_order
from schemas import SUBSCRIPTIONS
from state import SubscriptionType

_LINES = """
    SELECT topic, subscription, type, policies FROM {rows}
    WHERE active AND policies['ack'] = 'true' AND topic IS NOT NULL AND subscription IS NOT NULL
"""
_SHARED = str(SubscriptionType.SHARED)


@dataclass(frozen=True)
class Line:
    """A line of the registry that asks for acknowledgement.

    Attributes:
        type: of the subscription.
        policies: what is followed.
        wrong: why some of the line's own policies are not, if so.
    """

    type: str
    policies: Policies
    wrong: str | None = None

    @classmethod
    def of_row(cls, subscription_type: str, texts: Mapping[str, str | None]) -> Line:
        """From the columns of the registry. A type that is none is read as shared, as everywhere."""
        known = subscription_type if subscription_type in set(SubscriptionType) else _SHARED
        try:
            return cls(known, Policies.of_map(texts))
        except BadValue as error:
            return cls(known, Policies.followed(texts), str(error))


@dataclass
class AckRegistry:
    """The lines of the registry that ask for acknowledgement; read again only when the version has moved."""

    spark: SparkSession
    warehouse: Warehouse
    _known: tuple[int, dict[Name, Line]] = field(default=(-1, {}), init=False)

    def __post_init__(self) -> None:
        """Nothing is read yet."""
        self._files = session_files(self.spark)

    def version(self) -> int:
        """The newest version of the table. One look at its log when it has not moved."""
        return newest(self._files, self.warehouse.path(SUBSCRIPTIONS), self._known[0])

    def at(self, version: int) -> dict[Name, Line]:
        """The lines at a version, by topic and subscription."""
        if self._known[0] != version:
            rows = ask(self.spark, self.warehouse, SUBSCRIPTIONS, _LINES, version)
            told = ((r["topic"] or "", r["subscription"] or "", r["type"] or "", dict(r["policies"])) for r in rows)
            lines = sorted(told, key=lambda line: line_order(*line))
            self._known = version, {(topic, name): Line.of_row(kind, texts) for topic, name, kind, texts in lines}
        return self._known[1]


def acknowledging(spark: SparkSession, warehouse: Warehouse) -> dict[Name, Line]:
    """The lines of the newest version."""
    registry = AckRegistry(spark, warehouse)
    return registry.at(registry.version())


def listeners(lines: Mapping[Name, Line], lives: Mapping[Name, Incarnation]) -> dict[Name, Listener]:
    """The lines that ingest knows, with their incarnations."""
    known = ((name, line, lives[name]) for name, line in lines.items() if name in lives)
    return {
        name: Listener(name, life.number, life.tick_ms, line.policies.slots_of(line.type), line.policies)
        for name, line, life in known
    }


def wrong_lines(lines: Mapping[Name, Line], before: Mapping[Name, Line]) -> Sequence[tuple[Name, str]]:
    """The lines whose policies cannot be followed, and why; less those that were so before."""
    return [(name, line.wrong) for name, line in lines.items() if line.wrong and before.get(name) != line]
