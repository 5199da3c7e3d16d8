"""Sinks: what became visible in `deliveries` is published in topics of brokers, in order, exactly once.

A sink follows the log of the table, as a client does. The stages know nothing of it, so a broker that does not answer
stops neither them nor other sinks.
"""

__all__ = ["running"]
