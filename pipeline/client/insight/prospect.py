"""What a seek would do to a subscription, by the tables as they are."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.insight.pending import pending
from pipeline.client.insight.standing import standings
from pipeline.client.subscribing.seeking import Where, place_of
from pipeline.client.tables.topiclog import Place, TopicLog
from pipeline.storage.files import Files
from pipeline.subscriptions.settled import read_mark
from pipeline.subscriptions.topicnames import plain_topic


@dataclass(frozen=True)
class Dropped:
    """What is open for a subscription, and is dropped by a seek.

    Attributes:
        pending: messages that were not delivered yet.
        outstanding: messages that were released and not settled.
        waiting: messages that failed and were to come again.
    """

    pending: int
    outstanding: int
    waiting: int


@dataclass(frozen=True)
class Prospect:
    """What a seek drops and brings, by the tables as they are.

    Attributes:
        position: the first position that comes.
        brings: messages of the log at the position or behind it; each comes at its time, at once when that has passed.
        drops: what was open.
        deleted_until: retention has deleted messages behind the position that were due up to this instant (ms UTC);
            they do not come. None: it has not.
    """

    position: Place
    brings: int
    drops: Dropped
    deleted_until: int | None


def prospect(root: str, topic: str, name: str, where: Where) -> Prospect:
    """What a seek would do to the subscription of a topic itself, without those of its partitions.

    Raises:
        NoWarehouse: the folder lacks a table.
        SubscriptionNotFound: there is no such subscription.
        InvalidMessage: the id is one that `send` gave.
    """
    topic = plain_topic(topic)
    found = [each for each in standings(root, topic, name) if each.line.topic == topic]
    if not found:
        raise SubscriptionNotFound(topic, name)
    log = TopicLog(root, topic)
    position = place_of(log, where)
    backlog = [each for each in pending(root, topic, name).backlogs if each.topic == topic]
    drops = Dropped(sum(each.count for each in backlog), found[0].outstanding or 0, found[0].waiting or 0)
    mark = read_mark(Files(), root)
    deleted = mark.due_ms if position[0] < mark.ledger else None
    return Prospect(position, log.count_from(position), drops, deleted)
