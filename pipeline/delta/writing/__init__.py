"""Rows that become files and versions, in order, once."""

__all__ = ["appender", "batchcommits", "datafiles", "numbering", "oncewriter"]
