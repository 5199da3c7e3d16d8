"""Notes as files of a folder, each written whole or not.

Notes of one kind are the fields of a small record as JSON, by name. Of notes that several processes may write at once,
in a store where nothing holds them apart, the one with the highest name counts (decision 0115).
"""

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


class HighestNote:
    """The note of a folder that counts: the text of the file with the highest name. Lower ones may go at any time."""

    def __init__(self, files: Files, folder: str, kind: str, alone: str) -> None:
        """Read nothing yet.

        Args:
            files: what reaches the folder.
            folder: where the notes are.
            kind: what their names end with, behind numbers.
            alone: the file that earlier versions replaced; it counts while there is no note.
        """
        self._files, self._folder, self._kind, self._alone = files, folder, kind, alone

    def names(self) -> list[str]:
        """The names of the notes, the highest one last; of numbers the longer one is the higher one."""
        names = (each.removesuffix(self._kind) for each in self._files.names(self._folder) if each.endswith(self._kind))
        return sorted(names, key=lambda each: (len(each), each))

    def put(self, name: str, text: str) -> None:
        """Note a text; it is there after a power cut."""
        self._files.write(f"{self._folder}/{name}{self._kind}", text)

    def get(self) -> str | None:
        """The text that counts; None: nothing is noted."""
        while names := self.names():
            # It goes when a higher one has come.
            text = self._files.text_if_there(f"{self._folder}/{names[-1]}{self._kind}")
            if text is not None:
                return text
        return self._files.text_if_there(self._alone)

    def drop_lower(self) -> None:
        """Delete the notes that do not count any more."""
        for name in self.names()[:-1]:
            self._files.delete(f"{self._folder}/{name}{self._kind}")
