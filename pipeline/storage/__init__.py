"""Bytes on any file system: the door to files, locks, and bounded reads of Parquet files as arrays."""

__all__ = [
    "arrays",
    "files",
    "gather",
    "hadoop",
    "inprocesswatch",
    "locks",
    "merge",
    "notes",
    "parquet",
    "room",
    "storecheck",
    "texts",
    "waiting",
]
