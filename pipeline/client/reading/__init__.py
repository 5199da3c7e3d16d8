"""Reading without a subscription's leases: the log of a topic, and commits of `deliveries` one after the other."""

__all__ = ["deliveries"]
