"""One source at work: a query of Spark's, begun again when it ends.

A broker that is away ends the query after some seconds. It is begun again after a pause, where the last commit says, as
often as it takes; the stages know nothing of it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Event, Thread

from pyspark.sql.streaming.query import StreamingQuery

from pipeline.config.options import Options
from pipeline.config.settings import DAY_MS
from pipeline.config.sources import LATEST, Source
from pipeline.config.threads import panics_raised
from pipeline.config.wallclock import monotonic_ms, wall_ms
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.warehouse import Warehouse
from pipeline.sources.batches import Batches
from pipeline.sources.door import Door, first_line
from pipeline.sources.mapping import InboxRows
from pipeline.storage.files import Files
from pipeline.storage.locks import StageLock
from pipeline.subscriptions.sourcestates import SourceState, SourceStates

_LOG = logging.getLogger(__name__)
_LOOK_S, _NOTE_MS = 0.5, 5_000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_PATIENCE_S = 15.0


class SourceLoop:
    """A source of a warehouse."""

    def __init__(self, warehouse: Warehouse, source: Source, door: Door, options: Options) -> None:
        """Nothing is read yet.

        Args:
            warehouse: where `inbox` is.
            source: what the profile says.
            door: what it follows.
            options: of the stages.
        """
        self._warehouse, self._source, self._door = warehouse, source, door
        self._options, self._mapping = options, InboxRows(source, door)
        self._states = SourceStates(warehouse.files, warehouse.root)
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
            self._lock.release()
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
            self._door.close()
            self._lock.release()

    def look(self) -> None:
        """Note how far it is; raise what the query ended with, if it did."""
        query = self._query
        if query is None or not query.isActive:
            error = None if query is None else query.exception()
            raise RuntimeError("the query ended") if error is None else error
        # PySpark asks the JVM for each field of a progress, which takes longer than the batch.
        last = query._jsq.lastProgress()  # noqa: SLF001 - the object of the JVM
        if last is not None:
            (progress,) = json.loads(last.json())["sources"]
            behind = self._door.behind(progress)
            known, unknown = (None, behind) if isinstance(behind, str) else (behind, None)
            self._state = replace(self._state, behind=known, unknown=unknown, seen_ms=wall_ms())

    def _start(self) -> None:
        """A new query, behind the last commit."""
        source, options = self._source, self._options
        batches = Batches(self._warehouse, source, self._door, self._mapping, options.observe, options.watch)
        place, of = batches.place, self._door.identity(self._warehouse.spark)
        if place is None and source.start == LATEST:
            place = self._door.latest(self._warehouse.spark)
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
        self._states.put(self._state)
        self._options.watch.behind(self._source.stage, self._state.behind)
