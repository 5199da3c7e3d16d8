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
_INFO, _OF_FILES = "commitInfo", ("add", "remove")
_MOST_DIGITS, _RESTORE = 1_000, "RESTORE"
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
        found = [_without_nulls(_loads(line)) for line in text.split("\n") if line]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenVersion(folder, version) from error
    if not found:
        raise BrokenVersion(folder, version)
    # Others end their last line without a newline; ours never do.
    if info_of(found).get("engineInfo") == OURS and not text.endswith("\n"):
        raise BrokenVersion(folder, version)
    return found


def _loads(line: str) -> dict[str, Any]:
    """A line of an entry. Numbers of any length are allowed there; what is longer than Python reads says nothing."""
    try:
        action: dict[str, Any] = json.loads(line)
    except ValueError:
        action = json.loads(line, parse_int=lambda digits: int(digits) if len(digits) < _MOST_DIGITS else None)
    return action


def _without_nulls(line: dict[str, Any]) -> dict[str, Any]:
    """A line without what is NULL in it: writers may spell out what they do not say.

    Raises:
        TypeError, AttributeError: it is no line of a log.
    """
    actions = {kind: action for kind, action in line.items() if action is not None}
    for kind, action in actions.items():
        if None in action.values() if isinstance(action, dict) else kind != _INFO:
            actions[kind] = {name: each for name, each in action.items() if each is not None}
    if any(not isinstance(actions[kind].get("path"), str) for kind in _OF_FILES if kind in actions):
        raise TypeError(line)
    # The protocol leaves it to writers what they say of themselves.
    return actions if isinstance(actions.get(_INFO, {}), dict) else {**actions, _INFO: {}}


def takes_out(actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a version takes rows out."""
    return any(each["remove"].get("dataChange", True) for each in actions if "remove" in each)


def restores(actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a version makes the table what it was at an earlier one."""
    return info_of(actions).get("operation") == _RESTORE


def appended(actions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The files that a version appended, with `path` decoded; the place in the list is the index that Delta logs.

    A version that took rows out appended nothing: streams pass over it. Nor did a RESTORE: all that it puts in was
    there before.
    """
    actions = list(actions)
    if takes_out(actions) or restores(actions):
        return []
    adds = (each["add"] for each in actions if "add" in each)
    return [{**each, "path": unquote(each["path"])} for each in adds if each.get("dataChange", True)]


def is_plain(file: Mapping[str, Any]) -> bool:
    """Whether a file, by its entry, lies in its table's folder and all its rows count."""
    return not file.get("deletionVector") and is_inside(file["path"])


def is_inside(path: str) -> bool:
    """Whether a decoded path names something in its table's folder, as far as a name tells: links may lead elsewhere.

    What has a scheme, or begins with a slash, may be anywhere, and so may what goes up.
    """
    parts = path.split("/")
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return bool(path.strip("./")) and ":" not in path and bool(parts[0]) and ".." not in parts and "\0" not in path


def info_of(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Who made a version, and how."""
    return next((dict(each["commitInfo"]) for each in actions if "commitInfo" in each), {})
