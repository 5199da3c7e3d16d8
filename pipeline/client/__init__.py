"""Access to a warehouse without Spark and without Java: create, subscribe, send, receive, look at what is pending.

delta-rs reads and writes the tables; the contracts in `schemas` say what they hold. Nothing here starts a JVM, and
each call answers in well under a second on a small warehouse, so that a command or a small service can afford it.
"""

__all__ = [
    "aio",
    "choices",
    "client",
    "clock",
    "commanding",
    "consuming",
    "create",
    "exceptions",
    "insight",
    "message",
    "producing",
    "public",
    "subscribing",
    "tables",
]
