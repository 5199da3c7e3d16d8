"""What users look at: what is pending, now or at an instant, how subscriptions stand, and the history of a message."""

__all__ = [
    "counting", "facts", "job", "looker", "pending", "pendingfollower", "pendingrows", "prospect", "standing", "topics",
    "trace", "waiting",
]  # fmt: skip
