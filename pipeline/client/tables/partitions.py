"""Into how many partitions topics are divided, as the registry has it.

The number stands in a line of the registry that is not active and has no subscription, which no stage looks at.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltalake import DeltaTable

from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.lines import PARTITION_COUNTS
from pipeline.subscriptions.topicnames import partition_name
from schemas import SUBSCRIPTIONS


def partitions_of(topic: str, partitions: int) -> list[str]:
    """The names of so many partitions of a topic."""
    return [partition_name(topic, number) for number in range(partitions)]


def partition_counts(root: str) -> dict[str, int]:
    """The number of partitions of each topic that has some."""
    return counts_of(open_table(root, SUBSCRIPTIONS))


def counts_of(registry: DeltaTable) -> dict[str, int]:
    """The same, of the registry at a version."""
    rows = query(PARTITION_COUNTS.format(rows="registry"), registry=registry)
    return {row["topic"]: row["partitions"] for row in rows}


def topic_partitions(root: str, topic: str) -> list[str]:
    """The partitions of a topic; the topic itself when it has none."""
    return expanded(root, [topic])


def expanded(root: str, topics: Iterable[str]) -> list[str]:
    """Topics, with partitions in the place of those that have some; each once."""
    counts = partition_counts(root)
    names = (partitions_of(each, counts[each]) if each in counts else [each] for each in topics)
    return list(dict.fromkeys(name for several in names for name in several))
