"""Sinks: what became visible in `deliveries` is published in topics of brokers, in order.

It is there exactly once where the broker can see to that, else at least once with ids that are the same each time. A
sink follows the log of the table, as a client does. The stages know nothing of it, so a broker that does not answer
stops neither them nor other sinks. All sinks of a job have a process of their own.
"""

__all__ = ["apart"]
