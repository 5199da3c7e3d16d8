"""Stage 1: what is accepted, which position it gets, and the segments that the schedule reads."""

__all__ = ["accept_spark", "core", "plan", "segments", "stage"]
