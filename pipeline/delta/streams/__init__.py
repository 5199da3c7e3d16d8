"""Delta tables as sources of Spark's streams, with methods in Python."""

__all__ = ["log", "source"]
