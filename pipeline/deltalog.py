"""Single commits of a Delta table: which files each one added, in the order in which a stream takes them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from pipeline.files import Files


def newest(files: Files, path: str) -> int:
    """The newest version of a table, by the names in its log."""
    names = files.names(f"{path}/_delta_log")
    return max(int(name[:20]) for name in names if name[20:] == ".json" and name[:20].isdigit())


def added(files: Files, path: str, version: int) -> list[str]:
    """The files that a version added, relative to the table; the place in the list is the index that Delta logs.

    None for a version that is not there (yet), and for one that took rows out: streams pass over both.
    """
    log = f"{path}/_delta_log/{version:020d}.json"
    if version < 0 or not files.exists(log):
        return []
    actions = [json.loads(line) for line in files.text(log).splitlines() if line.startswith(('{"add":', '{"remove":'))]
    if any(each["remove"].get("dataChange") for each in actions if "remove" in each):
        return []
    return [unquote(each["add"]["path"]) for each in actions if "add" in each and each["add"]["dataChange"]]


def commits(files: Files, path: str) -> Iterator[list[dict[str, Any]]]:
    """The actions of each commit of a table, the newest first, as far back as its log reaches. No job runs."""
    for version in range(newest(files, path), -1, -1):
        log = f"{path}/_delta_log/{version:020d}.json"
        if not files.exists(log):
            return
        yield [json.loads(line) for line in files.text(log).splitlines()]


def metadata(actions: Iterable[Mapping[str, Any]]) -> str | None:
    """What a writer noted in a commit (`userMetadata`); None when nothing was."""
    return next((each["commitInfo"].get("userMetadata") for each in actions if "commitInfo" in each), None)


def rows_in(actions: Iterable[Mapping[str, Any]]) -> int:
    """How many rows a commit added, by the statistics of its files."""
    return sum(int(json.loads(each["add"]["stats"])["numRecords"]) for each in actions if "add" in each)
