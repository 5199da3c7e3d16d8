"""Delayed delivery on Delta tables: what `import delayline` gives.

The client makes warehouses, subscribes, sends, receives and looks at what is pending, without Spark and without Java.
It is loaded when it is first used: the nodes of a cluster import other parts of the package, and have no delta-rs. The
stages run as the command `delayline run`, or under spark-submit.
"""

from typing import TYPE_CHECKING

# ruff: noqa: F403, F405 - mypy knows which names these are, and that `__all__` names them
if TYPE_CHECKING:
    from pipeline.client.everything import *

__all__ = [
    "SETTLED_BY",
    "AlreadyClosed",
    "Backlog",
    "BatchingType",
    "Client",
    "ClientError",
    "Command",
    "CommandNotFound",
    "CompressionType",
    "ConnectError",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "CumulativeAcknowledgementNotAllowedError",
    "DelaylineError",
    "Deliveries",
    "Delivery",
    "Forecast",
    "InitialPosition",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidUrl",
    "KeyBacklog",
    "KeySharedMode",
    "MemoryBufferIsFull",
    "Message",
    "MessageId",
    "MessageState",
    "MessageTooBig",
    "OperationNotSupported",
    "Outage",
    "Outcome",
    "OutgoingMessage",
    "PartitionsRoutingMode",
    "Pause",
    "Pending",
    "Policies",
    "Producer",
    "ProducerAccessMode",
    "ProducerBusy",
    "ProducerQueueIsFull",
    "PulsarException",
    "Rate",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "Selection",
    "Step",
    "Subscription",
    "SubscriptionForecast",
    "SubscriptionNotFound",
    "Timeout",
    "TopicNotFound",
    "TopicPolicies",
    "TopicState",
    "Trace",
    "acknowledge",
    "aio",
    "cancel",
    "commands",
    "create_all",
    "create_partitioned_topic",
    "forecast",
    "negative_acknowledge",
    "pending",
    "pending_by_key",
    "pending_rows",
    "release_now",
    "reschedule",
    "schema",
    "send",
    "set_policies",
    "shift",
    "spark",
    "subscribe",
    "subscriptions",
    "topics",
    "trace",
    "undo",
    "unsubscribe",
]


def __getattr__(name: str) -> object:
    """Load the client.

    Raises:
        AttributeError: it has no such name.
    """
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from pipeline.client import everything  # noqa: PLC0415 - on the nodes of a cluster it cannot be loaded

    return getattr(everything, name)


def __dir__() -> list[str]:
    """The names that can be asked for."""
    return __all__
