"""How many partitions topics have, as the registry counts them.

Subscriptions of a topic that has some are registered for these, and nobody hears the topic itself. So whoever appends
messages that name it sends each to one of them, as producers do (`topicnames.routed`, decision 0146).
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse, ask
from pipeline.subscriptions.lines import PARTITION_COUNTS
from schemas import SUBSCRIPTIONS


class PartitionCounts:
    """The number of partitions of each topic that has some; read again only when the registry has moved."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._known: tuple[int, Mapping[str, int]] = (-1, {})

    def now(self) -> Mapping[str, int]:
        """What the registry says now. One look at its log when it has not moved."""
        version = newest(self._warehouse.files, self._warehouse.path(SUBSCRIPTIONS), self._known[0])
        if version != self._known[0]:
            rows = ask(self._warehouse, SUBSCRIPTIONS, PARTITION_COUNTS, version)
            self._known = version, {row["topic"]: row["partitions"] for row in rows}
        return self._known[1]
