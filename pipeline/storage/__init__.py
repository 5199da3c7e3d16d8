"""Bytes on any file system: the door to files, locks, and bounded reads of Parquet files as arrays."""

__all__ = [
    "arrays",
    "bells",
    "files",
    "gather",
    "hadoop",
    "locks",
    "merge",
    "parquet",
    "storecheck",
    "texts",
    "waiting",
]
