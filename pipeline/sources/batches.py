"""The batches of one source: rows to `inbox`, and how far it was read, in one commit.

That commit is all that counts. A batch whose commit is there was taken, one whose commit is not was not: a start goes
on behind the last commit of the source, with a new checkpoint, which Spark needs only while the query runs. So there
is no batch that is repeated, and no checkpoint that can be lost. Where only Spark's checkpoint knows what was read, it
is kept, and a batch that is repeated is found by its commit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame

from pipeline.config.errors import SourcePlaceGone
from pipeline.config.options import Observer, Watch
from pipeline.config.routes import DRIVER, SIZE
from pipeline.config.session import compiled
from pipeline.config.sources import Source
from pipeline.config.threads import panics_raised
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.logs.entries import Commit, commits
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.datafiles import DataFile, size_of
from pipeline.delta.writing.datafiles import rows as rows_of
from pipeline.delta.writing.oncewriter import Sink
from pipeline.sources.door import Door, Place
from pipeline.sources.mapping import InboxRows
from pipeline.storage.files import Files
from pipeline.subscriptions.sourcenotes import SourceNotes
from pipeline.subscriptions.sourcestates import SourceStates
from schemas import INBOX

_LOG = logging.getLogger(__name__)
NOTE, OF = "read", "of"
"""The names under which a commit says how far the source is read, and which one that was (`Door.identity`)."""
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
        door: Door,
        mapping: InboxRows,
        observe: Observer,
        watch: Watch,
    ) -> None:
        """Look up how far the source was read. The only look-up of the query's life.

        Raises:
            SourcePlaceGone: somebody notes places under the name of the source, and none is its own.
        """
        self._source, self._door, self._mapping = source, door, mapping
        self._observe, self._watch = observe, watch
        self._sink = Sink(warehouse, INBOX, source.stage)
        files = warehouse.files
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
            SourcePlaceGone: the checkpoint says what was read, and it is not the one of the last commit; or another
                topic was read under this name.
        """
        self._check(of)
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
        mapped = self._mapping.of(taken)
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
        self._check(self._door.identity(rows.sparkSession))
        self._commit(files, owner, batch_id, end)
        self._observe(f"{self._source.stage}.inbox", batch_id)
        self.place, self.taken = end, self.taken + rows_of(files)
        self._sink.appender.checkpoint()

    def _check(self, of: str | None) -> None:
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
        state = SourceStates(files, warehouse.root).get(self._source.name)
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
