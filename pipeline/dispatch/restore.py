"""Prepared deliveries whose files are gone are prepared again, from `redelivery` and `messages`.

Dispatch prepares deliveries some seconds ahead of their time. When it is killed then and stands still for long, a
VACUUM takes the files, which no version names yet. What they held is still known: dispatch has taken it from
`redelivery`, it was due later than what became visible last, and it is neither in `deliveries` nor refused.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.errors import TableBehind
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import FIRST_INSTANT_MS, MINUTE_MS, Settings
from pipeline.config.stages import DISPATCH
from pipeline.config.timeline import Timeline
from pipeline.delta.logs.entries import newest, reaches_back
from pipeline.delta.logs.notes import Commit
from pipeline.delta.offsets import EVERYTHING_BEFORE, Offset
from pipeline.delta.reading.messagelog import MessageLog
from pipeline.delta.smallqueries import frame_of
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch.backlog import finish
from pipeline.dispatch.closed import Closed, ClosedLog
from pipeline.dispatch.prepared import PREPARED, Prepared, PreparedStore, Visible
from pipeline.dispatch.priority import Priorities, priorities_of
from pipeline.dispatch.release_local import LocalRelease
from pipeline.dispatch.release_spark import SparkRelease, positions
from pipeline.dispatch.withdrawn import said
from pipeline.storage.arrays import arrow_schema
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.presence import PresentIncarnations
from pipeline.subscriptions.registry import Registry
from pipeline.subscriptions.settled import read_mark
from schemas import DELIVERIES, HELD, REDELIVERY, REJECTED_DISPATCH, ROUND, Table

_LOG = logging.getLogger(__name__)
_RESTORED = "restore"
"""Who says in `rejected_dispatch` that a message is missing: dispatch looks for its own batches there."""
_NOWHERE = (0, EVERYTHING_BEFORE - 1)
"""Before the first position of a source."""
_MOST_HERE = 100_000
"""So many positions are prepared again without further jobs: Spark looks for them three times."""
_PART_MS = MINUTE_MS
"""A part spans no more, but for what was due when it was prepared (`Settings.publish_ms`)."""


@dataclass(frozen=True)
class Held:
    """What is noted on the shelf and not visible as a whole.

    Attributes:
        visible: which parts are visible.
        shown_ms: the latest due time of what became visible last, ms UTC.
        waiting: the batches, in the order in which they were noted.
        broken: whether a file of theirs is gone.
        lost: whether a note is gone: numbers of parts have no gaps.
        old: whether what is not visible may have been due at any time: it was held, and no note says what was taken.
        since_ms: what is not visible may have been due from here on, ms UTC; None: no further back than parts say.
    """

    visible: Visible
    shown_ms: int
    waiting: Sequence[Prepared]
    broken: bool
    lost: bool
    old: bool = False
    since_ms: int | None = None

    @classmethod
    def of(cls, shelf: PreparedStore, deliveries: Sink) -> "Held":
        """Look at the shelf, and at each file of a part that is not visible."""
        note = {} if deliveries.last is None else deliveries.last.note
        visible = Visible.of(note) if note else Visible()
        hidden = visible.hidden(shelf.all())
        waiting = {each.number: each for each, _ in hidden}
        # Notes that replace others leave a gap before them.
        replaced = any(each.replaces for each in waiting.values())
        lost = not replaced and bool(visible.lost([part.number for _, part in hidden]))
        shown = max((last_due for *_, last_due, _ in note.get("shown", ())), default=FIRST_INSTANT_MS)
        broken = any(shelf.lacks(part) is not None for _, part in hidden)
        return cls(visible, shown, list(waiting.values()), broken, lost)

    @property
    def top(self) -> int:
        """The highest number of a part."""
        return max([self.visible.top, *(part.number for each in self.waiting for part in each.parts)])

    @property
    def due_from(self) -> int:
        """What is not visible was due from here on, ms UTC: parts become visible as they are due."""
        if self.old:
            return FIRST_INSTANT_MS
        firsts = [part.first_due for each in self.waiting for part in each.parts]
        firsts += [] if self.since_ms is None else [self.since_ms]
        return min([max(FIRST_INSTANT_MS, self.shown_ms - _PART_MS), *firsts])


def restore(spark: SparkSession, warehouse: Warehouse, settings: Settings, timeline: Timeline) -> None:
    """Prepare again what lies on the shelf when a file of it is gone. Killed anywhere, it is called again.

    Raises:
        TableBehind: a note is gone. Rebuild dispatch.
    """
    work = _Restoring(spark, warehouse, settings, timeline)
    held = work.held()
    if held.lost:
        raise TableBehind(DISPATCH, PREPARED, held.visible.top, held.top)
    work.renew(held)


def restore_all(
    spark: SparkSession, warehouse: Warehouse, settings: Settings, timeline: Timeline, furthest: Commit | None = None
) -> Offset:
    """The same for a new checkpoint, which begins where dispatch ended: also when notes are gone with the old one.

    What was released and is nowhere is looked for as far back as deliveries are there: users delete old ones. When the
    log of `redelivery` begins behind the place where dispatch ended, all that is released is looked for.

    Args:
        spark: the session.
        warehouse: where the tables lie.
        settings: of the job.
        timeline: its time.
        furthest: the furthest commit by which dispatch held something, or left all of a batch out. When no note and no
            delivery goes as far, a note may be gone of what was prepared before it.

    Returns:
        The place in `redelivery` up to which all is visible, held, refused or prepared.
    """
    work = _Restoring(spark, warehouse, settings, timeline)
    held, last = work.held(), work.deliveries.last or furthest
    files, redelivery = session_files(spark), warehouse.path(REDELIVERY)
    noted = max([held.visible.source, *(each.source for each in held.waiting)])
    cut = not reaches_back(files, redelivery, noted[0] - 1)
    taken = _NOWHERE if furthest is None else (furthest.note["source"][0], furthest.note["source"][1])
    upto = (newest(files, redelivery) + 1, EVERYTHING_BEFORE) if cut else max(held.visible.source, taken)
    if held.waiting and not held.lost and not cut and taken <= noted:
        work.renew(held)
    elif last is None:
        work.forget(held)
    else:
        # What was prepared behind it is taken from `redelivery` again. What a pause or a rate had held may be long due.
        was_held = bool(newest(session_files(spark), warehouse.path(HELD)))
        wide = replace(held, old=was_held, since_ms=work.oldest_ms())
        work.replace(wide, upto, last.owner, last.batch)
        return upto
    return _NOWHERE


def holds_refused(spark: SparkSession, warehouse: Warehouse, refused: Commit, begin: Offset, most: int) -> bool:
    """Whether something is held that a batch has refused: it died before it took that out.

    Args:
        spark: the session.
        warehouse: where the tables lie.
        refused: the last commit of dispatch to `rejected_dispatch`.
        begin: where its batch begins in `redelivery`.
        most: so many rows the driver may read by itself.
    """
    if not newest(session_files(spark), warehouse.path(HELD)):
        return False
    rows = frame_of(spark, warehouse, HELD, REDELIVERY.schema.names, most=most)
    held = rows.toArrow().cast(arrow_schema(REDELIVERY.columns))
    _, gone = said(spark, warehouse, refused.owner, refused.batch, begin).split_withdrawn(held)
    return bool(gone.num_rows)


class _Restoring:
    """Reads from the tables what was prepared, and puts it in the place of the notes."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, settings: Settings, timeline: Timeline) -> None:
        self._spark, self._warehouse, self._settings, self._timeline = spark, warehouse, settings, timeline
        self._shelf = PreparedStore(session_files(spark), warehouse.path(DELIVERIES))
        self.deliveries = Sink(spark, warehouse, DELIVERIES, DISPATCH)

    def held(self) -> Held:
        """Finish what the last batch on the shelf was to do to the table `held`; then say what is on the shelf."""
        finish(self._spark, self._warehouse, self._shelf)
        self._shelf.sweep()
        return Held.of(self._shelf, self.deliveries)

    def oldest_ms(self) -> int | None:
        """When the first of the deliveries was due that are there, ms UTC; None when there are none."""
        (row,) = self._rows(DELIVERIES).agg(F.unix_millis(F.min("due_time")).alias("due")).collect()
        return None if row["due"] is None else int(row["due"])

    def renew(self, held: Held) -> None:
        """Put one note in the place of all when a file of theirs is gone."""
        if held.broken:
            last = max(held.waiting, key=lambda each: each.source)
            self.replace(held, last.source, last.owner, last.batch)

    def replace(self, held: Held, upto: Offset, owner: str, batch: int) -> None:
        """Put one note in the place of all: what dispatch has taken up to a place and is nowhere to be seen."""
        found = self._prepared(held, upto, owner, batch)
        if found is not None:
            count = sum(part.count for part in found.parts)
            _LOG.warning("%d prepared deliveries lacked files or notes, and were prepared again", count)
            self._shelf.put(found)
        elif held.waiting or held.lost:
            # Nobody waits for any of it. It counts as visible, or the batch would be taken once more.
            shown = Visible(held.top, frozenset(), upto).as_dict() | {"shown": []}
            self.deliveries.commit([], owner, batch, shown)
        self.forget(held)

    def forget(self, held: Held) -> None:
        """Drop the notes that were on the shelf."""
        for each in held.waiting:
            self._shelf.drop(each)

    def _prepared(self, held: Held, upto: Offset, owner: str, batch: int) -> Prepared | None:
        """The note, whose files are written; what has no message is rejected. None when there is nothing."""
        registry, presence = Registry(self._spark, self._warehouse), PresentIncarnations(self._spark, self._warehouse)
        version = registry.version()
        lives = presence.at(presence.marker(version), registry.at(version))
        release = self._release(self._wanted(held, upto), lives, priorities_of(registry.shapings(version)))
        if release is None:
            return None
        instant = release.window.released_at
        parts = release.write(self.deliveries.appender, self._settings, batch, self._timeline.now(instant))
        if sum(part.count for part in parts) < release.window.positions:
            rejected = Sink(self._spark, self._warehouse, REJECTED_DISPATCH, _RESTORED)
            rejected.put(release.missing(batch), owner, batch, {})
        numbered = tuple(replace(part, number=held.top + index) for index, part in enumerate(parts, 1))
        replaced = tuple(each.number for each in held.waiting)
        return Prepared(owner, batch, instant, upto, numbered, None, replaced) if parts else None

    def _release(
        self, wanted: DataFrame, lives: Mapping[Name, int], priorities: Priorities
    ) -> LocalRelease | SparkRelease | None:
        """The release of some positions: in this process when they are few, so that they are looked for once only."""
        log, closed = MessageLog(self._spark, self._warehouse), Closed(ClosedLog(self._spark, self._warehouse))
        most = min(self._settings.driver_rows, _MOST_HERE)
        few = wanted.limit(most + 1).toArrow().select(REDELIVERY.schema.names) if most else None
        if few is not None and few.num_rows <= most:
            with suppress(NotInDriver):
                runs = few.cast(arrow_schema(REDELIVERY.schema))
                return LocalRelease.of(runs, lives, log, self._settings, closed, priorities)
        return SparkRelease.of(wanted, lives, log, closed, priorities)

    def _wanted(self, held: Held, upto: Offset) -> DataFrame:
        """A row of `redelivery` for each position that dispatch has taken and that is in no table."""
        number = F.expr(ROUND)
        recent = _due_from(held)
        wanted = positions(self._taken(upto, recent)).withColumn("number", number)
        keys = ["topic", "subscription", "life", "ledger_id", "first_entry", "redelivery_count"]
        held_back = positions(self._rows(HELD)).withColumn("number", number)
        wanted = wanted.join(held_back.select(*keys, "number"), [*keys, "number"], "left_anti")
        for table in (DELIVERIES, REJECTED_DISPATCH):
            rows = self._rows(table, recent)
            rows = rows.withColumnRenamed("entry_id", "first_entry").withColumn("number", number)
            # A position is delivered in one of its rounds; what is left out of it is one of them.
            names = [
                *(name for name in keys if name in rows.columns),
                *(["number"] if table is REJECTED_DISPATCH else []),
            ]
            wanted = wanted.join(rows.select(*names), names, "left_anti")
        # Below the mark all was delivered, and deliveries may be deleted. It is read after the tables.
        mark = read_mark(session_files(self._spark), self._warehouse.root)
        return wanted.drop("number").where(f"NOT {mark.covers('message_due')}")

    def _taken(self, upto: Offset, where: str) -> DataFrame:
        """Rows of `redelivery` up to a place."""
        version, _ = upto
        begun = self._warehouse.between(self._spark, REDELIVERY, (version, EVERYTHING_BEFORE), upto).where(where)
        return begun.unionByName(self._rows(REDELIVERY, where, version - 1)) if version else begun

    def _rows(self, table: Table, where: str = "true", version: int | None = None) -> DataFrame:
        """What some rows of a table tell of positions; the columns of `redelivery`, and what names a single one."""
        columns = [name for name in table.schema.names if name in (*REDELIVERY.schema.names, "entry_id")]
        return frame_of(self._spark, self._warehouse, table, columns, version, where, self._settings.driver_rows)


def _due_from(held: Held) -> str:
    """SQL, also of DataFusion: what may be on the shelf, by its due time."""
    if held.due_from == FIRST_INSTANT_MS:
        # Nothing was shown so far. DataFusion's literals do not reach back to that year.
        return "true"
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=held.due_from)
    return f"due_time >= TIMESTAMP '{since.isoformat()}'"
