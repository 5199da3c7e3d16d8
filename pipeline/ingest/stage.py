"""Ingest, batch by batch: the log first, then what the schedule reads.

A batch commits up to five times: `messages`, `replaced`, `rejected_ingest`, `redelivery`, `segments`. Every commit
carries the batch's plan, that is all that decided its rows and is not in them. A repeated batch that finds a plan
follows it, whatever the settings say now, and encodes positions from what `messages` holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.lazyspark import F, pyspark, raised
from pipeline.config.options import Options, StageListener
from pipeline.config.routes import DRIVER, FORM, NotInDriver
from pipeline.config.session import compiled
from pipeline.config.settings import MINUTE_MS
from pipeline.config.stages import INGEST, SCHEDULE
from pipeline.config.timeline import timeline
from pipeline.config.zones import RULES
from pipeline.delta.checkpoints import Checkpoint, Log, Position, Progress
from pipeline.delta.logs.change import Change
from pipeline.delta.logs.entries import between, newest, rows_of
from pipeline.delta.logs.logstore import TableLog
from pipeline.delta.reading.arrival import with_place
from pipeline.delta.reading.messages import Bounds, MessageLog, about
from pipeline.delta.reading.strangers import FilesBroken, LeftOut, places
from pipeline.delta.tables import segment_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import BatchCommits
from pipeline.delta.writing.oncewriter import Rows, Sink
from pipeline.ingest.accept_local import NO_ROWS, LocalBatch, local_inbox
from pipeline.ingest.accept_spark import SparkBatch
from pipeline.ingest.changes import Changes, in_order_of_inbox, refused
from pipeline.ingest.core.terms import Counts
from pipeline.ingest.expressgate import ExpressGate
from pipeline.ingest.inboxcolumns import check_columns
from pipeline.ingest.listening import Listening
from pipeline.ingest.plan import Plan
from pipeline.ingest.refusals import say_refused
from pipeline.ingest.segments import (
    BACKFILL,
    EXPRESS,
    LOAD,
    NEAR,
    Membership,
    bounds,
    local_segment_rows,
    pieces,
    segment_rows,
)
from pipeline.ingest.uniquekeys import UniqueKeys, check_again, with_decided
from pipeline.storage.gather import Gathered
from pipeline.subscriptions.daysoff import DaysOff
from pipeline.subscriptions.limits import Limits
from pipeline.subscriptions.lines import Registered
from pipeline.subscriptions.markers import IngestMemory, Marker, Markers, marker_rows
from pipeline.subscriptions.registry import Registry, refusals
from pipeline.worker.express import Express
from pipeline.worker.unpack import RUN
from schemas import INBOX, MESSAGES, REDELIVERY, REJECTED_INGEST, REPLACED, SEGMENTS
from state.units import Ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batch = LocalBatch | SparkBatch
_OF_FILES = (FilesBroken, OSError, pa.ArrowException)
"""What a batch fails with when one of its files cannot be read here; it may have other reasons."""
_FILE_BYTES = 32 << 20
"""Of encoded positions, about ten million of them."""
_THREADS = "local["
"""How the master of a session is called whose executors are threads of this process."""


class Ingest:
    """The body of the ingest query: call it with each batch. Lives as long as the query runs."""

    def __init__(self, warehouse: Warehouse, checkpoint: Log, options: Options) -> None:
        """Look up once what the tables hold."""
        self._warehouse, self._checkpoint = warehouse, checkpoint
        self._settings, self._observe = options.settings, options.observe
        self._timeline = timeline(options.clock)
        self.watch = StageListener()
        head = TableLog(warehouse.session, warehouse.path(INBOX)).head()
        check_columns(head)
        Limits(self._settings.max_payload_bytes, self._settings.max_delay_ms).put(warehouse.files, warehouse.root)
        self._plain = head.protocol["minReaderVersion"] <= 1
        self._files, self._segment_ms = warehouse.files, segment_ms(warehouse)
        self._registry, self._log = Registry(warehouse), MessageLog(warehouse)
        self._changes, tables = Changes(warehouse), (MESSAGES, REPLACED, REJECTED_INGEST, SEGMENTS)
        self.sinks = {t.name: Sink(warehouse, t, INGEST, checkpoint.wrote) for t in tables}
        self.sinks[REDELIVERY.name] = Sink(warehouse, REDELIVERY, INGEST, after=self._unmarked())
        live = self._timeline.live
        schedule = Progress(Checkpoint(self._files, warehouse.checkpoint(SCHEDULE))) if live else None
        self._gate = ExpressGate(schedule, self.sinks, self._settings.express_ms or 0)
        self._memory: IngestMemory | None = None
        self._markers, self._unique = Markers(warehouse), UniqueKeys(warehouse, self._log, options)
        self._listening, self._days = Listening(self._registry, self._markers), DaysOff(warehouse)
        last = [sink.last for sink in self.sinks.values() if sink.last is not None]
        # What another checkpoint called now is in where this one begins.
        own = [Ms(commit.note["now"]) for commit in last if commit.owner == checkpoint.owner]
        self._last_instant = max([checkpoint.start(0).instant, *own])

    def __call__(self, session: SparkSession | None, batch_id: int) -> None:
        """Take one batch: rows of the inbox between two places. `session` is that of the query."""
        commits = self._commits(self._checkpoint.owner or "", batch_id)
        start, end = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
        # Most batches are of ticks alone.
        is_idle = (start.version, start.index) >= (end.version, end.index)
        changes, left = ([], []) if is_idle else self._changes.between(start, end)
        noted = _noted(commits)
        plan = noted or replace(self._plan(start, end, changes), left=tuple(left))

        def done(plan: Plan) -> None:
            with self._batch(session, plan, start, end, changes, batch_id, checked=noted is not None) as batch:
                passed = refused((each for each in changes if each.version < end.version), plan.merged, plan.left)
                self._take(batch, passed, plan, commits, again=noted is not None)
                if batch.unique.parts:
                    self._unique.took(batch.ended if noted is None else None)

        # Each turn leaves out files that the one before it has met.
        while True:
            try:
                return done(plan)
            except raised("PySparkException", "Py4JError", *_OF_FILES) as error:
                # What was begun is done as it was planned, or not at all.
                more = () if _noted(commits) else self._broken(error, start, end, plan)
                if not more:
                    raise
                plan = replace(plan, left=(*plan.left, *more))

    def write_again(self, session: SparkSession | None, plan: Plan, owner: str, batch_id: int) -> None:
        """Write to `messages` what it lacks of a batch that other tables have: the same rows, at the same positions."""
        start, end = Position(plan.now, *plan.begin), Position(plan.now, *plan.source)
        changes, _ = self._changes.between(start, end)
        with self._batch(session, plan, start, end, changes, batch_id, checked=True) as batch:
            plan.check_again(batch.terms, batch.counts.accepted)
            self._write_messages(batch, plan, self._commits(owner, batch_id))

    def _commits(self, owner: str, batch_id: int) -> BatchCommits:
        return BatchCommits(INGEST, self.sinks, owner, batch_id, self._observe)

    def _broken(self, error: Exception, start: Position, end: Position, plan: Plan) -> Collection[LeftOut]:
        """The files that stand in the way of a batch; with one that unfolds to too much all that do."""
        if not isinstance(error, FilesBroken):
            return self._changes.broken(start, end, plan.left)
        most = self._settings.max_unfolded_bytes
        return dict.fromkeys((*error.files, *self._changes.unfolding(start, end, plan.left, most)))

    @contextmanager
    def _batch(
        self,
        session: SparkSession | None,
        plan: Plan,
        start: Position,
        end: Position,
        changes: Sequence[Change],
        number: int,
        *,
        checked: bool,
    ) -> Iterator[Batch]:
        """The rows of a batch, looked at: in this process when that can be, else by Spark.

        Raises:
            FilesBroken: some of its files cannot be read, or unfold to too much and were not `checked` before.
        """
        idle = (start.version, start.index) == (end.version, end.index)
        registered = Registered() if idle else self._registry.at(plan.registry)
        ticks = self._listening.ticks(plan, registered.topics, self._memory)
        topics = self._days.followed(registered.topics, plan.calendars)
        topics = topics if idle else self._unique.followed(topics, plan.now)
        terms = plan.terms(topics, ticks, self._segment_ms, self._settings.entries_per_ledger, number)
        if idle:
            # A tick alone: there may be something to load.
            yield LocalBatch.of(NO_ROWS, terms)
            return
        decide = self._unique.decide(plan, lambda: self._recall(plan).lives)
        new = [self._changes.inserted(each) for each in changes if each.version in plan.merged]
        inbox = self._inbox_here(start, end, changes, plan.left, merged=bool(new), checked=checked)
        if inbox is not None:
            self.watch.took(INGEST, inbox.rows.num_rows)
            yield LocalBatch.of(inbox, terms, decide)
            return
        if not checked and (files := self._changes.unfolding(start, end, plan.left, self._settings.max_unfolded_bytes)):
            raise FilesBroken(files)
        warehouse = self._warehouse.within(session)
        with compiled(warehouse.spark, when=self._is_large(start, end)):
            rows = with_place(warehouse.between(INBOX, start.offset, end.offset, places(plan.left)))
            rows = in_order_of_inbox(warehouse, rows, start, end, changes)
            ordered = reduce(pyspark.sql.DataFrame.unionByName, new, rows)
            with SparkBatch.of(ordered, terms, decide) as batch:
                self.watch.took(INGEST, batch.counts.accepted + batch.counts.rejected)
                yield batch

    def _inbox_here(
        self,
        start: Position,
        end: Position,
        changes: Sequence[Change],
        left: Sequence[LeftOut],
        *,
        merged: bool,
        checked: bool,
    ) -> Gathered | None:
        """The rows of a batch, when they can be taken in this process; rows that were `merged` cannot.

        Raises:
            FilesBroken: some of its files cannot be read.
        """
        without = {each.version for each in changes}
        # Files of a table with other features may have rows that do not count, or columns of other names.
        rows, way = None, FORM
        if self._plain and not merged:
            try:
                where = (self._warehouse, start, end, self._settings)
                rows, way = local_inbox(*where, without, places(left), checked=checked), DRIVER
            except NotInDriver as error:
                way = error.reason
                # Spark cannot read a broken file either, and takes long to say so.
                if error.__cause__ is not None and (files := self._changes.broken(start, end, left)):
                    raise FilesBroken(files) from error
        self.watch.routed(INGEST, way)
        return rows

    def _is_large(self, start: Position, end: Position) -> bool:
        """By the log. When that does not say, it is an old one, or somebody else's."""
        ends = ((each.version, each.index) for each in (start, end))
        count = rows_of(between(self._files, self._warehouse.path(INBOX), *ends))
        return count is None or count > self._settings.rows_per_task

    def _take(self, batch: Batch, passed: pa.Table, plan: Plan, commits: BatchCommits, *, again: bool) -> None:
        # What was written before follows the time-zone data of then.
        counts = replace(batch.counts, unsure=again and batch.terms.topics.are_unsure)
        plan = with_decided(plan, batch.unique)
        if counts.accepted or counts.rejected:
            self._observe("ingest.counted", commits.number)
            say_refused(counts)
            self.watch.unknown_zones(counts.zones)
            for reason, count in counts.reasons.items():
                self.watch.rejected(reason, count)
            plan = self._write_messages(batch, plan, commits)
        if batch.unique.parts and (rows := batch.ended.replaced).num_rows and commits.note(REPLACED) is None:
            check_again(plan, batch.unique, batch.terms.topics)
            commits.append(REPLACED, rows, plan.as_note())
        memory = self._recall(plan)
        if commits.note(SEGMENTS) is not None:
            return
        members = self._listening.members(plan, memory.lives)
        moved = plan.seen < plan.registry
        unfollowed = self._registry.not_held_at(plan.seen, members.refused) if moved else ()
        wrong = self._registry.wrong_since(plan.seen, plan.registry) if moved else {}
        if counts.rejected or unfollowed or wrong or passed.num_rows:
            rows = batch.rejected(pa.concat_tables([refusals(unfollowed, wrong), passed]))
            commits.append(REJECTED_INGEST, rows, plan.as_note())
        # What is due too soon to wait is released before `segments` says that the batch was addressed.
        if counts.some_express and commits.note(REDELIVERY) is None:
            released = self._released(members, plan, commits.number)
            if released is not None:
                commits.append(REDELIVERY, released, plan.as_note())
        members = replace(members, refused=unfollowed, wrong=frozenset(wrong))
        self._write_segments(counts, members, plan, commits, again=again)

    def _write_messages(self, batch: Batch, plan: Plan, commits: BatchCommits) -> Plan:
        """Write the log; give the plan with the ledgers that it took."""
        accepted = batch.counts.accepted
        if not accepted or commits.note(MESSAGES) is not None:
            return plan
        end = plan.filled(accepted, self._settings.entries_per_ledger)
        plan = replace(plan, next_ledger=end, near=accepted > batch.counts.express)
        commits.append(MESSAGES, batch.messages(self._settings), plan.as_note())
        return plan

    def _released(self, members: Membership, plan: Plan, batch_id: int) -> Rows | None:
        """Rows of `redelivery`; None when nobody listens."""
        where = (members, plan.span, self._segment_ms, frozenset({EXPRESS}))
        express = Express(plan.express, batch_id, plan.now, plan.scheduled, self._settings.express_ms or 0)
        if self._settings.driver_rows:
            with suppress(NotInDriver):
                files = list(pieces(express(local_segment_rows(self._log, *where)), _FILE_BYTES, RUN))
                return files if files[0].num_rows else None
        log = self._log.read([bounds(EXPRESS, plan.span)])
        return segment_rows(log, *where).mapInArrow(express.__call__, REDELIVERY.schema)

    def _write_segments(
        self, counts: Counts, members: Membership, plan: Plan, commits: BatchCommits, *, again: bool
    ) -> None:
        """Address positions to subscriptions, and note how far the parked ones are loaded; both or neither.

        A batch of which all was released needs no marker for itself. One a minute says that its ledgers are addressed,
        and so does a batch that is repeated, so that a rebuild finds every ledger addressed.
        """
        memory = self._recall(plan)
        load = memory.waits_before(plan.load_until, self._segment_ms)
        wanted = {NEAR: counts.some_near, LOAD: load, BACKFILL: bool(members.backfill)}
        kinds = frozenset(kind for kind, needed in wanted.items() if needed)
        if not (kinds or members.changed or again or self._is_mark_old(plan)):
            self._memory = replace(memory, next_ledger=plan.next_ledger)
            return
        left = {name: memory.lives[name].number for name in members.left}
        marker = Marker(memory.marker + 1, plan.load_until, plan.next_ledger, members.joined, left)
        rows = self._segment_rows(members, plan, kinds, marker_rows(marker), counts.accepted, commits.number)
        commits.append(SEGMENTS, rows, plan.as_note())
        self._memory = self._markers.bounded(memory.after(marker, counts.parked, self._segment_ms))

    def _unmarked(self) -> int:
        """The version of `redelivery` after which the last batch may have written there: further back none is needed.

        It is the schedule's table, too, and the last commit of ingest may be far back in its log.
        """
        last = self.sinks["messages"].last
        noted = -1 if last is None else last.note.get("redelivery", -1)
        return noted if noted >= 0 else newest(self._files, self._warehouse.path(REDELIVERY))

    def _is_mark_old(self, plan: Plan) -> bool:
        """Whether ledgers have been without a marker for a minute, or may have been."""
        last = self.sinks["segments"].last
        known = 0 if last is None else int(last.note["next_ledger"])
        since = 0 if last is None else int(last.note["now"])
        return known < plan.next_ledger and plan.now - since >= MINUTE_MS

    def _segment_rows(
        self, members: Membership, plan: Plan, kinds: frozenset[str], markers: pa.Table, count: int, batch_id: int
    ) -> Rows:
        """Encoded positions of some kinds, and markers: in the driver when it may, else by Spark.

        `count` is how many were accepted just now; few of them are one task of Spark's.
        """
        span = replace(plan.span, oldest=members.oldest)
        where = (members, span, self._segment_ms, kinds)
        if self._encodes_here([bounds(kind, span) for kind in kinds]):
            with suppress(NotInDriver):
                rows = chain(local_segment_rows(self._log, *where), markers.to_batches())
                files = pieces(rows, min(_FILE_BYTES, self._settings.max_bytes))
                return [each.append_column("batch_id", pa.repeat(batch_id, each.num_rows)) for each in files]
        log = self._log.read([bounds(kind, span) for kind in kinds])
        both = segment_rows(log, *where).unionByName(arrow_frame(self._warehouse.spark, markers))
        both = both.coalesce(1) if count <= self._settings.rows_per_task and kinds <= {NEAR} else both
        return both.withColumn("batch_id", F.lit(batch_id))

    def _encodes_here(self, wanted: Sequence[Bounds]) -> bool:
        """Whether positions are encoded in this process, if it reaches them.

        They pass through, however many they are, at several times the speed of an executor. So more of them than the
        driver takes in are given to executors only where those have cores of their own (decision 0054).
        """
        most = self._settings.driver_rows
        session = self._warehouse.session
        if not most or session is None or str(session.sparkContext.master).startswith(_THREADS):
            return most > 0
        files = self._log.files(wanted)
        return sum(about(files, each) for each in wanted) <= most

    def _plan(self, start: Position, end: Position, changes: Sequence[Change]) -> Plan:
        """A plan for a batch of which nothing is written yet. What is loaded only grows, whatever the settings say."""
        memory = self._recall(None)
        # A live clock ticks now and then; a message that comes in between counts its delay from when it came.
        now = self._timeline.within_a_step(end.instant, self._last_instant)
        ahead = now + self._settings.horizon_ms
        until = max(memory.loaded, (ahead // self._segment_ms + 1) * self._segment_ms)
        limits = (self._settings.max_delay_ms, self._settings.max_payload_bytes)
        span = (start.version, start.index), (end.version, end.index)
        ledger, registry, last = memory.next_ledger, self._registry.version(), self.sinks["segments"].last
        seen = -1 if last is None else int(last.note["registry"])
        self._last_instant = now
        merged = tuple(each.version for each in changes if each.version < end.version and self._changes.separates(each))
        plan = Plan(now, limits, memory.loaded, until, ledger, ledger, seen, registry, *span, merged)
        topics = self._registry.at(registry).topics
        plan = replace(plan, entries=self._settings.entries_per_ledger, rules=RULES, marker=memory.marker)
        plan = replace(plan, calendars=self._days.version(topics))
        if span[0] == span[1] or seen != registry or not self._settings.express_ms:
            # Who has just come is known to dispatch by a marker of this batch: it has to come first.
            return plan
        soon = self._gate.bound(now, until)
        if not soon:
            return plan
        newest = self.sinks["redelivery"].appender.newest()
        return replace(plan, express=soon, redelivery=newest, scheduled=self._gate.scheduled)

    def _recall(self, plan: Plan | None) -> IngestMemory:
        """What earlier batches left; read from the tables once, before the first plan or after a noted one."""
        if self._memory is None:
            memory = IngestMemory.of_tables(self._warehouse, self._log, self._segment_ms)
            self._memory = (
                memory if plan is None else replace(memory, next_ledger=max(memory.next_ledger, plan.next_ledger))
            )
        return self._memory


def _noted(commits: BatchCommits) -> Plan | None:
    """The plan of a batch of which something is committed."""
    note = commits.plan
    return None if note is None else Plan.of_note(note)
