"""One source at work: a query of Spark's, begun again when it ends, and its batches.

A broker that is away ends the query after some seconds. It is begun again after a pause, where the last commit says, as
often as it takes; the stages know nothing of it.

A batch appends rows to `inbox`, and notes how far the source was read, in one commit. That commit is all that counts. A
batch whose commit is there was taken, one whose commit is not was not: a start goes on behind the last commit of the
source, with a new checkpoint, which Spark needs only while the query runs. So there is no batch that is repeated, and
no checkpoint that can be lost. Where only Spark's checkpoint knows what was read, it is kept, and a batch that is
repeated is found by its commit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.config.errors import BadSetting, SourcePlaceGone
from pipeline.config.jvm import last_progress
from pipeline.config.options import Observer, Options, StageListener
from pipeline.config.routes import DRIVER, SIZE
from pipeline.config.session import compiled
from pipeline.config.settings import DAY_MS
from pipeline.config.sources import EARLIEST, LATEST, STARTS, Source
from pipeline.config.threads import panics_raised
from pipeline.config.wallclock import monotonic_ms, wall_ms
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.logs.entries import Commit, commits
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.datafiles import DataFile, size_of
from pipeline.delta.writing.datafiles import rows as rows_of
from pipeline.delta.writing.oncewriter import Sink
from pipeline.sources.door import InboxRows, Place, SourceConnector, first_line
from pipeline.storage.files import Files
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.partitions import PartitionCounts
from pipeline.subscriptions.sourcenotes import SourceNotes, SourceState, source_states
from schemas import INBOX

_LOG = logging.getLogger(__name__)
NOTE, OF = "read", "of"
"""The names under which a commit says how far a source is read, and which one that is (`SourceConnector.identity`)."""
_DRIVER_ROWS, _DRIVER_BYTES = 10_000, 64 << 20
"""Batches up to this are appended by this process, larger ones by Spark."""
_BEFORE_THE_FIRST = -1
"""What a commit without rows calls its batch."""
_PACKED = 8
"""A file is that much smaller than its rows, or less."""


class Batches:
    """The body of the query of a source."""

    def __init__(
        self,
        warehouse: Warehouse,
        source: Source,
        door: SourceConnector,
        mapping: InboxRows,
        observe: Observer,
        watch: StageListener,
    ) -> None:
        """Look up how far the source was read. The only look-up of the query's life.

        Raises:
            SourcePlaceGone: somebody notes places under the name of the source, and none is its own.
        """
        self._source, self._door, self._mapping = source, door, mapping
        self._observe, self._watch = observe, watch
        self._sink = Sink(warehouse, INBOX, source.stage)
        files = warehouse.files
        self._partitions = PartitionCounts(warehouse)
        self._notes = SourceNotes(files, warehouse.root, source.name, source.stage)
        self._sink.last = last = self._own(files, warehouse)
        self.place: Place | None = None if last is None else last.note[NOTE]
        self._of: str | None = None if last is None else last.note.get(OF)
        self.taken = 0
        self._row_bytes: float | None = None
        self._checkpoint: Checkpoint | None = None

    def begin(self, checkpoint: Checkpoint, place: Place | None, of: str | None) -> None:
        """Take part in a query, with its checkpoint, the place where it begins, and what that is a place of.

        A place that no commit has is noted now. Else a process that dies before its first batch would choose another.

        Raises:
            SourcePlaceGone: the checkpoint says what was read, and it is not the one of the last commit.
        """
        self._checkpoint, last = checkpoint, self._sink.last
        if self._door.lasting and last is not None and not _has(checkpoint, last):
            problem = f"{checkpoint.path}, which knows what it has read, is gone or is not the one that read it"
            raise SourcePlaceGone(self._source.name, problem)
        fresh = place is not None and of != self._of
        self._of = of
        if place != self.place or fresh:
            self._commit([], uuid4().hex, _BEFORE_THE_FIRST, place)
            self.place = place

    @panics_raised()
    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Append a batch."""
        assert self._checkpoint is not None  # noqa: S101 - the query began behind `begin`
        owner = str(self._checkpoint.owner)
        if self._sink.found(owner, batch_id) is not None:
            return
        end: Place = json.loads(self._checkpoint.entry(batch_id)[-1])
        count = None if self.place is None else self._door.count(self.place, end)
        taken, problems = self._door.taken(rows, self.place, end, self._checkpoint)
        count = count if taken is rows else None
        mapped = self._mapping.of(taken, self._partitions.now())
        if problems:
            _LOG.warning("source %s: %s", self._source.name, "; ".join(problems))
            mapped = mapped.unionByName(self._mapping.refused(rows.sparkSession, problems))
        if count is not None and self._is_small(count):
            self._watch.routed(self._source.stage, DRIVER)
            table = mapped.toArrow()
            self._row_bytes = table.nbytes / max(1, table.num_rows)
            files = self._sink.appender.put(table)
        else:
            self._watch.routed(self._source.stage, SIZE)
            with compiled(rows.sparkSession):
                files = self._sink.appender.write(mapped)
            self._row_bytes = _PACKED * size_of(files) / max(1, rows_of(files))
        self._observe(f"{self._source.stage}.files", batch_id)
        # What is another one by now may have been it already when it was read.
        self.check(self._door.identity(rows.sparkSession))
        self._commit(files, owner, batch_id, end)
        self._observe(f"{self._source.stage}.inbox", batch_id)
        self.place, self.taken = end, self.taken + rows_of(files)
        self._sink.appender.checkpoint()

    def check(self, of: str | None) -> None:
        """Whether what is followed is what was read.

        Raises:
            SourcePlaceGone: it is another one of the same name.
        """
        if None not in (of, self._of) and of != self._of:
            problem = f"{self._source.address} was deleted and made again, or is on another cluster"
            raise SourcePlaceGone(self._source.name, problem)

    def _note(self, place: Place | None) -> dict[str, Any]:
        return {NOTE: place} if self._of is None else {NOTE: place, OF: self._of}

    def _own(self, files: Files, warehouse: Warehouse) -> Commit | None:
        """The last note that is the source's own. Whoever appends to `inbox` may note anything under its name."""
        found = self._sink.last
        if found is None:
            return None
        state = source_states(files, warehouse.root).get(self._source.name)
        if not self._notes.begun and state is not None and state.place is not None:
            # It has read before there were seals.
            return found
        newest = self._sink.appender.newest()
        entries = zip(range(newest, -1, -1), commits(files, warehouse.path(INBOX), newest), strict=False)
        last, others = self._notes.last(entries)
        if last is None:
            problem = "none of the places that `inbox` notes under its name is its own (_sources/*.key)"
            raise SourcePlaceGone(self._source.name, problem)
        if others:
            listed = ", ".join(map(str, others))
            _LOG.warning("source %s: versions %s of inbox note places that are not its own", self._source.name, listed)
        return last

    def _commit(self, files: Sequence[DataFile], owner: str, batch: int, place: Place | None) -> None:
        self._sink.commit(
            files, owner, batch, self._notes.sealed(owner, batch, self._note(place), self._sink.appender.newest())
        )

    def _is_small(self, count: int) -> bool:
        """By the size of the rows before; nobody knows that of the first ones."""
        known = self._row_bytes
        return known is not None and count <= _DRIVER_ROWS and count * known <= _DRIVER_BYTES


def _has(checkpoint: Checkpoint, last: Commit) -> bool:
    """Whether a checkpoint has the batch of a commit; one of a copy that was made before it does not."""
    return last.owner == checkpoint.owner and last.batch in checkpoint.batches()


_LOOK_S, _NOTE_MS = 0.5, 5_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_PATIENCE_S = 15.0


class SourceLoop:
    """A source of a warehouse."""

    def __init__(self, warehouse: Warehouse, source: Source, door: SourceConnector, options: Options) -> None:
        """Nothing is read yet.

        Args:
            warehouse: where `inbox` is.
            source: what the profile says.
            door: what it follows.
            options: of the stages.
        """
        self._warehouse, self._source, self._door = warehouse, source, door
        self._options, self._mapping = options, InboxRows(source, door)
        self._states = source_states(warehouse.files, warehouse.root)
        known = self._states.get(source.name) or SourceState(source.name, source.address)
        self._state, self._before = known, known.taken
        self._lock = StageLock(source.stage, f"{warehouse.root}/_checkpoints")
        self._batches: Batches | None = None
        self._query: StreamingQuery | None = None
        self._folder: Path | None = None
        self._begun, self._renew_ms = False, 0
        self._ended, self._thread = Event(), Thread(target=self._run, name=f"delayline-{source.stage}", daemon=True)

    @property
    def query(self) -> StreamingQuery | None:
        """The query that runs, or the last one that did."""
        return self._query

    def begin(self) -> None:
        """Look at everything, and start the query.

        Raises:
            StageRunning: another process follows the source into this warehouse.
            BadSetting: the profile says something that cannot be.
            SourceAway, NoSourceConnector, SourcePlaceGone: what it follows is not there.
        """
        self._lock.take()
        try:
            self._door.check(self._warehouse.spark)
            self._start()
        except BaseException:
            self._drop()
            self._let_go()
            raise

    def watch(self) -> None:
        """Begin the query again whenever it ends, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End it, between two commits."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        try:
            self._drop()
            self._note(self._state.error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        try:
            self._door.close()
        finally:
            self._lock.release()

    def look(self) -> None:
        """Note how far it is; raise what the query ended with, if it did."""
        query = self._query
        if query is None or not query.isActive:
            error = None if query is None else query.exception()
            raise RuntimeError("the query ended") if error is None else error
        last = last_progress(query)
        if last is not None:
            (progress,) = json.loads(last)["sources"]
            behind = self._door.behind(progress)
            known, unknown = (None, behind) if isinstance(behind, str) else (behind, None)
            self._state = replace(self._state, behind=known, unknown=unknown, seen_ms=wall_ms())

    def _start(self) -> None:
        """A new query, behind the last commit."""
        source, options = self._source, self._options
        batches = Batches(self._warehouse, source, self._door, self._mapping, options.observe, options.watch)
        place, of = batches.place, self._door.identity(self._warehouse.spark)
        batches.check(of)
        if place is None and source.start == LATEST:
            place = self._door.latest(self._warehouse.spark)
        elif place is None and source.start != EARLIEST:
            place = self._door.stated(source.start)
            if place is None:
                raise BadSetting(source.field("start"), source.start, STARTS)
        rows = self._door.stream(self._warehouse.spark, place)
        self._mapping.check(self._warehouse.spark, rows.schema)
        checkpoint = self._checkpoint()
        batches.begin(checkpoint, place, of)
        self._door.tidy(self._warehouse.files, checkpoint)
        writer = rows.writeStream.queryName(f"delayline-{source.stage}").foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint.path)
        self._batches, self._begun, self._renew_ms = batches, True, monotonic_ms() + DAY_MS
        self._query = writer.trigger(processingTime=options.trigger or self._door.pause).start()

    def _checkpoint(self) -> Checkpoint:
        """A new one, in a folder of this machine that is removed; or the one in the warehouse, where it has to last."""
        if self._door.lasting:
            return Checkpoint(self._warehouse.files, self._warehouse.checkpoint(self._source.stage))
        self._folder = Path(mkdtemp(prefix=f"delayline-{self._source.stage}-"))
        return Checkpoint(Files(), self._folder.as_uri())

    def _drop(self) -> None:
        query, folder, batches = self._query, self._folder, self._batches
        if query is not None:
            query.stop()
        if folder is not None:
            rmtree(folder, ignore_errors=True)
        if batches is not None:
            self._before += batches.taken
            # What is noted after the end says how far it came.
            self._state = replace(self._state, place=batches.place)
        self._folder, self._batches, self._begun = None, None, False

    def _run(self) -> None:
        wait_s, noted = _FIRST_PAUSE_S, 0
        while not self._ended.wait(_LOOK_S):
            try:
                with panics_raised():
                    if self._begun and self._door.lasting and monotonic_ms() >= self._renew_ms:
                        # What its checkpoint forgets the query would go on holding.
                        self._drop()
                    if not self._begun:
                        self._start()
                    self.look()
                    if monotonic_ms() - noted >= _NOTE_MS or self._state.error is not None:
                        self._note(None)
                        noted, wait_s = monotonic_ms(), _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - whatever it is, the stages go on, and so does it later
                self._fail(error)
                self._ended.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_PAUSE_S)

    def _fail(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {first_line(error)}"
        if text != self._state.error:
            _LOG.warning("source %s stands still and begins again: %s", self._source.name, text)
        try:
            self._drop()
            self._note(text)
        except Exception:  # noqa: BLE001 - the JVM may be gone, and the stages say so
            _LOG.debug("source %s", self._source.name, exc_info=True)

    def _note(self, error: str | None) -> None:
        batches = self._batches
        place = self._state.place if batches is None or batches.place is None else batches.place
        taken = self._before + (0 if batches is None else batches.taken)
        self._state = replace(self._state, place=place, taken=taken, error=error, address=self._source.address)
        self._states.put(self._source.name, self._state)
        self._options.watch.behind(self._source.stage, self._state.behind)
