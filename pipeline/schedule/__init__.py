"""Stage 2: encoded positions wait in streaming state, and leave as runs when they are due."""

__all__ = ["keys", "stage"]
