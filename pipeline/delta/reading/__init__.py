"""The files of a table and the rows of `messages`, found by what the log says of them."""

__all__ = ["arrival", "files", "messages", "strangers"]
