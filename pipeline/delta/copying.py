"""A table in another folder as it is at a version: its log is copied, and its data files get one more name.

A data file is written once, and nobody writes into it again: so two tables may share it, and each deletes its own name
of it. Entries of a log are small, and are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

from pipeline.config.routes import PLACE, NotInDriver
from pipeline.delta.logs.entries import actions_of, first_version, is_inside, log_files, newest
from pipeline.delta.logs.snapshot import live_files
from pipeline.storage.files import Files

AT_ONCE = 16
"""So many files are copied at once. In a store each is a request or two."""
_LOG = "_delta_log"


class FileGone(Exception):
    """A file of a version is not there: maintenance has taken it since, or somebody has deleted it."""

    def __init__(self, table: str, path: str) -> None:
        super().__init__(f"{table}/{path}")
        self.table, self.path = table, path


@dataclass
class Count:
    """What was made.

    Attributes:
        linked: data files that have one more name.
        copied: data files that were copied, where there are no such names.
    """

    linked: int = 0
    copied: int = 0

    def add(self, *, linked: bool) -> None:
        """A file more."""
        self.linked, self.copied = self.linked + linked, self.copied + (not linked)


def versions(files: Files, folders: Mapping[str, str], known: Mapping[str, int]) -> dict[str, int]:
    """The newest version of each of some tables, by name.

    Args:
        files: what reaches them.
        folders: of the tables, by name.
        known: versions that they had before, as far as that is known.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda name: newest(files, folders[name], known.get(name, -1)), folders)
        return dict(zip(folders, found, strict=True))


def copy_log(files: Files, source: str, target: str, version: int) -> None:
    """Copy the log of a table up to a version, without the hint that names its last checkpoint.

    Raises:
        FileGone: a file of it went meanwhile.
    """
    found = log_files(files.names(f"{source}/{_LOG}"))
    first = first_version(found)
    if not any(file.is_entry and file.version == version for file in found):
        raise FileGone(_name(source), f"{_LOG}/{version:020d}.json")
    wanted = [file.name for file in found if first <= file.version <= version]
    _each(partial(_copied, files, source, target), (f"{_LOG}/{name}" for name in wanted))


def _copied(files: Files, source: str, target: str, path: str) -> None:
    try:
        files.copy(f"{source}/{path}", f"{target}/{path}")
    except FileNotFoundError as error:
        raise FileGone(_name(source), path) from error


def link_files(
    files: Files, source: str, target: str, count: Count, more: Iterable[str] = (), *, strict: bool = True
) -> None:
    """Give the data files of a table whose log was copied one more name, and those that its entries still name.

    Args:
        files: what reaches both.
        source: the folder of the table.
        target: the other folder, which has the log.
        count: is raised.
        more: paths of other files that have to be there, relative to the table.
        strict: all files of the table have to be there. Where anybody may append, ingest passes over those that are
            not.

    Raises:
        FileGone: a file went meanwhile.
        NotInDriver: only Delta can tell which files the table has.
    """
    found = live_files(files, target)
    if found is None:
        raise NotInDriver(PLACE)
    live = {unquote(each["path"]) for each in found[1]} | set(more)
    others = set(_named(files, target)) - live
    for path, needed in [*((each, strict) for each in sorted(live)), *((each, False) for each in sorted(others))]:
        # What is elsewhere is nobody's (`docs/tables.md`).
        if is_inside(path):
            _link(files, source, target, path, count, needed=needed)


def _link(files: Files, source: str, target: str, path: str, count: Count, *, needed: bool) -> None:
    try:
        count.add(linked=files.link(f"{source}/{path}", f"{target}/{path}"))
    except FileNotFoundError as error:
        if needed:
            raise FileGone(_name(source), path) from error


def _named(files: Files, folder: str) -> Iterator[str]:
    """The files that the entries of a log put in or take out: who follows the log may still read them."""
    entries = [file for file in log_files(files.names(f"{folder}/{_LOG}")) if file.is_entry]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        texts = pool.map(lambda file: files.text(f"{folder}/{_LOG}/{file.name}"), entries)
        for file, text in zip(entries, texts, strict=True):
            for action in actions_of(text, folder, file.version):
                change: Mapping[str, Any] | None = action.get("add") or action.get("remove")
                if change is not None:
                    yield unquote(change["path"])


def _each(call: Callable[[str], object], paths: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(call, path) for path in paths]:
            done.result()


def _name(folder: str) -> str:
    return folder.rpartition("/")[2]
