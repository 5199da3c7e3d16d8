"""Which module speaks with which broker."""

from __future__ import annotations

from pipeline.sinks.kafka import KafkaTopic
from pipeline.sinks.pulsar import PulsarTopic
from pipeline.sinks.topic import Connect, Topic
from pipeline.subscriptions.destination import Destination

_BROKERS: dict[str, Connect] = {"kafka": KafkaTopic, "pulsar": PulsarTopic, "pulsar+ssl": PulsarTopic}
"""By the scheme of the address."""


def connect(to: Destination, producer: str, place: str) -> Topic:
    """A connection to the broker that an address names."""
    return _BROKERS[to.scheme](to, producer, place)
