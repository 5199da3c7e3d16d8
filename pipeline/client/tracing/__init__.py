"""The history of a message, told from the tables alone: which messages are meant, what happened, how each stands."""

__all__ = ["facts", "trace"]
