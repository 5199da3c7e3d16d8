"""What users look at: what is pending, now or at an instant, what will come, how subscriptions stand, histories."""

__all__ = [
    "asof", "backlogfigures", "counting", "departures", "facts", "forecast", "forecasting", "job", "looker",
    "minutecounts", "pending", "pendingfollower", "pendingrows", "prospect", "recurring", "standing", "topics",
    "trace", "waiting",
]  # fmt: skip
