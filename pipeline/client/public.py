"""Delayed delivery on Delta tables: what `import delayline` gives.

The client makes warehouses, subscribes, sends, receives and looks at what is pending, without Spark and without Java.
A name is loaded when it is first used, with what it needs: the nodes of a cluster import other parts of the package,
and have no delta-rs. The stages run as the command `delayline run`, or under spark-submit.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pipeline import client

# ruff: noqa: F403, F405 - mypy knows which names these are, and that `__all__` names them
if TYPE_CHECKING:
    from pipeline.client.everything import *

__all__ = [
    "SETTLED_BY",
    "AlreadyClosed",
    "Backlog",
    "BatchingType",
    "CalendarDay",
    "CalendarNotFound",
    "Calendars",
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
    "Schedule",
    "ScheduleNotFound",
    "ScheduleState",
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
    "calendars",
    "cancel",
    "commands",
    "create_all",
    "create_partitioned_topic",
    "delete_schedule",
    "forecast",
    "negative_acknowledge",
    "pause_schedule",
    "pending",
    "pending_by_key",
    "pending_rows",
    "release_now",
    "reschedule",
    "resume_schedule",
    "run_schedule_now",
    "schedules",
    "schema",
    "send",
    "set_calendar",
    "set_policies",
    "set_schedule",
    "shift",
    "spark",
    "subscribe",
    "subscriptions",
    "topics",
    "trace",
    "undo",
    "unsubscribe",
]

_HOMES = {
    "..subscriptions.calendars": "CalendarDay Calendars",
    "..subscriptions.policies": "Policies",
    "..subscriptions.topicpolicies": "TopicPolicies",
    "..subscriptions.schedules": "Schedule",
    ".choices": (
        "BatchingType CompressionType ConsumerBatchReceivePolicy ConsumerDeadLetterPolicy "
        "ConsumerKeySharedPolicy ConsumerType InitialPosition KeySharedMode PartitionsRoutingMode "
        "ProducerAccessMode RegexSubscriptionMode"
    ),
    ".client": "Client",
    ".commanding.commands": "Command cancel release_now reschedule shift undo",
    ".commanding.outcomes": "Outcome commands",
    ".commanding.selecting": "Selection",
    ".consuming.acknowledgingrows": "SETTLED_BY acknowledge negative_acknowledge",
    ".consuming.consumer": "Consumer",
    ".consuming.reader": "Reader",
    ".create": "create_all",
    ".exceptions": (
        "AlreadyClosed CalendarNotFound ClientError CommandNotFound ConnectError ConsumerBusy "
        "CumulativeAcknowledgementNotAllowedError DelaylineError InvalidConfiguration InvalidMessage "
        "InvalidTopicName InvalidUrl MemoryBufferIsFull MessageTooBig OperationNotSupported ProducerBusy "
        "ProducerQueueIsFull PulsarException Result ScheduleNotFound SubscriptionNotFound Timeout TopicNotFound"
    ),
    ".insight.departures": "Outage Pause Rate",
    ".insight.facts": "Step",
    ".insight.forecast": "Forecast SubscriptionForecast",
    ".insight.forecasting": "forecast",
    ".insight.pending": "Backlog KeyBacklog Pending pending pending_by_key",
    ".insight.pendingrows": "pending_rows",
    ".insight.topics": "TopicState topics",
    ".insight.trace": "MessageState Trace trace",
    ".message": "Message MessageId",
    ".producing.inbox": "OutgoingMessage send",
    ".producing.producer": "Producer",
    ".subscribing.calendars": "calendars set_calendar",
    ".subscribing.schedules": (
        "ScheduleState delete_schedule pause_schedule resume_schedule run_schedule_now schedules set_schedule"
    ),
    ".subscribing.subscriptions": "Subscription set_policies subscriptions unsubscribe",
    ".subscribing.topics": "create_partitioned_topic subscribe",
    ".tables.deliveries": "Deliveries Delivery",
}
"""The modules that have them, below the room of the client."""
_MODULES = {"aio": ".aio", "schema": ".schemadoor", "spark": ".spark"}
"""Names that are modules."""
_RENAMED = {"commands": "outcomes"}
"""Names that are others in their module."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Load what has the name, and no more: a program that sends does not load what consumes.

    Raises:
        AttributeError: there is no such name.
    """
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    # On the nodes of a cluster it cannot be loaded.
    home = _MODULES.get(name) or _HOME_OF[name]
    module = import_module(home, client.__name__)
    found = module if name in _MODULES else getattr(module, _RENAMED.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """The names that can be asked for."""
    return __all__
