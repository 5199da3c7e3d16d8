"""Which topics there are: partitions of one, as the registry has them, and those that a pattern names.

A partitioned topic is `name-partition-0`, `name-partition-1` and so on; each of them is a topic like any other. How
many there are stands in a line of the registry that is not active and has no subscription, which no stage looks at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from deltalake import DeltaTable

from pipeline.client.checks import checked_topic
from pipeline.client.message import MessageId, checked_id
from pipeline.client.subscribing.lines import replace_lines, topic_row
from pipeline.client.subscribing.subscriptions import Subscription, active, register, subscribe_all
from pipeline.client.tables.partitions import (
    counts_of,
    partition_counts,
    partitions_of,
    topic_partitions,
)
from pipeline.config.errors import BadValue, check_count, check_kind
from pipeline.delta.deltars import open_table, query, quoted
from pipeline.subscriptions.lines import MOST_PARTITIONS, PARTITIONS
from pipeline.subscriptions.topicnames import partition_of, plain_topic, topic_of
from schemas import MESSAGES, SUBSCRIPTIONS

_TOPICS = "SELECT DISTINCT topic FROM (SELECT topic FROM registry WHERE active UNION ALL SELECT topic FROM messages)"


def create_partitioned_topic(root: str, topic: str, partitions: int) -> list[str]:
    """Divide a topic into partitions, or into more than it has.

    Each subscription of the topic, or of one of its partitions, is registered for each new partition before producers
    can find that partition, and gets it from its first message on. So nothing is missed while consumers are away.

    Producers and consumers of a topic that has some notice more of them within a minute. Those that were made before
    the topic was divided stay with the topic itself.

    Returns:
        New partitions that were topics of their own before, with messages or subscriptions: these are the partition's.

    Raises:
        NoWarehouse: the folder has no registry.
        InvalidTopicName: the topic has no name.
        BadValue: too few or too many partitions, fewer than there are, or the topic is a partition itself.
        StillConflicting: others changed the number every time.
    """
    topic = checked_topic(topic)
    if partition_of(topic) >= 0:
        raise BadValue("topic", topic, "one that is no partition itself")

    check_count("partitions", partitions)
    if partitions > MOST_PARTITIONS:
        raise BadValue("partitions", partitions, f"1..{MOST_PARTITIONS}")

    def grown(registry: DeltaTable) -> int:
        there = counts_of(registry).get(topic, 0)
        if not max(1, there) <= partitions <= MOST_PARTITIONS:
            raise BadValue("partitions", partitions, f"{max(1, there)}..{MOST_PARTITIONS}")
        return partitions - there

    def subscribed(registry: DeltaTable) -> list[Subscription]:
        return _inherited(active(registry), topic, partitions_of(topic, partitions)[partitions - grown(registry) :])

    def count(registry: DeltaTable) -> list[dict[str, object]] | None:
        return [topic_row(topic, PARTITIONS, {PARTITIONS: str(partitions)})] if grown(registry) else None

    new = set(partitions_of(topic, partitions)[partition_counts(root).get(topic, 0) :])
    tables = {"registry": open_table(root, SUBSCRIPTIONS), "messages": open_table(root, MESSAGES)}
    own = query(f"{_TOPICS} WHERE starts_with(topic, {quoted(f'{topic}-partition-')})", **tables)
    subscribe_all(root, subscribed)
    replace_lines(root, (topic, ""), count, partitions=True)
    return sorted(new & {row["topic"] for row in own}, key=partition_of)


def _inherited(lines: Iterable[Subscription], topic: str, new: Iterable[str]) -> list[Subscription]:
    """The subscriptions of a topic for its new partitions, as the first of its siblings has each of them."""
    found = {each.named: each for each in lines}
    siblings = sorted(
        (partition_of(each.topic), each.topic) for each in found.values() if topic_of(each.topic) == topic
    )
    first = {name: found[there, name] for _, there in reversed(siblings) for at, name in found if at == there}
    return [
        _new_for(each, partition) for partition in new for each in first.values() if (partition, each.name) not in found
    ]


def _new_for(line: Subscription, topic: str) -> Subscription:
    """The line for another topic, of which the subscription gets everything, and nothing counts as settled or sent."""
    policies = replace(line.policies, ack_after=None, sink_after=None)
    return replace(line, topic=topic, start="earliest", policies=policies, unclear=None)


def subscribe(root: str, new: Subscription) -> bool:
    """Register a subscription of a topic, or of each of its partitions; False when all are registered already, just so.

    One that was sought since is the same one, wherever it was to start. One that acknowledges counts all that was
    released before as settled, unless its policies say since when.

    Raises:
        NoWarehouse: the folder has no registry.
        AlreadySubscribed: the name is taken, with other settings.
        StillConflicting: others changed a line every time; those of partitions before it are registered.
    """
    return subscribe_each(root, new)


def subscribe_each(root: str, new: Subscription, said: Collection[str] | None = None) -> bool:
    """Register a subscription of a topic, or of each of its partitions; False when all are registered already.

    Of those only what somebody `said` has to be so, by the names of columns and policies; None: all.

    Raises:
        NoWarehouse, AlreadySubscribed, StillConflicting: as for `subscribe`.
    """
    check_kind("new", new, Subscription, "a Subscription")
    names = topic_partitions(root, plain_topic(new.topic))
    fresh = [register(root, replace(new, topic=each), said) for each in names]
    return any(fresh)


def topics_of(root: str, topic: str, message_id: MessageId) -> list[str]:
    """The topics in whose logs a message may be.

    An id by which a producer knows its message does not always say the partition. It may also be of a message that was
    sent before the topic was divided, which is in the log of the topic itself.

    Raises:
        NoWarehouse: the folder has no registry.
        BadValue: it is no id, or that of a message of another topic.
    """
    own = checked_id(topic, message_id)
    if message_id.identity is None or not message_id.is_sent:
        return [own]
    return list(dict.fromkeys([own, *topic_partitions(root, own)]))
