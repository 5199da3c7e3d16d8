"""Errors of the index core: one root, short children, each with the parameters a caller can test on."""

from __future__ import annotations

import copyreg
from typing import Any


class DelaylineError(Exception):
    """Root of every error that delayline raises on purpose. Each can be pickled, with its text and its parameters."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Without `__init__`: Python would give it the finished text in the place of the parameters."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class OutOfRange(DelaylineError, ValueError):
    """A value outside its allowed range was offered; nothing was changed.

    Correct the value, or send the message to the rejected rows, and go on.

    Attributes:
        field: name of the argument.
        value: the offending value.
        low: smallest allowed value.
        high: largest allowed value.
    """

    def __init__(self, field: str, value: object, low: int, high: int) -> None:
        super().__init__(f"{field} = {value!r}: allowed range is {low} to {high}")
        self.field, self.value, self.low, self.high = field, value, low, high


class InvalidArgument(DelaylineError, ValueError):
    """An argument has the wrong type, shape or combination; nothing was changed.

    Attributes:
        field: name of the argument.
        value: a short description of what was given.
        allowed: what would have been accepted.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} = {value!r}: allowed is {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class CorruptBytes(DelaylineError, ValueError):
    """Persisted bytes are truncated, altered, foreign, or of an unknown version; nothing was read from them.

    The bytes cannot be repaired: rebuild the index from the log (`docs/format.md`).

    Attributes:
        part: what was being read ("chunk", "index", "block 3", ...).
        reason: what is wrong with it.
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"corrupt {part}: {reason}")
        self.part, self.reason = part, reason


class IncompatibleChunk(DelaylineError, ValueError):
    """A well-formed chunk cannot join this index, because their due rules differ.

    Attributes:
        field: the setting that differs.
        value: the chunk's setting.
        expected: the index's setting.
    """

    def __init__(self, field: str, value: object, expected: object) -> None:
        super().__init__(f"chunk {field} = {value!r}: this index takes {expected!r}")
        self.field, self.value, self.expected = field, value, expected
