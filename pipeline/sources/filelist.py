"""Spark's list of the files that its stream of a folder has taken, in the checkpoint of the query, in Spark's own form.

Spark adds an entry for each batch with files. Each tenth entry has all before it, too, and the stream holds all names
in memory. It forgets a file by its time only, which says nothing of when it came. So between two queries the names go
of those files that are gone themselves: both grow no longer than the folder does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from urllib.parse import unquote

from pipeline.delta.checkpoints import Checkpoint
from pipeline.storage.files import Files

_LOG = logging.getLogger(__name__)
_FOLDER, _WHOLE = "sources/0", ".compact"


def files_between(checkpoint: Checkpoint, begin: int, end: int) -> list[str]:
    """The files behind an entry of the list up to another one, as Spark spells them."""
    found = dict[str, None]()
    for number in range(begin + 1, end + 1):
        for name in (f"{number}", f"{number}{_WHOLE}"):
            entries = _entries(checkpoint.text(f"{_FOLDER}/{name}") or "")
            found |= {path: None for _, path, batch in entries if begin < batch <= end}
    return list(found)


def forget_gone(files: Files, checkpoint: Checkpoint) -> int:
    """Take files out of the list that are not there any more; give how many. No query may run.

    When none of them is there, all stay: the folder may be what is away. So it is with those of a folder below it that
    is empty, or cannot be listed. A file may be put there again under its name once it is forgotten.
    """
    names = files.names(f"{checkpoint.path}/{_FOLDER}")
    whole = max((int(name.removesuffix(_WHOLE)) for name in names if name.endswith(_WHOLE)), default=None)
    if whole is None:
        return 0
    path = f"{checkpoint.path}/{_FOLDER}/{whole}{_WHOLE}"
    text = files.text(path)
    there = dict[str, set[str] | None]()
    kept, gone, any_there = text.splitlines()[:1], 0, False
    for line, file, batch in _entries(text):
        folder, _, name = unquote(file).rpartition("/")
        if folder not in there:
            there[folder] = _names(files, folder)
        found = there[folder]
        any_there = any_there or (found is not None and name in found)
        # Spark may take the last entry once more.
        if found is None or name in found or batch >= whole - 1:
            kept.append(line)
        else:
            gone += 1
    if not any_there or not gone:
        return 0
    files.write(path, "\n".join(kept))
    _LOG.info("%s: %d files are gone, and forgotten", checkpoint.path, gone)
    return gone


def _names(files: Files, folder: str) -> set[str] | None:
    """The names in a folder; None: it is empty, or the nearest one that is there is, as where no disk is mounted."""
    try:
        if found := files.names(folder):
            return set(found)
        while not files.exists(folder):
            folder = folder.rpartition("/")[0]
        return set() if files.names(folder) else None
    except OSError:
        return None


def _entries(text: str) -> Iterator[tuple[str, str, int]]:
    """The lines of an entry behind its version: each with its path and its number."""
    for line in text.splitlines()[1:]:
        entry = json.loads(line)
        yield line, entry["path"], entry["batchId"]
