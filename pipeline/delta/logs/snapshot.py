"""The files of a table as its log has them: the last checkpoint, and the entries after it. No job runs.

Delta rebuilds the same by a job of Spark's for each version that is asked for, which takes a tenth of a second of a CPU
however few files there are.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.logs.entries import entry
from pipeline.delta.logs.logfiles import CHECKPOINT, log_files
from pipeline.storage.files import Files

_TOLD = ("path", "size", "stats", "tags", "deletionVector")
"""What is told of a file."""
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
    readable = files.readable(path)
    if readable is None:
        return None
    found = log_files(files.names(f"{path}/_delta_log"))
    newest = max((file.version for file in found if file.is_entry), default=-1)
    if newest < max((file.version for file in found if file.is_checkpoint), default=0):
        return None
    last = newest if version is None else version
    known = (file for file in found if file.kind == CHECKPOINT and file.version <= last)
    begin = max(known, key=lambda file: file.version, default=None)
    held = {} if begin is None else _checkpointed(files, f"{path}/_delta_log/{begin.name}")
    if held is None:
        return None
    for each in range(0 if begin is None else begin.version + 1, last + 1):
        actions = entry(files, path, each)
        if actions is None or not _follow(held, actions):
            return None
    return last, list(held.values())


def _checkpointed(files: Files, name: str) -> dict[str, dict[str, Any]] | None:
    """The files that a checkpoint names, by their decoded paths; None when it does not say all that is told of them."""
    try:
        with files.open(name) as source, pq.ParquetFile(source) as checkpoint:
            names = {checkpoint.schema.column(number).path for number in range(len(checkpoint.schema))}
            if "add.stats" not in names:
                return None
            held: dict[str, dict[str, Any]] = {}
            for action in _adds(checkpoint, [f"add.{each}" for each in _TOLD] + [_ELSEWHERE] * (_ELSEWHERE in names)):
                if action.get("sidecar") or not _follow(held, [action]):
                    return None
            return held
    except (FileNotFoundError, pa.ArrowException):
        return None


def _adds(checkpoint: pq.ParquetFile, columns: list[str]) -> Iterator[dict[str, Any]]:
    for batch in checkpoint.iter_batches(columns=columns):
        for action in batch.to_pylist(maps_as_pydicts="strict"):
            yield {name: told for name, told in action.items() if told is not None}


def _follow(held: dict[str, dict[str, Any]], actions: list[dict[str, Any]]) -> bool:
    """Take the files in that a version adds, and out that it removes; whether only whole files are named."""
    # A version may take a file out and put it in again; the order of its actions says nothing.
    for action in sorted(actions, key=lambda each: "add" in each):
        kind = "add" if "add" in action else "remove"
        told: Mapping[str, Any] = action.get(kind) or {}
        if told.get("deletionVector"):
            return False
        if kind == "add":
            held[unquote(told["path"])] = {name: told.get(name) for name in _TOLD}
        elif told:
            held.pop(unquote(told["path"]), None)
    return True
