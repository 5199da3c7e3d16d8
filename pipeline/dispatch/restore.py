"""Prepared deliveries whose files are gone are prepared again, from `redelivery` and `messages`.

Dispatch prepares deliveries some seconds ahead of their time. When it is killed then and stands still for long, a
VACUUM takes the files, which no version names yet. What they held is still known: dispatch has taken it from
`redelivery`, it was due later than what became visible last, and it is neither in `deliveries` nor refused.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.config.errors import TableBehind
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import FIRST_INSTANT_MS, MINUTE_MS, Settings
from pipeline.config.stages import DISPATCH
from pipeline.config.timeline import Timeline
from pipeline.delta.logs.entries import Commit, newest, oldest
from pipeline.delta.offsets import EVERYTHING_BEFORE, Offset
from pipeline.delta.reading.messagelog import MessageLog
from pipeline.delta.warehouse import Warehouse, ask, frame_of
from pipeline.delta.writing.oncewriter import Sink, last_commit
from pipeline.dispatch.backlog import finish, taken_since
from pipeline.dispatch.closed import Closed, ClosedLog
from pipeline.dispatch.prepared import PREPARED, Prepared, PreparedStore, Visible
from pipeline.dispatch.priority import Priorities, priorities_of
from pipeline.dispatch.release_local import LocalRelease
from pipeline.dispatch.release_spark import SparkRelease, positions
from pipeline.dispatch.withdrawnlog import said
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.presence import PresentIncarnations
from pipeline.subscriptions.registry import Registry
from pipeline.subscriptions.settled import SettledMark, read_mark
from schemas import DELIVERIES, HELD, REDELIVERY, REJECTED_DISPATCH, ROUND, Table

_LOG = logging.getLogger(__name__)
_RESTORED = "restore"
"""Who says in `rejected_dispatch` that a message is missing: dispatch looks for its own batches there."""
_NOWHERE = (0, EVERYTHING_BEFORE - 1)
"""Before the first position of a source."""
_MOST_HERE = 100_000
"""So many positions are prepared again without further jobs: Spark looks for them three times."""
_FIRST = "SELECT topic, subscription, MIN(due_time) AS due FROM {rows} GROUP BY topic, subscription"
_NO_RUNS = arrow_schema(HELD.columns).empty_table()
_NUMBER, _BEGIN = "number", "begin"
_KEYS = ["topic", "subscription", "life", "ledger_id", "first_entry", "redelivery_count", _NUMBER]
"""What names a position in one of its rounds."""
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
        lost: the numbers of parts whose notes are gone: numbers of parts have no gaps.
    """

    visible: Visible
    shown_ms: int
    waiting: Sequence[Prepared]
    broken: bool
    lost: frozenset[int]

    @classmethod
    def of(cls, shelf: PreparedStore, deliveries: Sink) -> "Held":
        """Look at the shelf, and at each file of a part that is not visible."""
        note = {} if deliveries.last is None else deliveries.last.note
        visible = Visible.of(note) if note else Visible()
        hidden = visible.hidden(shelf.all())
        waiting = {each.number: each for each, _ in hidden}
        # Notes that replace others leave a gap before them.
        replaced = any(each.replaces for each in waiting.values())
        lost = frozenset[int]() if replaced else frozenset(visible.lost([part.number for _, part in hidden]))
        shown = max((last_due for *_, last_due, _ in note.get("shown", ())), default=FIRST_INSTANT_MS)
        broken = any(shelf.lacks(part) is not None for _, part in hidden)
        return cls(visible, shown, list(waiting.values()), broken, lost)

    @property
    def whole(self) -> bool:
        """Whether notes and files are there, so that what is noted stays."""
        return not self.broken and not self.lost

    @property
    def kept(self) -> Sequence[Prepared]:
        """The notes that stay."""
        return self.waiting if self.whole else ()

    @property
    def changes(self) -> bool:
        """Whether one of the batches changes the table `held`."""
        return any(each.held is not None for each in self.waiting)

    @property
    def top(self) -> int:
        """The highest number of a part."""
        return max([self.visible.top, *(part.number for each in self.waiting for part in each.parts)])

    @property
    def due_from(self) -> int:
        """What is not visible was due from here on, ms UTC: parts become visible as they are due.

        What a batch took from `held` may have been due long before; the log of that table tells it.
        """
        firsts = [part.first_due for each in self.waiting if each.held is None for part in each.parts]
        return min([max(FIRST_INSTANT_MS, self.shown_ms - _PART_MS), *firsts])


@dataclass(frozen=True)
class Wanted:
    """What is looked for: what was released up to a place, and what left `held`, and is in no table and no note.

    Attributes:
        upto: the place in `redelivery`.
        owner: the checkpoint of the last batch up to there.
        batch: the number of that batch.
        since_ms: of what was released only what was due from here on, ms UTC.
        begins: earlier times for some subscriptions.
    """

    upto: Offset
    owner: str
    batch: int
    since_ms: int
    begins: Mapping[Name, int] = field(default_factory=dict)

    @classmethod
    def back_to(cls, upto: Offset, owner: str, batch: int, since_ms: int, begins: Mapping[Name, int]) -> "Wanted":
        """Of each subscription as far back as its deliveries are there.

        Of one that has none only what is not older than those of any other: what a pause held may be older than what
        users delete.
        """
        least = min(since_ms, max(begins.values(), default=since_ms))
        return cls(upto, owner, batch, least, {name: ms for name, ms in begins.items() if ms < least})

    def of(self, runs: DataFrame) -> DataFrame:
        """Runs that were due in time."""
        if not self.begins:
            return runs
        rows = [(*name, ms) for name, ms in self.begins.items()]
        begins = runs.sparkSession.createDataFrame(rows, f"topic string, subscription string, {_BEGIN} bigint")
        due = F.unix_millis("due_time") >= F.coalesce(_BEGIN, F.lit(self.since_ms))
        return runs.join(F.broadcast(begins), ["topic", "subscription"], "left").where(due).drop(_BEGIN)


def restore(warehouse: Warehouse, settings: Settings, timeline: Timeline) -> None:
    """Prepare again what lies on the shelf when a file of it is gone. Killed anywhere, it is called again.

    Raises:
        TableBehind: a note is gone. Rebuild dispatch.
    """
    work = _Restoring(warehouse, settings, timeline)
    held = work.held()
    if held.lost:
        raise TableBehind(DISPATCH, PREPARED, held.visible.top, held.top)
    if held.broken:
        last = max(held.waiting, key=lambda each: each.source)
        first = min(part.first_due for each in held.waiting for part in each.parts)
        # A batch that changed `held` may have been due long before in all that it has, and not in that alone.
        begins = {name: max(ms, first) for name, ms in work.begins().items()} if held.changes else {}
        work.look(held, Wanted.back_to(last.source, last.owner, last.batch, held.due_from, begins))


def restore_all(warehouse: Warehouse, settings: Settings, timeline: Timeline, furthest: Commit | None = None) -> Offset:
    """The same for a new checkpoint, which begins where dispatch ended: also when notes are gone with the old one.

    All that was released up to there and is nowhere is looked for, as far back as deliveries are there: users delete
    old ones (decision 0117). When the log of `redelivery` begins behind that place, it is all that is released.

    Args:
        warehouse: where the tables lie.
        settings: of the job.
        timeline: its time.
        furthest: the furthest commit by which dispatch held something, or left all of a batch out. When no note and no
            delivery goes as far, a note may be gone of what was prepared before it.

    Returns:
        The place in `redelivery` up to which all is visible, held, refused or prepared.
    """
    work = _Restoring(warehouse, settings, timeline)
    held, files, redelivery = work.held(), warehouse.files, warehouse.path(REDELIVERY)
    # What a batch was to do to `held` is done by now.
    last = work.deliveries.last, furthest, last_commit(warehouse, HELD, DISPATCH)
    commits = [each for each in last if each is not None]
    places = [(_source(each), each.batch, each.owner) for each in commits]
    places += [(each.source, each.batch, each.owner) for each in held.waiting]
    upto, batch, owner = max(places, default=(_NOWHERE, 0, _RESTORED))
    cut = oldest(files, redelivery) > max(0, upto[0] - 1)
    if not commits and not cut:
        # Nobody has anything yet: what is not prepared is taken from the beginning.
        if not held.whole:
            work.forget(held)
        return _NOWHERE
    upto = (newest(files, redelivery) + 1, EVERYTHING_BEFORE) if cut else upto
    if work.deliveries.last is None:
        work.look(held, Wanted(upto, owner, batch, FIRST_INSTANT_MS))
    else:
        work.look(held, Wanted.back_to(upto, owner, batch, held.due_from, work.begins()))
    return upto


def _source(commit: Commit) -> Offset:
    """Where the batch of a commit ends in `redelivery`."""
    version, index = commit.note["source"]
    return version, index


def holds_refused(warehouse: Warehouse, refused: Commit, begin: Offset, most: int) -> bool:
    """Whether something is held that a batch has refused: it died before it took that out.

    Args:
        warehouse: where the tables lie.
        refused: the last commit of dispatch to `rejected_dispatch`.
        begin: where its batch begins in `redelivery`.
        most: so many rows the driver may read by itself.
    """
    if not newest(warehouse.files, warehouse.path(HELD)):
        return False
    rows = frame_of(warehouse, HELD, REDELIVERY.schema.names, most=most)
    held = rows.toArrow().cast(arrow_schema(REDELIVERY.columns))
    _, gone = said(warehouse, refused.owner, refused.batch, begin).split_withdrawn(held)
    return bool(gone.num_rows)


class _Restoring:
    """Reads from the tables what was prepared, and puts it in the place of the notes."""

    def __init__(self, warehouse: Warehouse, settings: Settings, timeline: Timeline) -> None:
        self._warehouse, self._settings, self._timeline = warehouse, settings, timeline
        self._files = warehouse.files
        self._shelf = PreparedStore(self._files, warehouse.path(DELIVERIES))
        self.deliveries = Sink(warehouse, DELIVERIES, DISPATCH)

    def held(self) -> Held:
        """Finish what the last batch on the shelf was to do to the table `held`; then say what is on the shelf."""
        finish(self._warehouse, self._shelf)
        self._shelf.sweep()
        return Held.of(self._shelf, self.deliveries)

    def begins(self) -> dict[Name, int]:
        """When the first delivery of each subscription was due that is there, ms UTC."""
        rows = ask(self._warehouse, DELIVERIES, _FIRST)
        return {(row["topic"], row["subscription"]): round(row["due"].timestamp() * 1_000) for row in rows}

    def look(self, held: Held, wanted: Wanted) -> None:
        """Note what is looked for and found. When not all is whole that is noted, it comes in the place of that."""
        note = self._prepared(held, wanted)
        if note is not None:
            count = sum(part.count for part in note.parts)
            _LOG.warning("%d deliveries were in no table, or lacked files or notes, and were prepared again", count)
            self._shelf.put(note)
        elif not held.whole:
            # Nobody waits for any of it. It counts as visible, or the batch would be taken once more.
            shown = Visible(held.top, frozenset(), wanted.upto).as_dict() | {"shown": []}
            self.deliveries.commit([], wanted.owner, wanted.batch, shown)
        if not held.whole:
            self.forget(held)

    def forget(self, held: Held) -> None:
        """Drop the notes that were on the shelf."""
        for each in held.waiting:
            self._shelf.drop(each)

    def _prepared(self, held: Held, wanted: Wanted) -> Prepared | None:
        """The note, whose files are written; what has no message is rejected. None when there is nothing."""
        registry, presence = Registry(self._warehouse), PresentIncarnations(self._warehouse)
        version = registry.version()
        registered = registry.at(version)
        lives = presence.at(presence.marker(version), registered.lines)
        release = self._release(self._lacking(held, wanted), lives, priorities_of(registered.shapings))
        if release is None:
            return None
        instant, batch = release.window.released_at, wanted.batch
        parts = release.write(self.deliveries.appender, self._settings, batch, self._timeline.now(instant))
        if sum(part.count for part in parts) < release.window.positions:
            rejected = Sink(self._warehouse, REJECTED_DISPATCH, _RESTORED)
            rejected.put(release.missing(batch), wanted.owner, batch, {})
        numbered = tuple(replace(part, number=held.top + index) for index, part in enumerate(parts, 1))
        replaced = () if held.whole else tuple(sorted({*(each.number for each in held.waiting), *held.lost}))
        return Prepared(wanted.owner, batch, instant, wanted.upto, numbered, None, replaced) if parts else None

    def _release(
        self, wanted: DataFrame, lives: Mapping[Name, int], priorities: Priorities
    ) -> LocalRelease | SparkRelease | None:
        """The release of some positions: in this process when they are few, so that they are looked for once only."""
        log, closed = MessageLog(self._warehouse), Closed(ClosedLog(self._warehouse))
        most = min(self._settings.driver_rows, _MOST_HERE)
        few = wanted.limit(most + 1).toArrow().select(REDELIVERY.schema.names) if most else None
        if few is not None and few.num_rows <= most:
            with suppress(NotInDriver):
                runs = few.cast(arrow_schema(REDELIVERY.schema))
                return LocalRelease.of(runs, lives, log, self._settings, closed, priorities)
        return SparkRelease.of(wanted, lives, log, closed, priorities)

    def _lacking(self, held: Held, wanted: Wanted) -> DataFrame:
        """A row of `redelivery` for each position that dispatch has taken and that is nowhere."""
        mark = read_mark(self._files, self._warehouse.root)
        taken_out = taken_since(self._warehouse, self.deliveries.last)
        if taken_out is None:
            wanted, taken_out = replace(wanted, since_ms=FIRST_INSTANT_MS, begins={}), _NO_RUNS
        since = min([wanted.since_ms, *wanted.begins.values()])
        lacking = _numbered(wanted.of(self._taken(wanted.upto, f"{_due_from(since)} AND NOT {_below(mark)}")))
        if taken_out.num_rows:
            since = min(since, int(longs(taken_out, "due_time").min()) // 1_000)
            lacking = lacking.unionByName(_numbered(self._warehouse.spark.createDataFrame(taken_out))).dropDuplicates(
                _KEYS
            )
        lacking = lacking.join(_numbered(self._rows(HELD)).select(_KEYS), _KEYS, "left_anti")
        recent = _due_from(since)
        rejected = self._rows(REJECTED_DISPATCH, recent).withColumn(_NUMBER, F.expr(ROUND))
        # A position is delivered in one of its rounds; what is left out of it is one of them.
        shown = [(rejected, _KEYS), (self._rows(DELIVERIES, recent), _KEYS[:-1])]
        shown += [(self._noted(held.kept), _KEYS[:-1])] if held.kept else []
        for rows, keys in shown:
            lacking = lacking.join(rows.withColumnRenamed("entry_id", "first_entry").select(keys), keys, "left_anti")
        # Below the mark all was delivered, and deliveries may be deleted. It is read after the tables.
        mark = read_mark(self._files, self._warehouse.root)
        return lacking.drop(_NUMBER).where(f"NOT {_below(mark)}")

    def _noted(self, kept: Sequence[Prepared]) -> DataFrame:
        """The deliveries in files that notes name."""
        path = self._warehouse.path(DELIVERIES)
        names = [f"{path}/{file.path}" for each in kept for part in each.parts for file in part.files]
        return self._warehouse.spark.read.schema(DELIVERIES.schema).parquet(*names)

    def _taken(self, upto: Offset, where: str) -> DataFrame:
        """Rows of `redelivery` up to a place."""
        version, _ = upto
        begun = self._warehouse.between(REDELIVERY, (version, EVERYTHING_BEFORE), upto).where(where)
        return begun.unionByName(self._rows(REDELIVERY, where, version - 1)) if version else begun

    def _rows(self, table: Table, where: str = "true", version: int | None = None) -> DataFrame:
        """What some rows of a table tell of positions; the columns of `redelivery`, and what names a single one."""
        columns = [name for name in table.schema.names if name in (*REDELIVERY.schema.names, "entry_id")]
        return frame_of(self._warehouse, table, columns, version, where, self._settings.driver_rows)


def _numbered(runs: DataFrame) -> DataFrame:
    """A row for each position of runs in the columns of `redelivery`, with its round."""
    return positions(runs.select(REDELIVERY.schema.names)).withColumn(_NUMBER, F.expr(ROUND))


def _due_from(since_ms: int) -> str:
    """SQL, also of DataFusion: what was due from an instant on."""
    # DataFusion's literals do not reach back to the first year.
    return "true" if since_ms == FIRST_INSTANT_MS else f"due_time >= {_moment(since_ms)}"


def _below(mark: SettledMark) -> str:
    """SQL, also of DataFusion: what was delivered for good, and may be deleted.

    By its own due time: what comes again, or came late, is due long after its message was.
    """
    return f"(due_time <= {_moment(mark.due_ms)} AND ledger_id < {mark.ledger})"


def _moment(ms: int) -> str:
    return f"TIMESTAMP '{(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat()}'"
