"""Appends to a Delta table in two steps: files first, which nobody sees, then the version that names them.

Spark's own append plans, checks, writes and refreshes in one go, and most of its time is none of the writing. Here the
files are written by Spark as plain Parquet, or by the driver when they are small, and a version is one small file in
the log, added by Delta's own log store. What lies between the two steps may be long: files prepared ahead of time
become visible in milliseconds. A file that no version names is nobody's, and VACUUM takes it in the end.

An append contradicts no other commit, so a lost race for a version is run again. What Delta checks of an append is
checked here: that required columns hold no NULL (`pipeline.delta.writing.footers`), and that the table asks nothing of
its writers that we do not know; a table that was changed so is refused, at the start or at the next commit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.errors import UnknownTableFeature
from pipeline.config.lazyspark import F
from pipeline.config.wallclock import wall_ms
from pipeline.delta.logs import entries
from pipeline.delta.logs.checksums import ADDING, CARRIED, checksum, put_checksum
from pipeline.delta.logs.features import unknown
from pipeline.delta.logs.logstore import Head, TableLog
from pipeline.delta.logs.restored import refuse_restored
from pipeline.delta.writing.datafiles import DataFile, rows, size_of
from pipeline.delta.writing.footers import missing, statistics
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.hadoop import session_files
from schemas import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger(__name__)
_NO_FILES: Mapping[str, int] = {}
_TAIL = 1 << 16
"""Bytes read from the end of a file: the footer of a few row groups."""
_EVERY = 10
"""Delta's default for the versions between two checkpoints."""
_VERSION_ROWS, _RAREST = 64, 500
"""A version pays for so many rows of a checkpoint, which names each file. At most so many versions come without one."""
_WRITERS, _READERS = 4, 16
"""Threads that write files here (encoding and compression hold no lock of Python's), and that read footers."""
_HELD_BYTES = 128 << 20
"""Of pieces that wait for being written together."""
_GROUP_ROWS, _GROUP_BYTES, _GROUPS = 8_192, 8 << 20, 64
"""Rows and bytes of a row group, and how many rows make more groups than that. Who looks for a few rows reads a whole
group, and the footer, which names them all."""
SMALL_GROUPS = {"parquet.block.size": str(_GROUP_BYTES), "parquet.page.size.row.check.min": "10"}
"""For Spark, which counts bytes only, before they are compressed, and looks at them after so many rows: with its own
100 rows of 5 MB it would hold half a gigabyte."""
_WRITTEN = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false", **SMALL_GROUPS}


class Appender:
    """Writes to one table. Knows its newest version, as far as it has looked."""

    def __init__(
        self,
        session: SparkSession | None,
        path: str,
        table: Table,
        guard: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """Look at the table once.

        Args:
            session: for what this process cannot reach; None: it reaches all.
            path: the folder of the table.
            table: its contract.
            guard: told the `userMetadata` of each version that somebody else adds from now on; what it raises ends the
                commit that was to follow.

        Raises:
            UnknownTableFeature: it asks something of its writers that we do not know.
        """
        self._files, self._path, self._table, self._guard = session_files(session), path, table, guard
        self._folder = self._files.local(path)
        self._ours, self._checksum = "", (-1, dict[str, Any]())
        self._log = TableLog(session, path)
        head = self._log.head()
        self._version = self._checkpointed = head.version
        check_features(table.name, head)
        self._every, self._checkpoint_rows = _interval(head), 0

    def open(self) -> None:
        """Have what the first commit needs, so that it does not wait for it."""
        self._log.open()

    def write(self, frame: DataFrame) -> list[DataFile]:
        """Write rows, in the order of the frame's partitions; nobody sees them yet."""
        folder = uuid4().hex
        self._columns(frame).write.options(**_WRITTEN).parquet(f"{self._path}/{folder}")
        return self._written(folder)

    def write_by(self, frame: DataFrame, column: str) -> dict[int, list[DataFile]]:
        """Write rows to files of their own for each value of a whole-number column, which is no column of the table.

        Rows must be sorted by it within each partition.
        """
        folder = uuid4().hex
        rows = self._columns(frame, column)
        rows.write.options(**_WRITTEN).partitionBy(column).parquet(f"{self._path}/{folder}")
        parts = sorted((int(name.partition("=")[2]), name) for name in self._files.folders(f"{self._path}/{folder}"))
        return {value: files for value, name in parts if (files := self._written(f"{folder}/{name}"))}

    def put(self, rows: pa.Table | Iterable[pa.Table]) -> list[DataFile]:
        """Write rows of this process, in one file, or one for each piece that is not empty; no job runs.

        A few pieces are held at once, however many there are. One alone is written without a thread, which costs more.
        """
        folder, count, pieces = uuid4().hex, 0, [rows] if isinstance(rows, pa.Table) else rows
        files: list[DataFile] = []
        try:
            with ThreadPoolExecutor(_WRITERS) as pool:
                for few in _a_few(piece for piece in pieces if piece.num_rows):
                    # A batch of Spark's knows a file by its name alone (`input_file_name`).
                    names = [f"{folder}/part-{count + place:05d}-{folder}.parquet" for place in range(len(few))]
                    count += len(few)
                    files += filter(None, (map if len(few) == 1 else pool.map)(self._put_one, names, few))
        except BaseException:
            # A disk that is full would be fuller with each attempt.
            self._files.delete_folder(f"{self._path}/{folder}")
            raise
        return self._written(folder) if count and not files else files

    def _put_one(self, name: str, piece: pa.Table) -> DataFile | None:
        """Write one file; what a version says of it, where it would have to be fetched again to know that."""
        schema = arrow_schema(self._table.columns)
        rows = piece.select(schema.names).cast(schema)
        if self._folder is not None:
            (self._folder / name).parent.mkdir(exist_ok=True)
            _write(rows, self._folder / name)
            return None
        sink = pa.BufferOutputStream()
        _write(rows, sink)
        data = sink.getvalue().to_pybytes()
        self._files.write(f"{self._path}/{name}", data)
        return self._of_bytes(name, data)

    def _of_bytes(self, name: str, data: bytes) -> DataFile:
        tail = data[-max(_TAIL, missing(data[-_TAIL:])) :]
        return DataFile(name, len(data), wall_ms(), *statistics(tail, self._table.name, self._table.columns))

    def discard(self, files: Iterable[DataFile]) -> None:
        """Delete what `write` or `put` gave and no version names: a disk that is full would be fuller each time."""
        for folder in {file.path.partition("/")[0] for file in files}:
            self._files.delete_folder(f"{self._path}/{folder}")

    def commit(self, files: Iterable[DataFile], metadata: str, gone: Mapping[str, int] = _NO_FILES) -> int:
        """Make files visible, in this order, by one version; give its number.

        Args:
            files: what `write` gave, here or in a process that died since.
            metadata: the commit's `userMetadata`.
            gone: sizes in bytes of files that go by the same version, by their paths; nobody else takes files out of
                the table.

        Raises:
            UnknownTableFeature: the table was changed meanwhile.
            TableRestored: somebody has restored it meanwhile.
        """
        files = list(files)
        info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": not gone}
        counts = {"numFiles": len(files), "numOutputRows": rows(files), "numOutputBytes": size_of(files)}
        actions = [*removals(gone, changes=True), *(file.action for file in files)]
        lines = self._lines(info | {"userMetadata": metadata}, counts, actions)
        grown = len(files) - len(gone), size_of(files) - sum(gone.values())
        # Each look at the log of a store is a request: somebody else's version shows when ours is in its way.
        while not self._add(self._version, lines, *grown):
            self.newest()
        return self._version

    def replace(
        self,
        seen: int,
        old: Mapping[str, int],
        files: Sequence[DataFile],
        tags: Mapping[str, str],
        *,
        fewer: bool = False,
    ) -> bool:
        """Put files in the place of others, by one version. Appends that come meanwhile are not in its way.

        Args:
            seen: a version that has the others.
            old: their sizes in bytes, by their paths as the log spells them.
            files: what `write` gave.
            tags: what the log says of the new files.
            fewer: rows were left out; else they are the same, which is no news to a reader.

        Returns:
            False when one of the others had been taken out before, or nobody can tell, or one of the new ones is gone;
            then nothing is changed.

        Raises:
            UnknownTableFeature: the table was changed meanwhile.
        """
        actions = removals(old, changes=fewer)
        actions += [{"add": {**file.action["add"], "dataChange": fewer, "tags": dict(tags)}} for file in files]
        info = {
            "operation": "DELETE" if fewer else "OPTIMIZE",
            "operationParameters": {"predicate": "[]"},
            "isBlindAppend": False,
        }
        counts = {"numAddedFiles": len(files), "numRemovedFiles": len(old)}
        lines = self._lines(info, counts, actions)
        while True:
            newest = self.newest()
            if not entries.reaches_back(self._files, self._path, seen):
                return False
            for version in range(seen + 1, newest + 1):
                replaced = entries.actions(self._files, self._path, version)
                if any(each["remove"]["path"] in old for each in replaced if "remove" in each):
                    return False
            seen = newest
            if not all(self._files.has(f"{self._path}/{file.path}") for file in files):
                return False
            if self._add(newest, lines, len(files) - len(old), size_of(files) - sum(old.values())):
                return True

    def _lines(
        self, info: Mapping[str, Any], counts: Mapping[str, int], actions: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        """The actions of a version, as its file has them."""
        self._ours = str(uuid4())
        header = {"timestamp": wall_ms(), **info, "engineInfo": "delayline", "txnId": self._ours}
        header["operationMetrics"] = {name: str(count) for name, count in counts.items()}
        return [json.dumps(each) for each in ({"commitInfo": header}, *actions)]

    def _add(
        self, newest: int, lines: Sequence[str], files: int, size: int, metadata: Mapping[str, Any] | None = None
    ) -> bool:
        """Add a version after the newest one, with so many more files and bytes; False when somebody else has."""
        with ADDING[self._path]:
            # A store may say that a version is there because it has just put it there, at the first of two attempts.
            if not self._log.add(newest + 1, lines) and not self._is_ours(newest + 1):
                return False
            self._version = newest + 1
            self._note_checksum(files, size, {} if metadata is None else {"metadata": metadata})
        return True

    def describe(self, seen: int, metadata: Mapping[str, Any]) -> bool:
        """Say what the table is from now on (a `metaData` action), as the version after one that was seen.

        Returns:
            False when somebody else has added that version; then nothing is changed.
        """
        info = {"operation": "ADD COLUMNS", "operationParameters": {}, "isBlindAppend": False}
        return self._add(seen, self._lines(info, {}, [{"metaData": metadata}]), 0, 0, metadata)

    def newest(self) -> int:
        """The newest version. Looks at the versions since the last look, which others have added."""
        found = entries.newest(self._files, self._path, self._version)
        if entries.reaches_back(self._files, self._path, self._version):
            versions = [
                (version, entries.actions(self._files, self._path, version))
                for version in range(self._version + 1, found + 1)
            ]
            for _, actions in versions:
                self._notice(actions)
            refuse_restored(self._files, self._path, self._table, versions)
        else:
            # Cut up to a version behind the last one that we know: all that is left is others'.
            self._take_note()
            for actions in entries.commits(self._files, self._path, found):
                self._guard(entries.metadata(actions))
        self._version = found
        return found

    def checkpoint(self) -> None:
        """Write a checkpoint of the log when enough versions have come since the last one.

        Those are the table's interval, and more when the last one that was written here is large (decision 0070).
        """
        step = max(self._every, min(self._checkpoint_rows // _VERSION_ROWS, _RAREST))
        if self._version // step > self._checkpointed // step:
            self._checkpointed = self._version
            with _optional(f"the checkpoint of {self._table.name}"):
                self._checkpoint_rows = self._log.checkpoint()

    def _columns(self, frame: DataFrame, *more: str) -> DataFrame:
        return frame.select(*(F.col(each.name).cast(each.dataType) for each in self._table.schema.fields), *more)

    def _written(self, folder: str) -> list[DataFile]:
        """The files of a folder of the table, by name, less empty ones; from now on they outlast a power cut."""
        found = sorted(self._files.sizes(f"{self._path}/{folder}").items())
        parquet = [(f"{folder}/{name}", *footer) for name, footer in found if name.endswith(".parquet")]
        files = self._data_files(parquet)
        self._files.sync(*(f"{self._path}/{file.path}" for file in files))
        above = folder.split("/")
        self._files.sync(*("/".join([self._path, *above[:depth]]) for depth in range(len(above), -1, -1)))
        return [file for file in files if file.rows]

    def _data_files(self, found: Sequence[tuple[str, int, int]]) -> list[DataFile]:
        """What a version says of files. Each task of a cluster has written one, and in a store each is a request."""
        if len(found) <= _WRITERS:
            return [self._data_file(*each) for each in found]
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(lambda each: self._data_file(*each), found))

    def _data_file(self, path: str, size: int, modified: int) -> DataFile:
        whole = f"{self._path}/{path}"
        tail = self._files.tail(whole, size, _TAIL)
        if more := missing(tail):
            tail = self._files.tail(whole, size, more)
        return DataFile(path, size, modified, *statistics(tail, self._table.name, self._table.columns))

    def _notice(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """A version that somebody else added: what it changes of the table must be something we know."""
        self._guard(entries.metadata(actions))
        if entries.changes_table(actions):
            self._take_note()

    def _take_note(self) -> None:
        head = self._log.head()
        check_features(self._table.name, head)
        self._every = _interval(head)

    def _is_ours(self, version: int) -> bool:
        actions = entries.entry(self._files, self._path, version) or ()
        return any(each["commitInfo"].get("txnId") == self._ours for each in actions if "commitInfo" in each)

    def _note_checksum(self, files: int, size: int, changed: Mapping[str, Any]) -> None:
        """Carry on Delta's checksum beside the log: who has it need not read the log back to its checkpoint."""
        with _optional(f"the checksum of {self._table.name}"):
            version, known = self._checksum
            last = known if version == self._version - 1 else checksum(self._files, self._path, self._version - 1)
            if last is None:
                return
            kept = {name: last[name] for name in CARRIED if name in last} | dict(changed)
            grown = {"numFiles": last["numFiles"] + files, "tableSizeBytes": last["tableSizeBytes"] + size}
            put_checksum(self._files, self._path, self._version, kept | grown)
            self._checksum = self._version, kept | grown


def removals(files: Mapping[str, int], *, changes: bool) -> list[dict[str, Any]]:
    """The actions that take files out, by path as the log spells it, with their sizes."""
    out = {"deletionTimestamp": wall_ms(), "dataChange": changes, "extendedFileMetadata": True, "partitionValues": {}}
    return [{"remove": {"path": path, "size": size, **out}} for path, size in files.items()]


def check_features(table: str, head: Head) -> None:
    """Refuse a table that asks for more than plain files with plain statistics.

    Raises:
        UnknownTableFeature: it does.
    """
    metadata = head.metadata
    found = unknown(head.protocol, metadata.get("partitionColumns") or (), metadata.get("configuration") or {})
    if found is not None:
        raise UnknownTableFeature(table, *found)


def _a_few(pieces: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    """Pieces that are written at once: as many as there are writers, but no more than `_HELD_BYTES` and one."""
    few: list[pa.Table] = []
    for piece in pieces:
        few.append(piece)
        if len(few) == _WRITERS or sum(each.nbytes for each in few) > _HELD_BYTES:
            yield few
            few = []
    if few:
        yield few


def _write(rows: pa.Table, where: Path | pa.BufferOutputStream) -> None:
    """A Parquet file, with the index by which readers pass over pages; dictionaries do not pay for bytes."""
    repeated = [each.name for each in rows.schema if not pa.types.is_binary(each.type)]
    most = max(_GROUP_ROWS, -(-rows.num_rows // _GROUPS))
    count = max(1, min(most, rows.num_rows * _GROUP_BYTES // max(1, rows.nbytes)))
    pq.write_table(
        rows, where, coerce_timestamps="us", use_dictionary=repeated, write_page_index=True, row_group_size=count
    )


def _interval(head: Head) -> int:
    """Versions between two checkpoints of the table's log."""
    return int(head.metadata.get("configuration", {}).get("delta.checkpointInterval", _EVERY))


@contextmanager
def _optional(what: str) -> Iterator[None]:
    """What readers are faster with and right without: it may not end a stage after a commit that is good."""
    try:
        yield
    except OSError as error:
        _LOG.warning("%s was not written: %s", what, error)
    except Exception:  # noqa: BLE001 - whatever it is
        _LOG.exception("%s was not written", what)
