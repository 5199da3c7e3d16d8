"""What a table is by its log: the last checkpoint, and the entries after it. No job runs, and the JVM is not asked.

Delta rebuilds the same for each version that is asked for: its files by a job of Spark's, which takes a tenth of a
second of a CPU however few they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.logs.checksums import checksum
from pipeline.delta.logs.entries import CHECKPOINT, LogFile, entry, log_files
from pipeline.storage.files import Files

T = TypeVar("T")
_FIELDS = ("path", "size", "stats", "tags", "deletionVector")
"""Fields that are kept of the entry of a file."""
_OF_CHECKSUM = {"protocol": "protocol", "metaData": "metadata"}
"""The actions that say what a table is, and their names in Delta's checksums."""
_ELSEWHERE = "sidecar.path"
"""A checkpoint with something in this column names its files in others."""


def live_files(files: Files, path: str, version: int | None = None) -> tuple[int, list[dict[str, Any]]] | None:
    """A version of a table, and path, size, statistics (JSON), tags and deletion vector of each file of it.

    Args:
        files: what reaches the table.
        path: its folder.
        version: of the table; None is the newest.

    Returns:
        None when only Delta can tell: the folder is not readable here, the checkpoint is of another kind than ours, the
        log does not reach back so far or was cut meanwhile, or rows are taken out of files by deletion vectors. Paths
        are as the log spells them.

    Raises:
        BrokenVersion: an entry is empty, or it was cut short.
    """
    if files.readable(path) is None or (base := _base(files, path, version)) is None:
        return None
    last, begin = base
    held = {} if begin is None else _checkpointed(files, f"{path}/_delta_log/{begin.name}")
    if held is None:
        return None
    for each in range(0 if begin is None else begin.version + 1, last + 1):
        actions = entry(files, path, each)
        if actions is None or not _of_whole_files(actions):
            return None
        follow(held, actions, _kept_fields)
    return last, list(held.values())


def described(files: Files, path: str) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
    """The newest version of a table, and the contents of its `protocol` and `metaData` actions.

    Returns:
        None when only Delta can tell: as for `live_files`.

    Raises:
        BrokenVersion: an entry is empty, or it was cut short.
    """
    base = _base(files, path, None)
    if base is None:
        return None
    last, begin = base
    known = checksum(files, path, last) or {}
    found = {kind: known[name] for kind, name in _OF_CHECKSUM.items() if known.get(name)}
    for each in range(last, -1 if begin is None else begin.version, -1):
        if len(found) == len(_OF_CHECKSUM):
            break
        actions = entry(files, path, each)
        if actions is None:
            return None
        found = {kind: action[kind] for action in actions for kind in _OF_CHECKSUM if kind in action} | found
    if len(found) < len(_OF_CHECKSUM) and begin is not None and files.readable(path) is not None:
        found = _described(files, f"{path}/_delta_log/{begin.name}") | found
    return (last, found["protocol"], found["metaData"]) if len(found) == len(_OF_CHECKSUM) else None


def _base(files: Files, path: str, version: int | None) -> tuple[int, LogFile | None] | None:
    """A version, the newest one without any, and the last checkpoint up to it, if there is one."""
    found = log_files(files.names(f"{path}/_delta_log"))
    newest = max((file.version for file in found if file.is_entry), default=-1)
    if newest < max((file.version for file in found if file.is_checkpoint), default=0):
        return None
    last = newest if version is None else version
    known = (file for file in found if file.kind == CHECKPOINT and file.version <= last)
    return last, max(known, key=lambda file: file.version, default=None)


def _described(files: Files, name: str) -> dict[str, dict[str, Any]]:
    """What a checkpoint says of the table itself; nothing when it cannot be read."""
    try:
        with files.open(name) as source, pq.ParquetFile(source) as checkpoint:
            rows = checkpoint.read(columns=list(_OF_CHECKSUM)).to_pylist(maps_as_pydicts="strict")
    except (FileNotFoundError, pa.ArrowException):
        return {}
    actions = {kind: row[kind] for row in rows for kind in _OF_CHECKSUM if row.get(kind) is not None}
    return {kind: {name: each for name, each in said.items() if each is not None} for kind, said in actions.items()}


def _checkpointed(files: Files, name: str) -> dict[str, dict[str, Any]] | None:
    """The files that a checkpoint names, by their decoded paths; None when it lacks some of these fields."""
    try:
        with files.open(name) as source, pq.ParquetFile(source) as checkpoint:
            names = {checkpoint.schema.column(number).path for number in range(len(checkpoint.schema))}
            if "add.stats" not in names:
                return None
            held: dict[str, dict[str, Any]] = {}
            for action in _adds(checkpoint, [f"add.{each}" for each in _FIELDS] + [_ELSEWHERE] * (_ELSEWHERE in names)):
                if action.get("sidecar") or not _of_whole_files([action]):
                    return None
                follow(held, [action], _kept_fields)
            return held
    except (FileNotFoundError, pa.ArrowException):
        return None


def _adds(checkpoint: pq.ParquetFile, columns: list[str]) -> Iterator[dict[str, Any]]:
    for batch in checkpoint.iter_batches(columns=columns):
        for action in batch.to_pylist(maps_as_pydicts="strict"):
            yield {name: value for name, value in action.items() if value is not None}


def follow(held: dict[str, T], actions: Iterable[Mapping[str, Any]], kept: Callable[[Mapping[str, Any]], T]) -> None:
    """Take out the files that a version removes, and in those that it adds, by decoded path, with what is kept of each.

    A version may take a file out and put it in again; the order of its actions says nothing.
    """
    for action in sorted(actions, key=lambda each: "add" in each):
        if "add" in action:
            held[unquote(action["add"]["path"])] = kept(action["add"])
        elif "remove" in action:
            held.pop(unquote(action["remove"]["path"]), None)


def _kept_fields(added: Mapping[str, Any]) -> dict[str, Any]:
    return {name: added.get(name) for name in _FIELDS}


def _of_whole_files(actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether no action takes single rows out of a file, or put them in again."""
    return not any(each.get(kind, {}).get("deletionVector") for each in actions for kind in ("add", "remove"))
