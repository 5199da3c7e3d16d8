"""Bounded tables: compaction, retention, log clean-up, vacuum, and the thread that does it."""

__all__ = ["layout", "rounds", "upkeep"]
