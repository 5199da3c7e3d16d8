"""How far sources are, as files of a warehouse, for people. What counts is in the notes of `inbox`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.storage.files import Files

_FOLDER = "_sources"


@dataclass(frozen=True)
class SourceState:
    """What is known of a source.

    Attributes:
        name: its name in the profile.
        address: what it follows.
        taken: rows that this process and earlier ones have appended, about.
        place: how far it has read; None: nothing yet.
        behind: rows that it has yet to read, as of the last look; None: nobody knows.
        unknown: why nobody knows; None: somebody does, or it has not been looked at.
        seen_ms: when that was, ms UTC; None: it has not been looked at.
        error: why it stands still; None: it does not.
    """

    name: str
    address: str
    taken: int = 0
    place: Mapping[str, Any] | None = None
    behind: int | None = None
    seen_ms: int | None = None
    error: str | None = None
    unknown: str | None = None


class SourceStates:
    """The files of a warehouse."""

    def __init__(self, files: Files, root: str) -> None:
        """Read nothing yet."""
        self._files, self._folder = files, f"{root}/{_FOLDER}"

    def put(self, state: SourceState) -> None:
        """Note how far a source is."""
        self._files.write(f"{self._folder}/{state.name}.json", json.dumps(asdict(state)), lasting=False)

    def get(self, name: str) -> SourceState | None:
        """How far a source is; None: nothing is noted."""
        text = self._files.text_if_there(f"{self._folder}/{name}.json")
        return None if not text else SourceState(**json.loads(text))

    def all(self) -> list[SourceState]:
        """All that are noted, by name."""
        names = sorted(each.removesuffix(".json") for each in self._files.names(self._folder) if each.endswith(".json"))
        return [state for state in map(self.get, names) if state is not None]
