"""What was sent and ingest has not taken yet: the files of `inbox` behind the place that ingest has noted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pipeline.client.tables.datarows import data_file
from pipeline.config.stages import INGEST
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset
from pipeline.delta.deltars import open_table, path_of
from pipeline.delta.logs.entries import between, last_note, oldest
from pipeline.storage.files import Files
from schemas import INBOX, MESSAGES, REJECTED_INGEST, SEGMENTS, Table


def untaken(root: str, upto: int | None = None) -> list[dict[str, Any]]:
    """The files of the inbox that ingest has not taken yet, as the log has them, with `path` decoded.

    Args:
        root: the warehouse.
        upto: the version of the inbox that is looked at; None: the newest one.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    # The place first: what is taken meanwhile was in the inbox before.
    files, path = Files(), path_of(root, INBOX)
    begin = max(_taken(files, root, table) for table in (MESSAGES, REJECTED_INGEST, SEGMENTS))
    end = (sent(root) if upto is None else upto) + 1, EVERYTHING_BEFORE
    if begin >= end:
        return []
    found = between(files, path, begin, end)
    if found is None:
        # Somebody cut the log behind the place: what is left of it is counted.
        first = oldest(files, path)
        found = between(files, path, max(begin, (first, EVERYTHING_BEFORE)), end)
    return found or []


def sent(root: str) -> int:
    """The newest version of the inbox.

    Raises:
        NoWarehouse: the folder has no inbox.
    """
    return open_table(root, INBOX).version()


def is_under_way(root: str, topics: Collection[str], upto: int) -> bool:
    """Whether ingest has yet to take messages of some topics that the inbox had at a version, as far as its log knows.

    Raises:
        NoWarehouse: the folder lacks a table.
    """
    files = [data_file(each) for each in untaken(root, upto)]
    return any(file.may_hold({"topic": topic}) for file in files for topic in topics)


def _taken(files: Files, root: str, table: Table) -> Offset:
    """The place in the last note of ingest on a table; before everything when there is none."""
    last = last_note(files, path_of(root, table), INGEST, open_table(root, table).version())
    return (0, EVERYTHING_BEFORE) if last is None else (last.note["source"][0], last.note["source"][1])
