"""The log of a table, entry by entry, without Spark."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pipeline.config.errors import BrokenVersion
from pipeline.delta.logs.entries import Commit, appended, entry, log_files, note_of
from pipeline.delta.logs.filestats import count
from pipeline.storage.files import Files

Actions = list[dict[str, Any]]
Place = tuple[int, int]
"""A place in a table that somebody follows: a version, and the last file of it that was taken; negative: none."""
FOLDER = "_delta_log"
_THREADS = 16
"""Small files are read by so many at once: on an object store each takes tens of milliseconds."""


class Log:
    """What lies in the log folder of a table. Listed once; entries are read when they are asked for, once each."""

    def __init__(self, table: str, last: int | None = None) -> None:
        """List the log of the table in a folder; versions later than the last one are left out."""
        self._files, self._table, folder = Files(), table, f"{table}/{FOLDER}"
        self._sizes = self._files.sizes(folder) if self._files.exists(folder) else {}
        found = [file for file in log_files(self._sizes) if last is None or file.version <= last]
        self.versions = [file.version for file in found if file.is_entry]
        self.checkpoints = sorted({file.version for file in found if file.is_checkpoint})
        self._read: dict[int, Actions | None] = {}

    @property
    def newest(self) -> int:
        """The newest version; -1: there is none."""
        return self.versions[-1] if self.versions else -1

    @property
    def whole(self) -> bool:
        """Whether the log begins with the table."""
        return self.versions[:1] == [0]

    def empty(self) -> list[int]:
        """Versions whose entry has no bytes."""
        return [version for version in self.versions if self._sizes[f"{version:020d}.json"][0] == 0]

    def last_checkpoint(self) -> int | None:
        """The version to which `_last_checkpoint` points; None without that file, -1 when it cannot be read."""
        text = self._files.text_if_there(f"{self._table}/{FOLDER}/_last_checkpoint")
        try:
            return None if text is None else int(json.loads(text)["version"])
        except (ValueError, KeyError, TypeError):
            return -1

    def actions(self, version: int) -> Actions | None:
        """The actions of a version; None when it has no entry that can be read."""
        if version not in self._read:
            self._read[version] = self._load(version)
        return self._read[version]

    def read(self, first: int, last: int) -> dict[int, Actions]:
        """The actions of each version from one to another that has an entry that can be read, ascending."""
        wanted = [version for version in self.versions if first <= version <= last]
        missing = [version for version in wanted if version not in self._read]
        with ThreadPoolExecutor(_THREADS) as pool:
            self._read.update(zip(missing, pool.map(self._load, missing), strict=True))
        return {version: actions for version in wanted if (actions := self._read[version]) is not None}

    def last_note(self, stage: str) -> Commit | None:
        """The last commit of a stage. Maintenance in between is passed over."""
        last = self.last(stage)
        return None if last is None else last[1]

    def last(self, stage: str) -> tuple[int, Commit] | None:
        """The same with its version."""
        for version in reversed(self.versions):
            noted = note_of(self.actions(version) or [])
            if noted is not None and noted.stage == stage:
                return version, noted
        return None

    def notes(self, stage: str, most: int) -> Iterator[tuple[int, Commit]]:
        """The commits of a stage among the newest entries, so many at most, ascending, each with its version."""
        for version, actions in self.read(self.newest - most + 1, self.newest).items():
            noted = note_of(actions)
            if noted is not None and noted.stage == stage:
                yield version, noted

    def added(self, version: int) -> list[dict[str, Any]] | None:
        """The files that a version appended, as a stream of the table sees them; None when nobody can tell.

        A version that takes rows out gives none: streams pass over it.
        """
        actions = self.actions(version)
        return None if actions is None else appended(actions)

    def after(self, place: Place) -> list[tuple[Place, dict[str, Any]]] | None:
        """The files appended after a place, each with its own place; None when the log does not reach back to it."""
        first, last = place[0], self.newest
        self.read(first, last)
        found: list[tuple[Place, dict[str, Any]]] = []
        for version in range(first, last + 1):
            files = self.added(version)
            if files is None:
                return None
            found += [((version, index), file) for index, file in enumerate(files) if (version, index) > place]
        return found

    def _load(self, version: int) -> Actions | None:
        with suppress(BrokenVersion):
            return entry(self._files, self._table, version)
        return None


def rows_of(file: Mapping[str, Any]) -> int | None:
    """How many rows a file has, by its entry in the log; None when that does not say."""
    return count(file.get("stats"))
