"""What waits in the inbox: the rows after the place up to which ingest has taken it, counted from logs alone.

Retention deletes rows of the inbox, of `messages` and of rejected ones, each at its own time, so their numbers say
nothing about each other. But each commit of ingest notes the place, and the log of the inbox reaches back to it.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from pipeline.delta.deltars import files_of, log_of, open_table, path_of
from pipeline.delta.filestats import count
from schemas import INBOX, MESSAGES, REJECTED_INGEST, SEGMENTS, Table

Place = tuple[int, int]
"""A version of the inbox and the last file of it that was taken; -1: none."""


def in_inbox(root: str) -> int:
    """How many rows of the inbox ingest has neither accepted nor rejected yet.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The place first: what is taken meanwhile was in the inbox before.
    version, index = max(_taken(root, table) for table in (MESSAGES, REJECTED_INGEST, SEGMENTS))
    return sum(rows for number, place, rows in _appended(root, version) if number > version or place > index)


def _taken(root: str, table: Table) -> Place:
    """The place in the last note of ingest on a table; before everything when there is none."""
    files = files_of(root, table)
    for version in range(open_table(root, table).version(), -1, -1):
        for action in log_of(files, version, path_of(root, table)) or []:
            note = _note(action.get("commitInfo", {}).get("userMetadata"))
            if note is not None:
                return note["source"][0], note["source"][1]
    return 0, -1


def _note(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found["note"] if isinstance(found, dict) and found.get("stage") == "ingest" else None


def _appended(root: str, first: int) -> Iterator[tuple[int, int, int]]:
    """Version, place and rows of each file appended to the inbox from a version on, as a stream of it sees them."""
    files = files_of(root, INBOX)
    for version in range(first, open_table(root, INBOX).version() + 1):
        log = log_of(files, version, path_of(root, INBOX)) or []
        if not any(line["remove"].get("dataChange") for line in log if "remove" in line):
            adds = (line["add"] for line in log if "add" in line)
            for place, add in enumerate(add for add in adds if add["dataChange"]):
                yield version, place, _rows(files, add)


def _rows(files: pa.fs.PyFileSystem, add: dict[str, Any]) -> int:
    """The rows of a file by its statistics, or by its footer when its writer left them out; 0 when it is gone."""
    known: int | None = count(add.get("stats"))
    if known is None:
        with suppress(FileNotFoundError), files.open_input_file(unquote(add["path"])) as file:
            known = pq.read_metadata(file).num_rows
    return known or 0
