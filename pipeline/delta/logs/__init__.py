"""Entries of a table's log: reading, judging and adding them, and what they note."""

__all__ = [
    "change",
    "checksums",
    "entries",
    "features",
    "filestats",
    "logstore",
    "opening",
    "restored",
    "snapshot",
]
