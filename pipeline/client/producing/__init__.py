"""Sending: producers, what waits for the store, and the one writer that takes it there."""

__all__ = ["inbox", "limits"]
