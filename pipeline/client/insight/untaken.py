"""What is in the inbox and not taken by ingest yet, told by logs alone."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from pipeline.config.stages import INGEST
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import between, last_note, oldest
from pipeline.delta.logs.filestats import count
from pipeline.storage.files import Files
from schemas import INBOX, MESSAGES, REJECTED_INGEST, SEGMENTS, Table


def in_inbox(root: str) -> int:
    """How many rows of the inbox ingest has neither accepted nor rejected yet, counted from logs alone.

    Retention deletes rows of the inbox, of `messages` and of rejected ones, each at its own time, so their numbers say
    nothing about each other. But each commit of ingest notes the place up to which it has taken the inbox, and the log
    of the inbox reaches back to it.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    files, path = Files(), path_of(root, INBOX)
    return sum(_rows(files, path, file) for file in untaken(root))


def untaken(root: str) -> list[dict[str, Any]]:
    """The files of the inbox that ingest has not taken yet, as the log has them, with `path` decoded.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The place first: what is taken meanwhile was in the inbox before.
    files, path = Files(), path_of(root, INBOX)
    begin = max(_taken(files, root, table) for table in (MESSAGES, REJECTED_INGEST, SEGMENTS))
    end = open_table(root, INBOX).version() + 1, EVERYTHING_BEFORE
    found = between(files, path, begin, end)
    if found is None:
        # Somebody cut the log behind the place: what is left of it is counted.
        first = oldest(files, path)
        found = between(files, path, max(begin, (first, EVERYTHING_BEFORE)), end)
    return found or []


def _taken(files: Files, root: str, table: Table) -> Offset:
    """The place in the last note of ingest on a table; before everything when there is none."""
    last = last_note(files, path_of(root, table), INGEST, open_table(root, table).version())
    return (0, EVERYTHING_BEFORE) if last is None else (last.note["source"][0], last.note["source"][1])


def _rows(files: Files, path: str, added: Mapping[str, Any]) -> int:
    """The rows of a file by its statistics, or by its footer when its writer left them out; 0 when it is gone."""
    known = count(added.get("stats"))
    if known is None:
        with suppress(FileNotFoundError), files.open(f"{path}/{added['path']}") as file:
            known = pq.read_metadata(file).num_rows
    return known or 0
