"""Policies of topics and subscriptions, one by one: set, unset, shown, and what they were before.

All of them stand in the registry, in the line of their subscription, or in one of their topic. Each change is one
commit, which leaves a row of what held from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from deltalake import DeltaTable

from pipeline.client.checks import Opened, checked_topic
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.subscribing.lines import TOPIC_LINE, history, registered_in, replace_lines, topic_row, with_history
from pipeline.client.subscribing.subscriptions import change_each, registered, with_policies
from pipeline.config.errors import check_text
from pipeline.config.stages import INGEST
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import last_note
from pipeline.storage.files import Files
from pipeline.subscriptions.guards import text_of
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.policytable import PolicyTable
from pipeline.subscriptions.topicnames import plain_topic
from pipeline.subscriptions.topicpolicies import TopicPolicies
from schemas import MESSAGES, REJECTED_INGEST, SEGMENTS, SUBSCRIPTIONS
from state.unique import Mode


@dataclass(frozen=True)
class Held:
    """What policies held from some time on.

    Attributes:
        since: when they were set, an ISO time, by the clock of who set them.
        policies: the texts of the registry: those that differ from the defaults.
    """

    since: str
    policies: Mapping[str, str]


def _set_topic_policies(root: str, topic: str, values: Mapping[str, Any]) -> bool:
    """Set some policies of a topic; the others stay as the registry has them then, whoever sets some meanwhile."""
    topic = checked_topic(topic)
    if values.get("unique", Mode.EXTEND) != Mode.EXTEND:
        # The longest wait goes with the mode that has one.
        values = {"unique_max_wait_ms": None, **values}

    def decide(registry: DeltaTable) -> list[dict[str, object]] | None:
        found = _topics(registry)
        own, unclear = found.policies.get(topic, TopicPolicies()), found.unclear.get(topic)
        policies = replace(own, **values) if unclear is None else TopicPolicies.changed(unclear, values)
        if policies == own and unclear is None:
            return None
        rows = with_history(registry, (topic, ""), topic_row(topic, TOPIC_LINE, policies.as_map()))
        return rows if policies.as_map() else rows[1:]

    return replace_lines(root, (topic, ""), decide)


def topic_policies(root: str, topic: str) -> TopicPolicies:
    """The policies of a topic; a partition without any of its own has those of its topic.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    return topics(root).of(plain_topic(topic))


def topics(root: str) -> Topics:
    """The policies of all topics.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    return _topics(open_table(root, SUBSCRIPTIONS))


def policies_of(root: str, topic: str, subscription: str | None = None) -> Policies | TopicPolicies:
    """The policies of a subscription, or of a topic.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound: there is no such subscription.
    """
    if subscription is None:
        return topic_policies(root, topic)
    return registered(root, topic, subscription).policies


def set_policy(root: str, topic: str, subscription: str | None = None, **values: Any) -> bool:  # noqa: ANN401 - of policies
    """Set some policies of a subscription, or of a topic; the others stay. False when they were so already.

    A subscription of a topic with partitions is one on each of them, and gets them on each, by a commit of its own.

    Args:
        root: the warehouse.
        topic: the topic.
        subscription: the subscription; None: policies of the topic.
        **values: policies by their names (`Policies`, `TopicPolicies`); `guard_tables` may be a mapping.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound: there is no such subscription.
        BadValue: there is no such policy, or its value cannot be followed.
        StillConflicting: others changed them every time; nothing was written.
    """
    check_text("subscription", subscription)
    if subscription is None:
        TopicPolicies.check_names(values)
        return _set_topic_policies(root, topic, values)
    Policies.check_names(values)
    if isinstance(values.get("guard_tables"), Mapping):
        values["guard_tables"] = text_of(values["guard_tables"])

    return change_each(root, topic, subscription, lambda line: with_policies(root, line, line.with_set(values)))


def unset_policy(root: str, topic: str, *names: str, subscription: str | None = None) -> bool:
    """Give some policies their defaults again, with those that belong to them alone. False when they had them.

    So nothing is left of a window, a guard or a sink when that is unset.

    Raises:
        NoWarehouse: the folder has no registry.
        SubscriptionNotFound: there is no such subscription.
        BadValue: there is no such policy, or the others cannot be without it.
        StillConflicting: others changed them every time; nothing was written.
    """
    table: type[PolicyTable] = TopicPolicies if subscription is None else Policies
    table.check_names(names)
    belongs = (row.name for row in table.rows.values() if row.needs == row.belongs_to and row.belongs_to in names)
    values = {name: table.rows[name].default for name in (*names, *belongs)}
    return set_policy(root, topic, subscription, **values)


def policy_history(root: str, topic: str, subscription: str | None = None) -> list[Held]:
    """What the policies of a subscription, or of a topic, were, the oldest first; the last of it holds now.

    Raises:
        NoWarehouse: the folder has no registry.
    """
    name = plain_topic(topic), subscription or ""
    if subscription is not None:
        with suppress(SubscriptionNotFound):
            name = registered(root, topic, subscription).named
    rows = history(open_table(root, SUBSCRIPTIONS), name)
    return [Held(row["start"], row["policies"]) for row in rows]


def followed_since(root: str, topic: str) -> int | None:
    """A batch of ingest that was made with the policies that a topic has now; None: there was none yet.

    Ingest notes with each commit the version of the registry that it follows.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    tables = (MESSAGES, REJECTED_INGEST, SEGMENTS)
    last = [last_note(Files(), path_of(root, table), INGEST, open_table(root, table).version()) for table in tables]
    note = max((each for each in last if each is not None), key=lambda each: each.batch, default=None)
    if note is None:
        return None
    registry = open_table(root, SUBSCRIPTIONS)
    now = _topics(registry).of(topic)
    registry.load_as_version(int(note.note["registry"]))
    return note.batch if _topics(registry).of(topic) == now else None


def _topics(registry: DeltaTable) -> Topics:
    return registered_in(registry, "NOT active").topics


class SetsPolicies(Opened):
    """Sets policies of topics and subscriptions."""

    def set_policies(self, /, topic: str, subscription_name: str | None = None, **policies: object) -> bool:
        """Set some policies of a subscription, or of a topic; the others stay.

        Args:
            topic: the topic.
            subscription_name: the subscription; None: policies of the topic, which ingest follows from its next batch
                on.
            **policies: values by the names that `delayline.Policies` and `delayline.TopicPolicies` have.

        Returns:
            Whether they were other ones.

        Raises:
            InvalidTopicName: the topic has no name.
            SubscriptionNotFound: there is no such subscription.
            BadValue: there is no such policy, or its value cannot be followed.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder has no registry.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return set_policy(self._root, checked_topic(topic), subscription_name, **policies)

    def pause(self, topic: str, subscription_name: str) -> bool:
        """Hold what becomes due for a subscription, until `resume`; whether it was not paused.

        What dispatch has prepared already, for about ten seconds, still comes.

        Raises:
            DelaylineError: as `set_policies`.
        """
        return self.set_policies(topic, subscription_name, paused=True)

    def resume(self, topic: str, subscription_name: str) -> bool:
        """Let a paused subscription go on: what was held comes first, in order; whether it was paused.

        Raises:
            DelaylineError: as `set_policies`.
        """
        return self.set_policies(topic, subscription_name, paused=False)

    def unset_policies(self, topic: str, *names: str, subscription_name: str | None = None) -> bool:
        """Give some policies of a topic, or of a subscription, their defaults again; whether they had others.

        With a window, a guard or a sink goes what belongs to it.

        Raises:
            InvalidTopicName: the topic has no name.
            SubscriptionNotFound: there is no such subscription.
            BadValue: there is no such policy.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder has no registry.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return unset_policy(self._root, checked_topic(topic), *names, subscription=subscription_name)

    def get_policies(self, topic: str, subscription_name: str | None = None) -> Policies | TopicPolicies:
        """The policies of a topic, or of a subscription.

        Raises:
            InvalidTopicName: the topic has no name.
            SubscriptionNotFound: there is no such subscription.
            AlreadyClosed: the client is closed.
            NoWarehouse: the folder has no registry.
            ConnectError: the store does not answer.
        """
        with self._answering():
            return policies_of(self._root, checked_topic(topic), subscription_name)
