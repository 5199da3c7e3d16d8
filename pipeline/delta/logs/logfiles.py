"""The files of a table's log: their names, where a log begins, and what an entry must be.

Both the stages and the client, which has no Spark, read logs. A log is cut from its beginning on, at a checkpoint
(`pipeline.maintenance.cutlogs`), and others write to it too. A commit that was begun before a cut and ends after it may
take the number of a version that was cut: nobody reads such an entry, and it is not the beginning of the log.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pipeline.config.errors import BrokenVersion

_NAME = re.compile(r"(\d{20})\.(json|crc|checkpoint\..*)")
_ENTRY, _SUMS, CHECKPOINT = "json", "crc", "checkpoint.parquet"
OURS = "delayline"
"""How our own versions name their writer."""


@dataclass(frozen=True)
class LogFile:
    """A file of a log.

    Attributes:
        version: of the table.
        kind: `json`, `crc`, or what follows the number in the name of a checkpoint.
        name: of the file.
    """

    version: int
    kind: str
    name: str

    @property
    def is_entry(self) -> bool:
        """Whether it says what its version did."""
        return self.kind == _ENTRY

    @property
    def is_checkpoint(self) -> bool:
        """Whether it says what the table is at its version, or is a part of that."""
        return "." in self.kind

    @property
    def is_understood(self) -> bool:
        """Whether it is of a kind that we write or that goes with what we write; others are left alone."""
        return self.kind in (_ENTRY, _SUMS, CHECKPOINT)


def log_files(names: Iterable[str]) -> list[LogFile]:
    """The files of a log, by version and name, from the names in its folder."""
    found = ((match, name) for name in sorted(names) if (match := _NAME.fullmatch(name)))
    return [LogFile(int(match[1]), match[2], name) for match, name in found]


def first_version(files: Iterable[LogFile]) -> int:
    """The version with which a log begins: from there to the newest one no entry is missing.

    A log that was cut begins at its oldest checkpoint. What lies before it is nobody's, even without a gap: a table
    cannot be read there any more.

    Raises:
        ValueError: the log has no entry.
    """
    files = list(files)
    entries = {file.version for file in files if file.is_entry}
    first = max(entries)
    while first - 1 in entries:
        first -= 1
    checkpoints = [file.version for file in files if file.is_checkpoint and first <= file.version]
    return min(checkpoints, default=first) if first else 0


def actions_of(text: str, folder: str, version: int) -> list[dict[str, Any]]:
    """The actions of a version, from the text of its entry.

    Raises:
        BrokenVersion: it is empty, or it was cut.
    """
    try:
        # Not `splitlines`: a text in the statistics may hold what it takes for the end of a line.
        found = [json.loads(line) for line in text.split("\n") if line]
    except ValueError as error:
        raise BrokenVersion(folder, version) from error
    if not found or not all(isinstance(each, dict) for each in found):
        raise BrokenVersion(folder, version)
    # Others end their last line without a newline; ours never do.
    ours = any((each.get("commitInfo") or {}).get("engineInfo") == OURS for each in found)
    if ours and not text.endswith("\n"):
        raise BrokenVersion(folder, version)
    return found


def takes_out(actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a version takes rows out."""
    return any(each["remove"].get("dataChange", True) for each in actions if "remove" in each)


def appended(actions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The files that a version appended, with `path` decoded; the place in the list is the index that Delta logs.

    A version that took rows out appended nothing: streams pass over it.
    """
    actions = list(actions)
    if takes_out(actions):
        return []
    adds = (each["add"] for each in actions if "add" in each)
    return [{**each, "path": unquote(each["path"])} for each in adds if each.get("dataChange", True)]


def is_plain(file: Mapping[str, Any]) -> bool:
    """Whether a file, by its entry, lies in its table's folder and all its rows count."""
    return not file.get("deletionVector") and ":" not in file["path"] and not file["path"].startswith("/")


def info_of(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Who made a version, and how."""
    return next((dict(each["commitInfo"]) for each in actions if "commitInfo" in each), {})
