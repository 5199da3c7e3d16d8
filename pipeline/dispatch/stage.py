"""Dispatch: positions that became due are joined with their messages and handed over, in the stated order.

A batch writes its files, says in `rejected_dispatch` what has no message and what was withdrawn by commands, and notes
what it wrote; the publisher makes that visible when it is due, and accounts for it in `publications`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.config.options import Observer
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from pipeline.config.timeline import Timeline
from pipeline.config.watching import Watch
from pipeline.delta.checkpoints import Log
from pipeline.delta.reading.messagelog import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.closed import Closed, ClosedLog
from pipeline.dispatch.prepared import PREPARED, Part, Prepared, PreparedStore
from pipeline.dispatch.publisher import Publisher
from pipeline.dispatch.release_local import LocalRelease, local_runs
from pipeline.dispatch.release_spark import SparkRelease, cancelled_rows, parted
from pipeline.dispatch.withdrawn import Withdrawn, WithdrawnLog, said
from pipeline.dispatch.withdrawn import cancelled_rows as cancelled_arrays
from pipeline.storage.hadoop import session_files
from pipeline.storage.parquet import DRIVER, NotInDriver
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.presence import PresentIncarnations
from pipeline.subscriptions.registry import Registry
from schemas import DELIVERIES, PUBLICATIONS, REJECTED_DISPATCH

Release = LocalRelease | SparkRelease
Rows: TypeAlias = pa.Table | DataFrame
"""Of `rejected_dispatch`."""


@dataclass(frozen=True)
class Note:
    """What the commits of a batch carry, for a repetition that finds some of them.

    `registry` and `lives` are the version of `subscriptions` and the marker by which removed ones and earlier lives
    were dropped; `begin` and `source` are where the batch begins and ends in `redelivery` (version, index). `closed` is
    the version of that table by which redeliveries were left out; -1 when the batch had none. `commands` is the version
    of that table by which something was left out; a repetition follows the rows of its own commit instead. `complete`:
    the batch has nothing to hand over, so the commit to `rejected_dispatch` is all that it does.
    """

    registry: int
    lives: int
    begin: tuple[int, int]
    source: tuple[int, int]
    closed: int = -1
    commands: int = -1
    complete: bool = False

    @property
    def decided_by(self) -> tuple[int, int]:
        """What decides who gets something: `registry` and `lives`."""
        return self.registry, self.lives

    def as_dict(self) -> dict[str, Any]:
        """For the metadata of a commit."""
        return dict(vars(self))


class Dispatch:
    """The body of the dispatch query: call it with each batch of `redelivery`."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        checkpoint: Log,
        settings: Settings,
        timeline: Timeline,
        observe: Observer,
    ) -> None:
        """Look up once what the tables hold."""
        self._spark, self._warehouse, self._checkpoint = spark, warehouse, checkpoint
        self._settings, self._timeline, self._observe = settings, timeline, observe
        self.watch = Watch()
        self._registry, self._presence = Registry(spark, warehouse), PresentIncarnations(spark, warehouse)
        self._log, self._closed = MessageLog(spark, warehouse), ClosedLog(spark, warehouse)
        # Now, and not when the first message is due: the first look at the files of a table takes a job.
        self._log.files(())
        self._withdrawn = WithdrawnLog(spark, warehouse)
        self._files = session_files(spark)
        tables = (REJECTED_DISPATCH, DELIVERIES, PUBLICATIONS)
        self.sinks = {table.name: Sink(spark, warehouse, table, DISPATCH, checkpoint.wrote) for table in tables}
        shown = self.sinks["deliveries"], self.sinks["publications"]
        store = PreparedStore(self._files, warehouse.path(DELIVERIES))
        self.publisher = Publisher(store, *shown, timeline, observe)

    def __call__(self, redelivery: DataFrame, batch_id: int) -> None:
        """Hand over one batch, unless it is prepared already."""
        owner = self._checkpoint.owner or ""
        if not self.publisher.knows(owner, batch_id):
            self._prepare(redelivery, owner, batch_id)
        self.publisher.settle()
        for sink in self.sinks.values():
            sink.appender.checkpoint()

    def _prepare(self, redelivery: DataFrame, owner: str, batch_id: int) -> None:
        """Write the deliveries of a batch; first say what is missing or withdrawn, then note what is written."""
        refused = self.sinks["rejected_dispatch"].found(owner, batch_id)
        registry, lives = self._versions() if refused is None else noted(refused.note).decided_by
        closed = Closed(self._closed, -1 if refused is None else noted(refused.note).closed)
        # What decides is looked up after the end of the batch was: so a command counts for all that is released later.
        withdrawn = self._withdrawn.look() if refused is None else self._said(batch_id)
        present = self._presence.at(lives, self._registry.at(registry))
        release, cancelled = self._release(redelivery, present, closed, withdrawn, batch_id)
        if release is None and cancelled is None:
            return
        self._observe("dispatch.counted", batch_id)
        parts = () if release is None else self._write(release, batch_id)
        ends = self._checkpoint.start(batch_id).offset, self._checkpoint.position(batch_id).offset
        note = Note(registry, lives, *ends, closed.version, withdrawn.version, complete=not parts)
        rejected = _rejected(release, parts, cancelled, batch_id)
        if rejected is not None:
            self.sinks["rejected_dispatch"].append(rejected, owner, batch_id, note.as_dict())
            self._observe("dispatch.rejected", batch_id)
        if release is not None and parts:
            released_at = release.window.released_at
            self.publisher.take(Prepared(owner, batch_id, released_at, note.source, parts, note.begin))
            self._checkpoint.wrote(PREPARED, self.publisher.top)
            self._observe("dispatch.noted", batch_id)

    def _said(self, batch_id: int) -> Withdrawn:
        """What a batch that is repeated left out, by its commit."""
        return said(self._spark, self._warehouse, self._checkpoint.start(batch_id).offset)

    def _write(self, release: Release, batch_id: int) -> tuple[Part, ...]:
        """Write the files of the deliveries of a batch."""
        appender, now = self.sinks["deliveries"].appender, self._timeline.now(release.window.released_at)
        parts = release.write(appender, self._settings, batch_id, now)
        self._observe("dispatch.written", batch_id)
        return parts

    def _release(
        self, redelivery: DataFrame, lives: Mapping[Name, int], closed: Closed, withdrawn: Withdrawn, batch_id: int
    ) -> tuple[Release | None, Rows | None]:
        """The release of a batch, and rows for what is withdrawn: in this process when that can be, else by Spark.

        There is no release when nobody listens to any of it.
        """
        try:
            ends = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
            runs = local_runs(self._files, self._warehouse, *ends, self._settings)
            left, gone = withdrawn.parted(runs)
            cancelled = cancelled_arrays(gone, batch_id, self._settings.driver_rows) if gone.num_rows else None
            release = LocalRelease.of(left, lives, self._log, self._settings, closed)
        except NotInDriver as error:
            self.watch.routed(DISPATCH, error.reason)
            return self._release_by_spark(redelivery, lives, closed, withdrawn, batch_id)
        self.watch.routed(DISPATCH, DRIVER)
        self.watch.took(DISPATCH, runs.num_rows)
        return release, cancelled

    def _release_by_spark(
        self, redelivery: DataFrame, lives: Mapping[Name, int], closed: Closed, withdrawn: Withdrawn, batch_id: int
    ) -> tuple[Release | None, Rows | None]:
        if not withdrawn.parts:
            return SparkRelease.of(redelivery, lives, self._log, closed), None
        left, gone = parted(redelivery, withdrawn.rows())
        rows = cancelled_rows(gone, batch_id)
        return SparkRelease.of(left, lives, self._log, closed), None if rows.isEmpty() else rows

    def _versions(self) -> tuple[int, int]:
        """Who listens now, and in which life."""
        registry = self._registry.version()
        return registry, self._presence.marker(registry)


def _rejected(release: Release | None, parts: Sequence[Part], cancelled: Rows | None, batch_id: int) -> Rows | None:
    """Rows of `rejected_dispatch`: what has no message, and what was withdrawn. None: there is nothing to say."""
    if release is None or sum(part.count for part in parts) == release.window.positions:
        return cancelled
    missing = release.missing(batch_id)
    if cancelled is None:
        return missing
    if isinstance(missing, pa.Table) and isinstance(cancelled, pa.Table):
        return pa.concat_tables([missing, cancelled])
    assert isinstance(missing, DataFrame)  # noqa: S101 - both are of one way
    return missing.unionByName(cancelled)


def noted(note: Mapping[str, Any]) -> Note:
    """What a commit carries."""
    return Note(**{**note, "begin": tuple(note["begin"]), "source": tuple(note["source"])})
