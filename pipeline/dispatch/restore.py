"""Prepared deliveries whose files or notes are gone are found in `redelivery`, and held, so that they are taken again.

Dispatch prepares deliveries some seconds ahead of their time. When it is killed then and stands still for long, a
VACUUM takes the files, which no version names yet. What they held is still known: dispatch has taken it from
`redelivery`, and it is neither in `deliveries` nor held nor refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.errors import TableBehind
from pipeline.config.lazyspark import F
from pipeline.config.settings import FIRST_INSTANT_MS, MINUTE_MS, Settings
from pipeline.config.stages import DISPATCH
from pipeline.delta.checkpoints import EVERYTHING_BEFORE, Offset
from pipeline.delta.logs.entries import Commit, newest, oldest
from pipeline.delta.warehouse import Warehouse, ask, frame_of, rows_here
from pipeline.delta.writing.oncewriter import Sink, last_commit
from pipeline.dispatch.backlog import Backlog, finish, hidden_since, taken_since
from pipeline.dispatch.backlogchange import BacklogChange, as_held
from pipeline.dispatch.core.holding import in_order
from pipeline.dispatch.plan import NOWHERE, source_of
from pipeline.dispatch.prepared import PREPARED, Prepared, PreparedStore, Visible
from pipeline.dispatch.release_spark import positions
from pipeline.dispatch.withdrawnlog import said
from pipeline.storage.arrays import arrow_schema, longs
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.settled import read_mark
from schemas import DELIVERIES, HELD, REDELIVERY, REJECTED_DISPATCH, ROUND, Table
from state.units import Ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
_RESTORED = "restore"
"""Who says in `rejected_dispatch` that a message is missing: dispatch looks for its own batches there."""
_FIRST = "SELECT topic, subscription, MIN(due_time) AS due FROM {rows} GROUP BY topic, subscription"
_NO_RUNS = arrow_schema(HELD.columns).empty_table()
_NUMBER, _BEGIN, _SHOWN = "number", "begin", "shown_ms"
_KEYS = ["topic", "subscription", "life", "ledger_id", "first_entry", "redelivery_count", _NUMBER]
"""What names a position in one of its rounds."""
_PART_MS = MINUTE_MS
"""A part spans no more, but for what was due when it was prepared (`Settings.publish_ms`)."""


@dataclass(frozen=True)
class PreparedState:
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
    def of(cls, shelf: PreparedStore, deliveries: Sink) -> PreparedState:
        """Look at the shelf, and at each file of a part that is not visible."""
        note = {} if deliveries.last is None else deliveries.last.note
        visible = Visible.of(note) if note else Visible()
        hidden = visible.hidden(shelf.all())
        waiting = {each.number: each for each, _ in hidden}
        # Notes that replace others leave a gap before them.
        replaced = any(each.replaces for each in waiting.values())
        lost = frozenset[int]() if replaced else frozenset(visible.lost([part.number for _, part in hidden]))
        shown = max((due for *_, due, _ in note.get("shown", ())), default=note.get(_SHOWN, FIRST_INSTANT_MS))
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
    def top(self) -> int:
        """The highest number of a part."""
        return max([self.visible.top, *(part.number for each in self.waiting for part in each.parts)])

    @property
    def released_at(self) -> Ms:
        """The instant of the last release, ms UTC."""
        return max([self.visible.released_at, *(each.released_at for each in self.waiting)])

    @property
    def since_ms(self) -> int:
        """What is not visible was due, or released, from here on, ms UTC: parts become visible as they are due.

        What was overdue when it was released became visible before what was released later. What a batch took from
        `held` may have been released long before; the log of that table tells it.
        """
        return max(FIRST_INSTANT_MS, self.shown_ms - _PART_MS)


@dataclass(frozen=True)
class RestoreScope:
    """What is looked for: what was released up to a place, and what left `held`, and is in no table and no note.

    Attributes:
        upto: the place in `redelivery`.
        owner: the checkpoint of the last batch up to there.
        batch: the number of that batch.
        released_ms: what was released from here on is looked for whenever it was due, ms UTC.
        since_ms: of what was released before only what was due from here on.
        begins: earlier times for some subscriptions.
    """

    upto: Offset
    owner: str
    batch: int
    released_ms: int
    since_ms: int
    begins: Mapping[Name, int] = field(default_factory=dict)

    @classmethod
    def back_to(cls, upto: Offset, owner: str, batch: int, since_ms: int, begins: Mapping[Name, int]) -> RestoreScope:
        """Of each subscription as far back as its deliveries are there, and all that was released since a time.

        Of one that has none only what is not older than those of any other: what a pause held may be older than what
        users delete.
        """
        least = min(since_ms, max(begins.values(), default=since_ms))
        return cls(upto, owner, batch, since_ms, least, {name: ms for name, ms in begins.items() if ms < least})

    @property
    def where(self) -> str:
        """SQL, also of DataFusion: what may be wanted."""
        since = min([self.since_ms, *self.begins.values()])
        return f"({_from(since, 'due_time')} OR {_from(self.released_ms, 'released_at')})"

    def of(self, runs: DataFrame) -> DataFrame:
        """Of runs that may be wanted those that are."""
        if not self.begins:
            return runs
        rows = [(*name, ms) for name, ms in self.begins.items()]
        begins = runs.sparkSession.createDataFrame(rows, f"topic string, subscription string, {_BEGIN} bigint")
        due = F.unix_millis("due_time") >= F.coalesce(_BEGIN, F.lit(self.since_ms))
        late = F.unix_millis("released_at") >= F.lit(self.released_ms)
        return runs.join(F.broadcast(begins), ["topic", "subscription"], "left").where(due | late).drop(_BEGIN)


def restore(warehouse: Warehouse, settings: Settings) -> None:
    """Hold what lies on the shelf when a file of it is gone. Killed anywhere, it is called again.

    Raises:
        TableBehind: a note is gone. Rebuild dispatch.
    """
    work = _Restoring(warehouse, settings)
    held = work.held()
    if held.lost:
        raise TableBehind(DISPATCH, PREPARED, held.visible.top, held.top)
    if held.broken:
        last = max(held.waiting, key=lambda each: each.source)
        work.look(held, RestoreScope.back_to(last.source, last.owner, last.batch, held.since_ms, {}))


def restore_all(
    warehouse: Warehouse, settings: Settings, furthest: Commit | None = None, *, whole: bool = False
) -> Offset:
    """Find what was prepared and is gone, for a new checkpoint, which begins where dispatch ended.

    That may be so, too, when notes are gone with the old checkpoint.

    All that was released up to there and is nowhere is looked for, as far back as deliveries are there: users delete
    old ones (decision 0117). When the log of `redelivery` begins behind that place, it is all that is released.

    Args:
        warehouse: where the tables lie.
        settings: of the job.
        furthest: the furthest commit by which dispatch held something, or left all of a batch out. When no note and no
            delivery goes as far, a note may be gone of what was prepared before it.
        whole: tables and notes are known to be of one instant. Then nothing is looked for while no file is gone.

    Returns:
        The place in `redelivery` up to which all is visible, held, refused or prepared.
    """
    work = _Restoring(warehouse, settings)
    held, files, redelivery = work.held(), warehouse.files, warehouse.path(REDELIVERY)
    # What a batch was to do to `held` is done by now.
    last = work.deliveries.last, furthest, last_commit(warehouse, HELD, DISPATCH)
    commits = [each for each in last if each is not None]
    places = [(source_of(each), each.batch, each.owner) for each in commits]
    places += [(each.source, each.batch, each.owner) for each in held.waiting]
    upto, batch, owner = max(places, default=(NOWHERE, 0, _RESTORED))
    cut = oldest(files, redelivery) > max(0, upto[0] - 1)
    if not commits and not cut:
        # Nobody has anything yet: what is not prepared is taken from the beginning.
        if not held.whole:
            work.forget(held)
        return NOWHERE
    if whole and held.whole:
        # What was cut was taken. Batches that handed nothing over are looked at again.
        return (oldest(files, redelivery), EVERYTHING_BEFORE) if cut else upto
    upto = (newest(files, redelivery) + 1, EVERYTHING_BEFORE) if cut else upto
    if work.deliveries.last is None:
        work.look(held, RestoreScope.back_to(upto, owner, batch, FIRST_INSTANT_MS, {}))
    else:
        work.look(held, RestoreScope.back_to(upto, owner, batch, held.since_ms, work.begins()))
    return upto


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
    held = rows_here(warehouse, HELD, REDELIVERY.columns.names, most).cast(arrow_schema(REDELIVERY.columns))
    _, gone = said(warehouse, refused.owner, refused.batch, begin).split_withdrawn(held)
    return bool(gone.num_rows)


class _Restoring:
    """Reads from the tables what was prepared and is not there any more."""

    def __init__(self, warehouse: Warehouse, settings: Settings) -> None:
        self._warehouse, self._settings = warehouse, settings
        self._files = warehouse.files
        self._shelf = PreparedStore(self._files, warehouse.path(DELIVERIES))
        self.deliveries = Sink(warehouse, DELIVERIES, DISPATCH)

    def held(self) -> PreparedState:
        """Finish what the last batch on the shelf was to do to the table `held`; then say what is on the shelf."""
        finish(self._warehouse, self._shelf)
        self._shelf.sweep()
        return PreparedState.of(self._shelf, self.deliveries)

    def begins(self) -> dict[Name, int]:
        """When the first delivery of each subscription was due that is there, ms UTC."""
        rows = ask(self._warehouse, DELIVERIES, _FIRST)
        return {(row["topic"], row["subscription"]): round(row["due"].timestamp() * 1_000) for row in rows}

    def look(self, held: PreparedState, wanted: RestoreScope) -> None:
        """Hold what is looked for and found, so that dispatch decides again what comes of it.

        Nobody can tell what was handed over from what was left out: users may have deleted the rows that say so. When
        not all is whole that is noted, all of it is looked for, and the notes go.
        """
        lacking = self._lacking(held, wanted)
        if lacking.num_rows:
            _LOG.warning("%d deliveries were in no table, or lacked files or notes; they are held", lacking.num_rows)
            self._hold(lacking, wanted)
        if not held.whole:
            # It counts as visible, or its batches would be taken once more.
            shown = Visible(held.top, frozenset(), wanted.upto, held.released_at).as_dict()
            note = shown | {"shown": [], _SHOWN: held.shown_ms}
            self.deliveries.commit([], wanted.owner, wanted.batch, note)
            self.forget(held)

    def _hold(self, runs: pa.Table, wanted: RestoreScope) -> None:
        """Hold runs, and note up to where dispatch has come."""
        backlog = Backlog(self._warehouse, Sink(self._warehouse, HELD, DISPATCH))
        change = backlog.written(BacklogChange(held=in_order(as_held(runs))))
        since = hidden_since(self._warehouse, self.deliveries.last)
        backlog.commit(change, wanted.owner, wanted.batch, (None, wanted.upto), since)

    def forget(self, held: PreparedState) -> None:
        """Drop the notes that were on the shelf."""
        for each in held.waiting:
            self._shelf.drop(each)

    def _lacking(self, held: PreparedState, wanted: RestoreScope) -> pa.Table:
        """A row of `redelivery` for each position that dispatch has taken and that is nowhere."""
        mark = read_mark(self._files, self._warehouse.root)
        taken_out = taken_since(self._warehouse, self.deliveries.last)
        if taken_out is None:
            wanted, taken_out = replace(wanted, since_ms=FIRST_INSTANT_MS, begins={}), _NO_RUNS
        since = self._first_due(wanted)
        # By its own due time: what comes again, or came late, is due long after its message was.
        above = f"NOT {mark.covers('due_time')}"
        lacking = _numbered(wanted.of(self._taken(wanted.upto, f"{wanted.where} AND {above}")))
        if taken_out.num_rows:
            since = min(since, int(longs(taken_out, "due_time").min()) // 1_000)
            taken = _numbered(arrow_frame(self._warehouse.spark, taken_out))
            lacking = lacking.unionByName(taken).dropDuplicates(_KEYS)
        lacking = lacking.join(_numbered(self._rows(HELD)).select(_KEYS), _KEYS, "left_anti")
        recent = _from(since, "due_time")
        rejected = self._rows(REJECTED_DISPATCH, recent).withColumn(_NUMBER, F.expr(ROUND))
        # A position is delivered in one of its rounds; what is left out of it is one of them.
        shown = [(rejected, _KEYS), (self._rows(DELIVERIES, recent), _KEYS[:-1])]
        shown += [(self._noted(held.kept), _KEYS[:-1])] if held.kept else []
        for rows, keys in shown:
            lacking = lacking.join(rows.withColumnRenamed("entry_id", "first_entry").select(keys), keys, "left_anti")
        # Below the mark all was delivered, and deliveries may be deleted. It is read after the tables.
        mark = read_mark(self._files, self._warehouse.root)
        return lacking.where(f"NOT {mark.covers('due_time')}").select(REDELIVERY.columns.names).toArrow()

    def _first_due(self, wanted: RestoreScope) -> int:
        """When the first of what may be wanted was due, ms UTC."""
        query = f"SELECT MIN(due_time) AS due FROM {{rows}} WHERE {wanted.where}"  # noqa: S608 - times
        (row,) = ask(self._warehouse, REDELIVERY, query)
        due = row["due"]
        return FIRST_INSTANT_MS if due is None else math.floor(due.timestamp() * 1_000)

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
        columns = [name for name in table.columns.names if name in (*REDELIVERY.columns.names, "entry_id")]
        return frame_of(self._warehouse, table, columns, version, where, self._settings.driver_rows)


def _numbered(runs: DataFrame) -> DataFrame:
    """A row for each position of runs in the columns of `redelivery`, with its round."""
    return positions(runs.select(REDELIVERY.columns.names)).withColumn(_NUMBER, F.expr(ROUND))


def _from(since_ms: int, column: str) -> str:
    """SQL, also of DataFusion: what is in a column is an instant or later."""
    # DataFusion's literals do not reach back to the first year.
    return "true" if since_ms == FIRST_INSTANT_MS else f"{column} >= {_moment(since_ms)}"


def _moment(ms: int) -> str:
    return f"TIMESTAMP '{(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).isoformat()}'"
