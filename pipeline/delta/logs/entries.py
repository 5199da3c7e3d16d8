"""Single commits of a Delta table: which files each one added, in the order in which a stream takes them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from errno import ENOENT
from typing import Any

from pipeline.delta.logs import filestats
from pipeline.delta.logs.logfiles import actions_of, appended, first_version, info_of, log_files
from pipeline.delta.offsets import Offset
from pipeline.storage.files import Files

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
