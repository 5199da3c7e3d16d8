"""Delayed delivery on Delta tables: what `import delayline` gives.

The client makes warehouses, subscribes, sends, receives and looks at what is pending, without Spark and without Java.
The stages run as the command `delayline run`, or under spark-submit.
"""

from pipeline.client.create import create_all
from pipeline.client.deliveries import Deliveries, Delivery
from pipeline.client.inbox import Message, send
from pipeline.client.pending import Backlog, Pending, pending
from pipeline.client.registry import Subscription, subscribe, subscriptions

__all__ = [
    "Backlog",
    "Deliveries",
    "Delivery",
    "Message",
    "Pending",
    "Subscription",
    "create_all",
    "pending",
    "send",
    "subscribe",
    "subscriptions",
]
