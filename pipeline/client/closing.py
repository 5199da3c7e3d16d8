"""What is opened and closed: a client, and what it makes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Is closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """End; a second call does nothing."""

    def __enter__(self) -> Self:
        """The same object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()
