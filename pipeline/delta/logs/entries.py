"""The log of a table: its files, where it begins, what each entry did, and what a stage notes in it.

Both the stages and the client, which has no Spark, read logs. A log is cut from its beginning on, at a checkpoint
(`pipeline.maintenance.cutlogs`), and others write to it too. A commit that was begun before a cut and ends after it may
take the number of a version that was cut: nobody reads such an entry, and it is not the beginning of the log.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from errno import ENOENT
from itertools import islice
from typing import Any
from urllib.parse import unquote

from pipeline.config.errors import BrokenVersion, VersionGone
from pipeline.delta.checkpoints import Offset
from pipeline.delta.logs import filestats
from pipeline.storage.files import Files

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


_ESCAPED = re.compile(r"[^A-Za-z0-9_\-!.~'()*,;:$&+=@\u0080-\U0010ffff]")


def newest(files: Files, path: str, known: int = -1) -> int:
    """The newest version of a table; asked for version by version from a known one on, else by the names in its log.

    A log grows for as long as it is kept: who asks again and again must not list it each time. Who has not asked for
    long may know a version from before the beginning of the log, and what lies behind that one may be nobody's.

    Raises:
        FileNotFoundError: there is no log.
    """
    if known >= 0 and files.has(_log(path, known)):
        while files.has(_log(path, known + 1)):
            known += 1
        return known
    versions = [file.version for file in log_files(files.names(f"{path}/_delta_log")) if file.is_entry]
    if not versions:
        raise FileNotFoundError(ENOENT, "there is no log of a Delta table", path)
    return max(versions)


def oldest(files: Files, path: str) -> int:
    """The version with which the log of a table begins.

    Raises:
        ValueError: the log has no entry.
    """
    return first_version(log_files(files.names(f"{path}/_delta_log")))


def exists(files: Files, path: str, version: int) -> bool:
    """Whether the log has a version."""
    return files.has(_log(path, version))


def reaches_back(files: Files, path: str, known: int) -> bool:
    """Whether the log still has all that came after a version."""
    if files.has(_log(path, known)):
        return True
    return oldest(files, path) <= known + 1


def is_whole(files: Files, path: str) -> bool:
    """Whether a log has all its entries: it is cut from its beginning on."""
    return files.has(_log(path, 0))


def uri_name(path: str) -> str:
    """The name of a file as Spark tells it (`input_file_name`), which is as `java.net.URI` writes one."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", path.rpartition("/")[2])


def between(files: Files, path: str, begin: Offset, end: Offset) -> list[dict[str, Any]] | None:
    """The files that a batch of a stream takes, as the log has them, with `path` decoded, and the `version` of each.

    None when the log does not have all its entries any more.

    Begin and end are positions of a stream: a version, and the index of the last file of it that was taken; a negative
    one when none was.
    """
    found = []
    for version in range(begin[0], end[0] + (end[1] >= 0)):
        actions = entry(files, path, version)
        if actions is None:
            return None
        found += within(actions, version, begin, end)
    return found


def within(actions: Iterable[Mapping[str, Any]], version: int, begin: Offset, end: Offset) -> list[dict[str, Any]]:
    """The files of one version that a batch of a stream takes, as `between` gives them."""
    added = appended(actions)
    last = end[1] + 1 if version == end[0] else len(added)
    mine = added[max(0, begin[1] + 1) if version == begin[0] else 0 : last]
    return [{**each, "version": version} for each in mine]


def entry(files: Files, path: str, version: int) -> list[dict[str, Any]] | None:
    """The actions of a version; None when there is no entry for it in the log.

    Raises:
        BrokenVersion: the entry is empty, or it was cut short.
    """
    text = files.text_if_there(_log(path, version)) if version >= 0 else None
    return None if text is None else actions_of(text, path, version)


def versions(files: Files, path: str, after: int, upto: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The actions of each version behind one, up to and with another one.

    Raises:
        VersionGone: the log does not have one of them any more.
        BrokenVersion: an entry is empty, or it was cut short.
    """
    for version in range(after + 1, upto + 1):
        actions = entry(files, path, version)
        if actions is None:
            raise VersionGone(path.rpartition("/")[2], version, "_delta_log")
        yield version, actions


def rows_of(added: Iterable[Mapping[str, Any]] | None) -> int | None:
    """How many rows files hold, by their entries in the log; None when one does not say."""
    counts = [filestats.count(file.get("stats")) for file in added or ()]
    known = [each for each in counts if each is not None]
    return sum(known) if added is not None and len(known) == len(counts) else None


def commits(files: Files, path: str, version: int) -> Iterator[list[dict[str, Any]]]:
    """The actions of each commit of a table, from a version back, as far as its log reaches. No job runs."""
    while (actions := entry(files, path, version)) is not None:
        yield actions
        version -= 1


def metadata(actions: Iterable[Mapping[str, Any]]) -> str | None:
    """What a writer noted in a commit (`userMetadata`); None when nothing was."""
    return info_of(actions).get("userMetadata")


def changes_table(actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a version says something new of the table itself: of its columns, properties or protocol."""
    return any("protocol" in each or "metaData" in each for each in actions)


def _log(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.json"


def actions(files: Files, path: str, version: int) -> list[dict[str, Any]]:
    """The actions of one version.

    Raises:
        BrokenVersion: its entry is empty, or it was cut short.
    """
    return actions_of(files.text(_log(path, version)), path, version)


@dataclass(frozen=True)
class Commit:
    """What a stage noted in a commit of a table.

    Attributes:
        stage: the stage that wrote.
        owner: the identity of its checkpoint.
        batch: the batch of that checkpoint.
        note: what else the stage needs to finish or to repeat the batch.
    """

    stage: str
    owner: str
    batch: int
    note: Mapping[str, Any] = field(default_factory=dict)

    def dumps(self) -> str:
        """The commit's metadata."""
        return json.dumps({"stage": self.stage, "owner": self.owner, "batch": self.batch, "note": dict(self.note)})

    @property
    def span(self) -> tuple[Offset | None, Offset | None]:
        """Where the batch begins and ends in its source, as far as the note says."""
        begin, end = self.note.get("begin"), self.note.get("source")
        if end is None and "index" in self.note:
            end = self.note["version"], self.note["index"]
        return tuple(begin) if begin else None, tuple(end) if end else None

    @classmethod
    def loads(cls, text: str | None) -> "Commit | None":
        """The note in a commit's metadata; None when somebody else wrote the commit."""
        try:
            found = json.loads(text or "")
            return cls(str(found["stage"]), str(found["owner"]), int(found["batch"]), dict(found["note"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


def note_of(actions: Iterable[Mapping[str, Any]]) -> Commit | None:
    """What a stage noted in a version; None when somebody else made it."""
    return Commit.loads(metadata(actions))


def last_note(files: Files, path: str, stage: str, newest: int, after: int = -1) -> Commit | None:
    """The last commit of a stage to a table, after a version; None when there is none. Others' are passed over."""
    entries = islice(commits(files, path, newest), max(0, newest - after))
    notes = (note_of(actions) for actions in entries)
    return next((note for note in notes if note is not None and note.stage == stage), None)
