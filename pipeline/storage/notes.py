"""Notes of one kind as files of a folder, by name: the fields of a small record as JSON, each written whole or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Generic, TypeVar

from pipeline.storage.files import Files

T = TypeVar("T")
_KIND = ".json"


class Notes(Generic[T]):
    """The notes of a folder.

    Attributes:
        folder: where they are.
    """

    def __init__(self, files: Files, folder: str, kind: type[T]) -> None:
        """Read nothing yet; what is noted is of a kind."""
        self._files, self.folder, self._of = files, folder, kind

    def put(self, name: str, note: T, *, lasting: bool = False) -> None:
        """Note something, in the place of what was noted by that name; a lasting note is there after a power cut."""
        text = json.dumps(asdict(note))  # type: ignore[call-overload] # only mypy has a name for all dataclasses
        self._files.write(f"{self.folder}/{name}{_KIND}", text, lasting=lasting)

    def get(self, name: str) -> T | None:
        """What is noted by a name; None: nothing is, or a power cut has left an empty file."""
        text = self._files.text_if_there(f"{self.folder}/{name}{_KIND}")
        return self._of(**json.loads(text)) if text else None

    def names(self) -> list[str]:
        """The names by which something is noted, sorted."""
        return [each.removesuffix(_KIND) for each in self._files.names(self.folder) if each.endswith(_KIND)]

    def all(self) -> dict[str, T]:
        """All that is noted, by name; what is dropped meanwhile is left out."""
        return {name: note for name in self.names() if (note := self.get(name)) is not None}

    def drop(self, name: str) -> None:
        """Forget what is noted by a name; nothing happens when nothing is."""
        self._files.delete(f"{self.folder}/{name}{_KIND}")
