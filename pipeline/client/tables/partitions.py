"""Into how many partitions topics are divided, as the registry has it.

The number stands in a line of the registry that is not active and has no subscription, which no stage looks at.
"""

from __future__ import annotations

from collections.abc import Iterable

from deltalake import DeltaTable

from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.topicnames import partition_name
from schemas import SUBSCRIPTIONS

PARTITIONS = "partitions"
"""The type of such a line, and the name in its map that has the number."""
MOST_PARTITIONS = 10_000
_COUNTS = f"""
    SELECT topic, MAX(partitions) AS partitions FROM (
        SELECT topic, TRY_CAST(policies['{PARTITIONS}'] AS BIGINT) AS partitions FROM registry
        WHERE NOT active AND subscription = '' AND type = '{PARTITIONS}' AND topic IS NOT NULL
    ) WHERE partitions BETWEEN 1 AND {MOST_PARTITIONS} GROUP BY topic
"""  # noqa: S608 - our own words


def partitions_of(topic: str, partitions: int) -> list[str]:
    """The names of so many partitions of a topic."""
    return [partition_name(topic, number) for number in range(partitions)]


def partition_counts(root: str) -> dict[str, int]:
    """The number of partitions of each topic that has some."""
    return counts_of(open_table(root, SUBSCRIPTIONS))


def counts_of(registry: DeltaTable) -> dict[str, int]:
    """The same, of the registry at a version."""
    return {row["topic"]: row["partitions"] for row in query(_COUNTS, registry=registry)}


def topic_partitions(root: str, topic: str) -> list[str]:
    """The partitions of a topic; the topic itself when it has none."""
    return expanded(root, [topic])


def expanded(root: str, topics: Iterable[str]) -> list[str]:
    """Topics, with partitions in the place of those that have some; each once."""
    counts = partition_counts(root)
    names = (partitions_of(each, counts[each]) if each in counts else [each] for each in topics)
    return list(dict.fromkeys(name for several in names for name in several))
