"""The registry as programs use it: subscriptions, topics, how they stand, seeking, and dead letters."""

__all__ = [
    "calendars",
    "deadletters",
    "lines",
    "lives",
    "patterns",
    "policysetting",
    "registryview",
    "schedules",
    "seeking",
    "subscriptions",
    "topics",
]
