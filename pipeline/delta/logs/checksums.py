"""Delta's version checksums, the `.crc` files beside a log: who has the newest one need not read the log back.

Without it Delta runs a job for each table that is opened, only to learn protocol and columns. Delta-rs writes none.
"""

import json
from collections import defaultdict
from contextlib import suppress
from threading import Lock
from typing import Any

from pipeline.delta.logs import entries
from pipeline.storage.files import Files

CARRIED = ("numMetadata", "numProtocol", "setTransactions", "domainMetadata", "metadata", "protocol")
"""What an append does not change of a checksum; lists and histograms of files are left out."""
ADDING: defaultdict[str, Lock] = defaultdict(Lock)
"""For each path: a version and its checksum are added by one at a time. Who does not find the last one writes none."""


def checksum(files: Files, path: str, version: int) -> dict[str, Any] | None:
    """The checksum of a version; that of an empty table when delta-rs made it. None: nobody knows it."""
    text = files.text_if_there(_file(path, version))
    # A power cut may leave the file empty, or a part of it.
    with suppress(ValueError):
        found: dict[str, Any] = json.loads(text or "")
        return found
    return None if version else _of_empty(files, path)


def put_checksum(files: Files, path: str, version: int, content: dict[str, Any]) -> None:
    """Write the checksum of a version."""
    files.write(_file(path, version), json.dumps(content), lasting=False)


def put_first_checksum(files: Files, path: str) -> None:
    """Write the checksum of a table that delta-rs has made, unless it is there, or nobody knows it.

    It follows from the entry that is there, so it does not matter who made the table.
    """
    if not files.has(_file(path, 0)) and (content := _of_empty(files, path)) is not None:
        # Whoever makes the table at the same moment writes the same one, by the same name.
        with suppress(FileNotFoundError):
            put_checksum(files, path, 0, content)


def _of_empty(files: Files, path: str) -> dict[str, Any] | None:
    """The checksum of version 0; None when it is more than an empty table, or was cut."""
    actions = entries.entry(files, path, 0)
    made = {name: action for each in actions or () for name, action in each.items()}
    if set(made) != {"commitInfo", "protocol", "metaData"}:
        return None
    empty = {"tableSizeBytes": 0, "numFiles": 0, "setTransactions": [], "domainMetadata": []}
    return empty | {"numMetadata": 1, "numProtocol": 1, "metadata": made["metaData"], "protocol": made["protocol"]}


def _file(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.crc"
