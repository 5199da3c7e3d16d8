"""Single commits of a Delta table: which files each one added, in the order in which a stream takes them."""

import json
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


def rows_added(files: Files, path: str, metadata: str) -> int:
    """How many rows the newest commit with some metadata added, by the statistics in the log. No job runs.

    Raises:
        LookupError: no commit has it.
    """
    for version in range(newest(files, path), -1, -1):
        actions = [json.loads(line) for line in files.text(f"{path}/_delta_log/{version:020d}.json").splitlines()]
        if any(each["commitInfo"].get("userMetadata") == metadata for each in actions if "commitInfo" in each):
            return sum(int(json.loads(each["add"]["stats"])["numRecords"]) for each in actions if "add" in each)
    raise LookupError(f"{path}: no commit with {metadata}")
