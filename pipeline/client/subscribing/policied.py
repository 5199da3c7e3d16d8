"""What a client does with policies of topics and subscriptions."""

from __future__ import annotations

from pipeline.client.checks import Opened, checked_topic
from pipeline.client.subscribing.policysetting import policies_of, set_policy, unset_policy
from pipeline.subscriptions.policies import Policies, TopicPolicies


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
