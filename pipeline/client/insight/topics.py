"""The topics of a warehouse: their partitions, subscriptions and messages, and what waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.client.insight.pending import Backlog, first_due, pending
from pipeline.client.subscribing.subscriptions import subscriptions
from pipeline.client.tables.partitions import partition_counts
from pipeline.delta.deltars import open_table, query
from pipeline.subscriptions.topicnames import topic_of
from schemas import MESSAGES

_COUNTS = "SELECT topic, COUNT(*) AS n FROM messages GROUP BY topic"


@dataclass(frozen=True)
class TopicState:
    """A topic, with all its partitions.

    Attributes:
        topic: its name.
        partitions: how many it has; 0: it is not divided.
        subscriptions: the names of its subscriptions, sorted; of partitions each name once.
        messages: how many messages of it the log holds. Retention deletes old ones.
        pending: how many wait for their first delivery, counted for each subscription.
        next_due: when the first of them is due, ms UTC; None: nothing waits.
    """

    topic: str
    partitions: int
    subscriptions: tuple[str, ...]
    messages: int
    pending: int
    next_due: int | None


def topics(root: str) -> list[TopicState]:
    """All topics that have messages, subscriptions or partitions, by name.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    return topic_states(root, pending(root).backlogs)


def topic_states(root: str, counted: Iterable[Backlog]) -> list[TopicState]:
    """The same, with what is pending as it was counted before.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The registry last: who waits for something is in it.
    backlogs, counts = defaultdict[str, list[Backlog]](list), partition_counts(root)
    for each in counted:
        backlogs[_whole(each.topic, counts)].append(each)
    messages, names = defaultdict[str, int](int), defaultdict[str, set[str]](set)
    for row in query(_COUNTS, messages=open_table(root, MESSAGES)):
        messages[_whole(row["topic"], counts)] += row["n"]
    for line in subscriptions(root):
        names[_whole(line.topic, counts)].add(line.name)
    found = []
    for topic in sorted({*messages, *names, *counts}):
        count, due = sum(each.count for each in backlogs[topic]), first_due(backlogs[topic])
        of_topic = tuple(sorted(names[topic]))
        found.append(TopicState(topic, counts.get(topic, 0), of_topic, messages[topic], count, due))
    return found


def _whole(name: str, counts: dict[str, int]) -> str:
    """The topic that is divided, for one of its partitions."""
    return topic_of(name) if topic_of(name) in counts else name
