"""Layout: many small files become a few, and messages that are due together lie together.

Rows stay as they are and no row is news to a reader: such commits change no data. They conflict with no append, so they
are made beside the stages; whoever reads an older version goes on reading its files, which stay for a while.
"""

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from pyspark.sql import DataFrame

from pipeline.config.deltaspark import DeltaTable
from pipeline.config.paths import is_s3
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import DAY_MS
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs.entries import commits, newest, rows_of
from pipeline.delta.logs.filestats import count as counted
from pipeline.delta.logs.filestats import first_ms, last_ms, span_ms
from pipeline.delta.reading.files import LiveFiles
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.appender import SMALL_GROUPS
from pipeline.maintenance.readers import unread
from pipeline.maintenance.rewrite import Rewriting
from schemas import CONSUMER_EVENTS, INBOX, MESSAGES, Table

_MIB = 1 << 20
_SMALL_BYTES = 16 * _MIB
"""Smaller files are merged in a round."""
_FILE_BYTES, _PIECE_BYTES = 64 * _MIB, 1 << 30
"""Of a file that is written, and of those that are sorted at once."""
_GATHERED = 16
"""So many small files are merged as they come."""
OPTIMIZE = {
    # Larger files are left alone: their rows were sorted by due time when they were written, and stay together.
    "spark.databricks.delta.optimize.minFileSize": str(_SMALL_BYTES),
    "spark.databricks.delta.optimize.maxFileSize": str(_FILE_BYTES),
    **SMALL_GROUPS,
}
_AGES = {INBOX.name: "publish_time", CONSUMER_EVENTS.name: "at"}
"""The times by which whole files go of tables that others write."""
_OPENED = 8
"""Clustering waits until a release would open more files than that."""
RUN = "delayline.run"
"""The tag of files that were sorted together."""

_LEAVE_IN_ORDER = ("CREATE TABLE", "OPTIMIZE")

_LOG = logging.getLogger(__name__)
Merged = tuple[int, int]
"""How many files became how many; both 0 when there was nothing to do."""


def is_new(warehouse: Warehouse, table: Table) -> bool:
    """Whether anything was written to a table since it was made or laid out. One look at its log."""
    files, path = warehouse.files, warehouse.path(table)
    last = next(commits(files, path, newest(files, path)))
    return not any(each["commitInfo"].get("operation") in _LEAVE_IN_ORDER for each in last if "commitInfo" in each)


def compact(warehouse: Warehouse, table: Table) -> Merged:
    """Merge small files (under 16 MiB) into files of up to 64 MiB; `spark` has the settings `OPTIMIZE`.

    Those of `messages` are sorted, so that files of messages that are due together lie together.

    What a stage has yet to read stays as it is, however long the stage stands still: a file that is part of its table
    no VACUUM takes away, whatever hours it is given. Delta's own OPTIMIZE, for tables that are not what we made them
    as, does not know that; what it takes out stays for `delta.deletedFileRetentionDuration`.
    """
    try:
        known = Rewriting.of(warehouse, table)
        ahead = unread(warehouse, table)
        return (0, 0) if ahead is None else _merged(known, ahead.files)
    except NotInDriver:
        if is_s3(warehouse.root):
            # Delta's own commit would replace one that a producer has just made (decision 0024).
            _LOG.warning("files of %s are left as they are: the table is not what it was made as", table.name)
            return 0, 0
        if unread(warehouse, table) is None:
            return 0, 0
        return _counts(DeltaTable.forPath(warehouse.spark, warehouse.path(table)).optimize().executeCompaction())


def _merged(table: Rewriting, ahead: Collection[str]) -> Merged:
    merged, into = 0, 0
    ready = (file for file in table.files if file["size"] < _SMALL_BYTES and file["path"] not in ahead)
    files = [file for file in ready if _ages(table.table, file)]
    if rows_of(files) is None:
        raise NotInDriver
    for small in together(files):
        sizes = {file["path"]: file["size"] for file in small}
        try:
            fresh = table.write(list(sizes))
        except NotInDriver:
            fresh = table.write_by_spark(list(sizes), 1)
        if not table.put_in_place(sizes, rows_of(small) or 0, fresh, {}):
            break
        merged, into = merged + len(small), into + len(fresh)
    return merged, into


class SmallFiles:
    """Files of `messages` that have come since they were looked at last: merged when they are many.

    No job runs but for the first look, and an append is not in the way (`Rewriting`): what Spark would have to do
    is left to the round, and so are tables that only Spark reaches.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        """Nothing is looked at yet; what is there already counts as having come."""
        self._warehouse = warehouse
        is_read = warehouse.files.readable(warehouse.path(MESSAGES)) is not None
        self._live = LiveFiles(warehouse, MESSAGES, _if_small) if is_read else None
        self._next, self._most = 0, _FILE_BYTES

    def merge(self) -> Merged:
        """Merge some of them into one if there are sixteen, but no more than 64 MiB; how many became how many."""
        if self._live is None:
            return 0, 0
        version, files = self._live.look()
        chosen = gathered([file for file in files.values() if file is not None], self._most)
        if not chosen or version < self._next:
            return 0, 0
        # What fails is not tried again at the next look, but when as many have come again.
        self._next = version + _GATHERED
        try:
            done = self._merged(version, chosen)
        except NotInDriver:
            _LOG.info("%d small files of messages are left to the round", len(chosen))
            return 0, 0
        if done[0]:
            self._next, self._most = 0, min(2 * self._most, _FILE_BYTES)
        return done

    def _merged(self, version: int, chosen: Sequence[Mapping[str, Any]]) -> Merged:
        sizes, count = {file["path"]: file["size"] for file in chosen}, rows_of(chosen)
        if count is None:
            raise NotInDriver
        table = Rewriting.at(self._warehouse, MESSAGES, version, chosen)
        try:
            fresh = table.write(list(sizes))
        except NotInDriver:
            # They may unfold to more than is held at once.
            self._most = max(self._most // 2, _MIB)
            raise
        return (len(chosen), len(fresh)) if table.put_in_place(sizes, count, fresh, {}) else (0, 0)


def gathered(files: Sequence[Mapping[str, Any]], most_bytes: int) -> list[Mapping[str, Any]]:
    """Files that become one as they come, the smallest first, up to so many bytes; none while they are few.

    One that is larger than all smaller ones together waits for more of them, and one of half of the bytes is none of
    them: a byte is written anew each time that the file in which it lies doubles.
    """
    small = (file for file in files if file["size"] < most_bytes // 2)
    chosen = sorted(small, key=lambda file: file["size"])
    total = sum(file["size"] for file in chosen)
    while chosen and 2 * chosen[-1]["size"] > total:
        total -= chosen.pop()["size"]
    if len(chosen) < _GATHERED:
        return []
    sizes = np.cumsum([file["size"] for file in chosen])
    return chosen[: int(np.searchsorted(sizes, most_bytes, side="right"))]


def _ages(table: Table, file: Mapping[str, Any]) -> bool:
    """Whether a file that others wrote will ever be old enough to go: its neighbours would have to stay with it."""
    column = _AGES.get(table.name)
    return column is None or last_ms(file["stats"], column, math.inf) < wall_ms() + DAY_MS


def _if_small(file: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry of a file in the log, if it is to be merged as it comes; one that was sorted into others is not."""
    return dict(file) if file["size"] < _FILE_BYTES // 2 and RUN not in (file.get("tags") or {}) else None


def together(files: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Files that become one: at least two, up to 64 MiB, whose first due times, where they have some, are near."""
    found, size = list[Mapping[str, Any]](), 0
    for file in sorted(files, key=lambda each: first_ms(each["stats"], "due_time", 0)):
        if found and size + file["size"] > _FILE_BYTES:
            if len(found) > 1:
                yield found
            found, size = [], 0
        found, size = [*found, file], size + file["size"]
    if len(found) > 1:
        yield found


@dataclass(frozen=True)
class LaidOut:
    """A file of `messages`, as it lies in the table.

    Attributes:
        path: as the log spells it.
        size: bytes.
        rows: how many it holds.
        run: files of one run were sorted together, so a due time is in one of them; others are a run each.
        first: the first due time in it, ms UTC.
        last: the last one.
    """

    path: str
    size: int
    rows: int
    run: str
    first: int
    last: int

    @classmethod
    def of(cls, file: Mapping[str, Any]) -> "LaidOut | None":
        """From its action in the log; None when that does not say how many rows it has, and which due times."""
        rows, tags = counted(file["stats"]), file["tags"] or {}
        try:
            first, last = span_ms(file["stats"], "due_time")
        except KeyError:
            return None
        return None if rows is None else cls(file["path"], file["size"], rows, tags.get(RUN, file["path"]), first, last)


def cluster(warehouse: Warehouse, after: int, most_bytes: int) -> Merged:
    """Sort files of `messages` into one another where a release would open many.

    Messages that are due soon after they came lie together by themselves, and are never sorted.

    Args:
        warehouse: whose `messages`.
        after: what is due before is left as it lies, ms UTC.
        most_bytes: about so many bytes of files are sorted; the others wait for the next round.
    """
    try:
        table = Rewriting.of(warehouse, MESSAGES)
    except NotInDriver:
        _LOG.warning("files of %s are left as they are: the table is not what it was made as", MESSAGES.name)
        return 0, 0
    # What comes meanwhile is the next round's, or there would be no end of it.
    files = [file for file in map(LaidOut.of, table.files) if file is not None]
    merged, into = 0, 0
    while chosen := crowded(files, after, min(most_bytes, _PIECE_BYTES)):
        sizes, tags = {file.path: file.size for file in chosen}, {RUN: uuid4().hex}
        total = sum(sizes.values())
        try:
            fresh = table.write(list(sizes), -(-total // _FILE_BYTES))
        except NotInDriver:
            fresh = table.write_by_spark(list(sizes), -(-total // _FILE_BYTES))
        files = [file for file in files if file not in chosen]
        try:
            if not table.put_in_place(sizes, sum(file.rows for file in chosen), fresh, tags):
                break
        except NotInDriver:
            continue
        laid = (LaidOut.of({**file.action["add"], "tags": tags}) for file in fresh)
        files += [file for file in laid if file is not None]
        merged, into, most_bytes = merged + len(chosen), into + len(fresh), most_bytes - total
    return merged, into


def crowded(files: Sequence[LaidOut], after: int, most_bytes: int) -> list[LaidOut]:
    """The files to be sorted into one another: where most runs overlap, the widest of them first, up to so many bytes.

    None when a release opens a few at most. A file of more than half of the bytes is left alone, and does not count.
    """
    ahead = [file for file in files if file.last >= after and file.size <= most_bytes // 2]
    first, last = (np.array([getattr(file, name) for file in ahead], np.int64) for name in ("first", "last"))
    first = np.maximum(first, after)
    # As many files at least as runs overlap where one begins: those that have begun, less those that have ended.
    begun = np.searchsorted(np.sort(first), first, side="right")
    count = begun - np.searchsorted(np.sort(last), first, side="left")
    deepest, place = _OPENED, None
    for each in np.argsort(-count):
        if count[each] <= deepest:
            break
        there = np.flatnonzero((first <= first[each]) & (last >= first[each]))
        runs = len({ahead[number].run for number in there})
        if runs > deepest:
            deepest, place = runs, there
    if place is None:
        return []
    widest = sorted((ahead[number] for number in place), key=lambda file: file.first - file.last)
    sizes = np.cumsum([file.size for file in widest])
    chosen = widest[: int(np.searchsorted(sizes, most_bytes, side="right"))]
    return chosen if len({file.run for file in chosen}) > 1 else []


def _counts(counts: DataFrame) -> Merged:
    row = counts.first()
    metrics = None if row is None else row["metrics"]
    return (0, 0) if metrics is None else (metrics["numFilesRemoved"], metrics["numFilesAdded"])
