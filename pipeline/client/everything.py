"""All that the client offers, in one place."""

from pipeline.client.create import create_all
from pipeline.client.deliveries import Deliveries, Delivery
from pipeline.client.inbox import Message, send
from pipeline.client.pending import Backlog, Pending, pending
from pipeline.client.subscriptions import Subscription, subscribe, subscriptions

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
