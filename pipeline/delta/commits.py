"""Single commits of a Delta table: which files each one added, in the order in which a stream takes them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from errno import ENOENT
from typing import Any
from urllib.parse import unquote

from pipeline.delta import filestats
from pipeline.delta.logfiles import actions_of, first_version, log_files
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


def exists(files: Files, path: str, version: int) -> bool:
    """Whether the log has a version."""
    return files.has(_log(path, version))


def reaches_back(files: Files, path: str, known: int) -> bool:
    """Whether the log still has all that came after a version."""
    if files.has(_log(path, known)):
        return True
    return first_version(log_files(files.names(f"{path}/_delta_log"))) <= known + 1


def is_whole(files: Files, path: str) -> bool:
    """Whether a log has all its entries: it is cut from its beginning on."""
    return files.has(_log(path, 0))


def added(files: Files, path: str, version: int) -> list[str]:
    """The files that a version added, relative to the table; the place in the list is the index that Delta logs.

    None for a version that is not there (yet), and for one that took rows out: streams pass over both.
    """
    return [unquote(each["path"]) for each in _added(files, path, version) or ()]


def spelled(path: str) -> str:
    """The name of a file as Spark tells it (`input_file_name`), which is as `java.net.URI` writes one."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", path.rpartition("/")[2])


def _added(files: Files, path: str, version: int) -> list[dict[str, Any]] | None:
    """As the log has them; None without an entry."""
    found = None if version < 0 else _actions_if_there(files, path, version)
    if found is None:
        return None
    if any(each["remove"].get("dataChange") for each in found if "remove" in each):
        return []
    return [each["add"] for each in found if "add" in each and each["add"]["dataChange"]]


def between(files: Files, path: str, begin: tuple[int, int], end: tuple[int, int]) -> list[dict[str, Any]] | None:
    """The files that a batch of a stream takes, as the log has them, with `path` decoded, and the `version` of each.

    None when the log does not have all its entries any more.

    Begin and end are positions of a stream: a version, and the index of the last file of it that was taken; a negative
    one when none was.
    """
    found = []
    for version in range(begin[0], end[0] + (end[1] >= 0)):
        files_of = _added(files, path, version)
        if files_of is None:
            return None
        last = end[1] + 1 if version == end[0] else len(files_of)
        mine = files_of[max(0, begin[1] + 1) if version == begin[0] else 0 : last]
        found += [{**each, "path": unquote(each["path"]), "version": version} for each in mine]
    return found


def rows_of(added: Iterable[Mapping[str, Any]] | None) -> int | None:
    """How many rows files hold, by their entries in the log; None when one does not say."""
    counts = [filestats.count(file.get("stats")) for file in added or ()]
    known = [each for each in counts if each is not None]
    return sum(known) if added is not None and len(known) == len(counts) else None


def commits(files: Files, path: str, version: int) -> Iterator[list[dict[str, Any]]]:
    """The actions of each commit of a table, from a version back, as far as its log reaches. No job runs."""
    for each in range(version, -1, -1):
        found = _actions_if_there(files, path, each)
        if found is None:
            return
        yield found


def metadata(actions: Iterable[Mapping[str, Any]]) -> str | None:
    """What a writer noted in a commit (`userMetadata`); None when nothing was."""
    return next((each["commitInfo"].get("userMetadata") for each in actions if "commitInfo" in each), None)


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


def _actions_if_there(files: Files, path: str, version: int) -> list[dict[str, Any]] | None:
    """The same; None without an entry."""
    text = files.text_if_there(_log(path, version))
    return None if text is None else actions_of(text, path, version)
