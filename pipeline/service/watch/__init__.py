"""Watching a running pipeline: metrics, the log of progress, and a line for people."""

__all__ = ["line", "process"]
