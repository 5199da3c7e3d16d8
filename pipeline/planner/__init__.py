"""What recurs becomes messages: the planner appends the occurrences of schedules to `inbox`, each once.

It runs in the process of ingest. Decision 0143 has the argument why each occurrence comes once.
"""

__all__ = ["planner", "running"]
