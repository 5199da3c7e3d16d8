"""The log of a table, entry by entry, without Spark."""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow.fs

from pipeline.delta.deltars import text_of
from pipeline.delta.filestats import count
from pipeline.delta.notes import Commit

Actions = list[dict[str, Any]]
Place = tuple[int, int]
"""A place in a table that somebody follows: a version, and the last file of it that was taken; negative: none."""
FOLDER = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.(?:parquet|json)")
_THREADS = 16
"""Small files are read by so many at once: on an object store each takes tens of milliseconds."""


class Log:
    """What lies in the log folder of a table. Listed once; entries are read when they are asked for, once each."""

    def __init__(self, files: pyarrow.fs.FileSystem, last: int | None = None) -> None:
        """List the folder.

        Args:
            files: the folder of the table.
            last: later versions are left out.
        """
        self._files = files
        found = files.get_file_info(pyarrow.fs.FileSelector(FOLDER, allow_not_found=True))
        sizes = {info.base_name: info.size for info in found}
        self._sizes = {name: size for name, size in sizes.items() if last is None or _version(name) <= last}
        self.versions = _numbers(_ENTRY, self._sizes)
        self.checkpoints = _numbers(_CHECKPOINT, self._sizes)
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
        return [version for version in self.versions if self._sizes[f"{version:020d}.json"] == 0]

    def last_checkpoint(self) -> int | None:
        """The version to which `_last_checkpoint` points; None without that file, -1 when it cannot be read."""
        text = text_of(self._files, f"{FOLDER}/_last_checkpoint")
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
        for version in reversed(self.versions):
            noted = note_of(self.actions(version) or [])
            if noted is not None and noted.stage == stage:
                return noted
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
        text = text_of(self._files, f"{FOLDER}/{version:020d}.json") if version >= 0 else None
        try:
            # Not `splitlines`: a text in the statistics may hold what it takes for the end of a line.
            return [json.loads(line) for line in text.split("\n") if line] or None if text else None
        except ValueError:
            return None


def appended(actions: Actions) -> list[dict[str, Any]]:
    """The files that a version appended; none when it takes rows out."""
    if takes_out(actions):
        return []
    return [each["add"] for each in actions if "add" in each and each["add"].get("dataChange", True)]


def takes_out(actions: Actions) -> bool:
    """Whether a version takes rows out."""
    return any(each["remove"].get("dataChange", True) for each in actions if "remove" in each)


def info_of(actions: Actions) -> dict[str, Any]:
    """Who made a version, and how."""
    return next((dict(each["commitInfo"]) for each in actions if "commitInfo" in each), {})


def note_of(actions: Actions) -> Commit | None:
    """What a stage noted in a version; None when somebody else made it."""
    return Commit.loads(info_of(actions).get("userMetadata"))


def rows_of(file: Mapping[str, Any]) -> int | None:
    """How many rows a file has, by its entry in the log; None when that does not say."""
    return count(file.get("stats"))


def _version(name: str) -> int:
    return int(name[:20]) if name[:20].isdigit() else -1


def _numbers(form: re.Pattern[str], names: Mapping[str, int]) -> list[int]:
    return sorted({int(match[1]) for name in names if (match := form.fullmatch(name))})
