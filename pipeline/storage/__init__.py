"""Bytes on any file system: small files, locks, and bounded reads of Parquet files as arrays."""

__all__ = ["arrays", "files", "gather", "locks", "objectstore", "parquet", "texts"]
