"""A sink as the registry says it, and the names by which a broker and the warehouse know it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.client.subscribing.subscriptions import Subscription
from pipeline.subscriptions.destination import same_topic
from pipeline.subscriptions.policies import STOP
from pipeline.subscriptions.sinkplaces import SinkPlace


@dataclass(frozen=True)
class SinkConfig:
    """A sink of the registry.

    Attributes:
        topic: of the subscription.
        subscription: its name.
        sink: the address.
        refused: what becomes of a message that the broker refuses (`Policies.sink_refused`).
        after: the version of `deliveries` behind which it begins. Command and client state the newest one when
            the sink is named; None, in a registry that another program wrote: the newest one when it is first seen.
    """

    topic: str
    subscription: str
    sink: str
    after: int | None
    refused: str = STOP

    @classmethod
    def of(cls, line: Subscription) -> SinkConfig | None:
        """From the registry; None: the subscription has no sink."""
        policies = line.policies
        return (
            None
            if policies.sink is None
            else cls(line.topic, line.name, policies.sink, policies.sink_after, policies.sink_refused)
        )

    def producer(self, table: str) -> str:
        """Who publishes for the subscription, of a table by its id: of two, the later one stops the earlier one."""
        return _hashed(table, self.topic, self.subscription)

    def name(self, table: str, noted: Mapping[str, SinkPlace]) -> str:
        """What the place is kept under: another one for each begin of each sink.

        A sink whose address names the same topic by other servers or settings keeps its name, by what is noted.
        """
        for name, place in noted.items():
            of = place.topic, place.subscription, place.after
            if of == (self.topic, self.subscription, self.after) and same_topic(place.sink, self.sink):
                return name
        return _hashed(table, self.topic, self.subscription, self.sink, str(self.after))


def _hashed(*texts: str) -> str:
    # Texts with NUL are told apart, too; of all others the names are what they were.
    joined = json.dumps(texts) if any("\0" in each for each in texts) else "\0".join(texts)
    return f"delayline-{hashlib.sha256(joined.encode()).hexdigest()[:24]}"
