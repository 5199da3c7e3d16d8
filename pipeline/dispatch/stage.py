"""Dispatch: positions that became due are joined with their messages and handed over, in the stated order.

A batch writes its files, says in `rejected_dispatch` what has no message and what was withdrawn by commands, and notes
what it wrote; the publisher makes that visible when it is due, and accounts for it in `publications`. What is due and
may not be taken, because its subscription is paused, is held in `held` until it may (decision 0059). What has expired
is left out like what was withdrawn (decision 0060), and so is what does not meet a guard (decision 0061).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.arrowframe import arrow_frame
from pipeline.config.lazyspark import pyspark
from pipeline.config.options import Options, StageListener
from pipeline.config.routes import DRIVER, NotInDriver
from pipeline.config.stages import DISPATCH
from pipeline.config.timeline import timeline
from pipeline.delta.checkpoints import COMMITS, Log
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.warehouse import Warehouse
from pipeline.delta.writing.batchcommits import BatchCommits
from pipeline.delta.writing.oncewriter import Sink
from pipeline.dispatch import release_spark
from pipeline.dispatch.asking import Failed
from pipeline.dispatch.backlog import Backlog
from pipeline.dispatch.backlogchange import BacklogChange
from pipeline.dispatch.batch import BatchInputs, BatchResult, Release, Rows
from pipeline.dispatch.closed import Closed, ClosedLog
from pipeline.dispatch.core import expiry
from pipeline.dispatch.core.expiry import LookUp
from pipeline.dispatch.core.holding import Allowance, Who, counted
from pipeline.dispatch.core.runs import at_time
from pipeline.dispatch.core.shaping import (
    AHEAD_MS,
    LONGEST_MS,
    Pacing,
    allowances,
    as_of,
    expired_until,
    is_open,
    next_look,
    within_hours,
)
from pipeline.dispatch.core.withdrawn import UNDECIDED, named
from pipeline.dispatch.evaluator import shared
from pipeline.dispatch.guarding import Guards
from pipeline.dispatch.plan import Plan
from pipeline.dispatch.prepared import PREPARED, Part, Prepared, PreparedStore
from pipeline.dispatch.priority import priorities_of
from pipeline.dispatch.publisher import Publisher
from pipeline.dispatch.release import Stamp
from pipeline.dispatch.release_local import Found, LocalRelease, local_runs
from pipeline.dispatch.release_spark import SparkRelease
from pipeline.dispatch.values import Values
from pipeline.dispatch.withdrawnlog import WithdrawnLog, said
from pipeline.dispatch.withdrawnlog import withdrawn_rows as withdrawn_arrays
from pipeline.storage.arrays import longs
from pipeline.subscriptions.guards import FOLDER as GUARD_FOLDER
from pipeline.subscriptions.guards import GuardStates
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.markers import PresentIncarnations
from pipeline.subscriptions.registry import Registry
from schemas import DELIVERIES, EXPIRED, HELD, REDELIVERY, REJECTED_DISPATCH, SUPPRESSED, WAS_REPLACED
from state.units import EPOCH, Ms, Us, ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Dispatch:
    """The body of the dispatch query: call it with each batch of `redelivery`."""

    def __init__(self, warehouse: Warehouse, checkpoint: Log, options: Options) -> None:
        """Look up once what the tables hold."""
        self._warehouse, self._checkpoint = warehouse, checkpoint
        self._settings, self._observe = options.settings, options.observe
        self._timeline = timeline(options.clock)
        self.watch = StageListener()
        self._registry, self._presence = Registry(warehouse), PresentIncarnations(warehouse)
        self._log, self._closed = MessageLog(warehouse), ClosedLog(warehouse)
        # Now, and not when the first message is due: the first look at the files of a table takes a job.
        self._log.files(())
        self._withdrawn = WithdrawnLog(warehouse)
        self.sinks = {t.name: Sink(warehouse, t, DISPATCH, checkpoint.wrote) for t in COMMITS[DISPATCH]}
        shown = self.sinks["deliveries"], self.sinks["publications"]
        store = PreparedStore(warehouse.files, warehouse.path(DELIVERIES))
        self.publisher = Publisher(store, *shown, self._timeline, self._observe)
        values = Values(warehouse, self._log, self._settings)
        self._backlog = Backlog(warehouse, self.sinks["held"], values)
        self._pacing = Pacing(LONGEST_MS if self._timeline.live else None)
        evaluator = shared(self._settings.guard_timeout_ms, self._settings.guard_bytes, patient=not self._timeline.live)
        folders = (f"{warehouse.root}/{GUARD_FOLDER}", *self._settings.guard_tables)
        self._guards = Guards(GuardStates(warehouse.files, warehouse.root), evaluator, folders)
        self._ahead = AHEAD_MS if self._timeline.live else 0
        self._last = EPOCH

    def next_look(self, now: Ms) -> Ms | None:
        """When something that is held may go though nobody writes anything, ms UTC; None: a pause alone holds it."""
        shapings = self._registry.newest().shapings
        return next_look(shapings, self._backlog.waiting, now)

    def has_work(self, now: Ms) -> bool:
        """Whether something that is held may be taken, at a time in ms UTC.

        Then a batch is due, whatever is new in `redelivery`. Rates count from the first time at which it is asked.
        """
        waiting = self._backlog.waiting
        if self._lacks_time(now):
            return True
        if not waiting:
            return False
        registered = self._registry.newest()
        shapings = as_of(registered.shapings, registered.hours, now)
        failing = self._guards.failing(shapings, now)
        self._pacing.follow(shapings, waiting, now, failing)
        return is_open(shapings, waiting, self._pacing, now, self._ahead, failing)

    def _lacks_time(self, now: Ms) -> bool:
        """By a virtual clock: whether open hours have begun or ended since the time of the last batch.

        A batch that takes only what is new in `redelivery` has the instant of the one before.
        """
        if self._timeline.live:
            return False
        openings = ([each.opening(at) for at in (self._last, now)] for each in self._registry.newest().hours.values())
        return any(before != then or (before[0] <= self._last) != (then[0] <= now) for before, then in openings)

    def __call__(self, session: SparkSession | None, batch_id: int) -> None:
        """Hand over one batch, unless it is prepared already. `session` is that of the query."""
        self._last = self._checkpoint.position(batch_id).instant
        commits = BatchCommits(DISPATCH, self.sinks, self._checkpoint.owner or "", batch_id, self._observe)
        if not self.publisher.knows(commits.owner, batch_id) and commits.note(HELD) is None:
            self._prepare(session, commits)
        self.publisher.publish_due()
        self._guards.look(self._backlog.undecided, self._now(batch_id))
        for sink in self.sinks.values():
            sink.appender.checkpoint()

    def _prepare(self, session: SparkSession | None, commits: BatchCommits) -> None:
        """Write the deliveries of a batch; first say what is missing or withdrawn, then note what is written."""
        owner, batch_id, note = commits.owner, commits.number, commits.note(REJECTED_DISPATCH)
        known = None if note is None else Plan.of_note(note)
        if known is not None and known.complete:
            return  # It has done all, and what decided it may be gone.
        registry, lives = self._versions() if known is None else known.decided_by
        inputs = self._inputs(registry, lives, batch_id) if known is None else self._repeated(known, owner, batch_id)
        inputs, took = self._taken(session, inputs, batch_id)
        self._pacing.took(self._rated(registry, took.handed), self._now(batch_id))
        if not took:
            return
        self._observe("dispatch.counted", batch_id)
        stamp = Stamp(batch_id, self._instant(took, batch_id))
        parts = self._write(took, stamp)
        ends = self._checkpoint.start(batch_id).offset, self._checkpoint.position(batch_id).offset
        done, allowed = not parts and not took.change, took.change.allowed
        versions, undecided = (inputs.closed.version, inputs.withdrawn.version), named(took.undecided)
        plan = Plan(registry, lives, *ends, *versions, complete=done, allowed=allowed, undecided=undecided)
        rejected = _rejected(took.release, parts, took.left_out, batch_id)
        if rejected is not None:
            commits.append(REJECTED_DISPATCH, rejected, plan.as_note())
            for (reason, (topic, name, _)), count in took.counts.items():
                self.watch.left_out(topic, name, reason, count)
        held = self._backlog.written(took.change) if took.change else None
        if parts:
            prepared = Prepared(owner, batch_id, stamp.released_at, *ends[1:], parts, ends[0], held=held)
            self.publisher.take(prepared, self._hold, [] if took.release is None else took.release.shares(parts))
            self._checkpoint.wrote(PREPARED, self.publisher.top)
            self._observe("dispatch.noted", batch_id)
        elif held is not None:
            self._backlog.commit(held, owner, batch_id, ends, self.publisher.held_from)
            self._observe("dispatch.held", batch_id)

    def _now(self, batch_id: int, released: Ms = EPOCH) -> Ms:
        """The time by which a batch is decided, ms UTC.

        By a virtual clock that is when it lets go of what is held, or when something was `released`.
        """
        return self._timeline.now(max(self._checkpoint.position(batch_id).instant, released))

    def _rated(self, registry: int, handed: Mapping[Name, int]) -> dict[Name, tuple[int, int]]:
        """How much was handed over of subscriptions that have a rate, and the rate."""
        shapings = self._registry.at(registry).shapings
        rates = ((name, count, shapings[name].max_rate) for name, count in handed.items() if name in shapings)
        return {name: (count, rate) for name, count, rate in rates if rate}

    def _inputs(self, registry: int, lives: int, batch_id: int) -> BatchInputs:
        """By what a batch is decided that has said nothing yet.

        It is looked up after the end of the batch was: so a command, or a pause, counts for all that is released later.
        """
        registered = self._registry.at(registry)
        present = self._presence.at(lives, registered.lines)
        most, waiting, now = self._settings.held_rows, self._backlog.waiting, self._now(batch_id)
        shapings = as_of(registered.shapings, registered.hours, now)
        failing = self._guards.failing(shapings, now)
        self._pacing.follow(shapings, waiting, now, failing)
        allowed = allowances(shapings, waiting, present, most, self._pacing, now, self._ahead, failing)
        allowed = within_hours(allowed, registered.hours, now)
        # Who takes turns waits until it is known whose messages are held; others do not.
        allowed |= dict.fromkeys(self._backlog.unready(registered.fair, allowed, present), Allowance(0))
        withdrawn, order = self._withdrawn.look(present), priorities_of(shapings)
        decided = allowed, shapings, registry, order, registered.topics
        return BatchInputs(present, Closed(self._closed), withdrawn, *decided)

    def _repeated(self, plan: Plan, owner: str, batch_id: int) -> BatchInputs:
        """By what a batch was decided that is repeated: it leaves out what it said before."""
        registered = self._registry.at(plan.registry)
        present = self._presence.at(plan.lives, registered.lines)
        begin = self._checkpoint.start(batch_id).offset
        self._backlog.unready(registered.fair, plan.allowed, present, whole=True)
        withdrawn = said(self._warehouse, owner, batch_id, begin).and_undecided(plan.undecided)
        order = priorities_of(registered.shapings)
        return BatchInputs(present, Closed(self._closed, plan.closed), withdrawn, plan.allowed, priorities=order)

    def _hold(self, prepared: Prepared) -> None:
        """Do to the backlog what a batch does, when that is noted."""
        if prepared.held is not None:
            self._observe("dispatch.shelved", prepared.batch)
            self._backlog.commit(prepared.held, prepared.owner, prepared.batch, prepared.span, self.publisher.held_from)
            self._observe("dispatch.held", prepared.batch)

    def _instant(self, took: BatchResult, batch_id: int) -> Ms:
        """When a batch is released, ms UTC: of what was held that is when it is taken.

        Never before what was released earlier. By this instant readers know the order of batches, also behind a
        rebuild, which counts batches anew; and two stages release positions, whose instants are in no order.
        """
        released = EPOCH if took.release is None else took.release.window.released_at
        taken = self._checkpoint.position(batch_id).instant if took.change.gone else EPOCH
        return max(released, taken, self.publisher.released_at)

    def _write(self, took: BatchResult, stamp: Stamp) -> tuple[Part, ...]:
        """Write the files of the deliveries of a batch."""
        if took.release is None:
            return ()
        appender, now = self.sinks["deliveries"].appender, self._timeline.now(stamp.released_at)
        parts = took.release.write(appender, self._settings, stamp, now)
        self._observe("dispatch.written", stamp.batch_id)
        return parts

    def _taken(
        self, session: SparkSession | None, inputs: BatchInputs, batch_id: int
    ) -> tuple[BatchInputs, BatchResult]:
        """What a batch takes; what is guarded waits when its guard fails."""
        while True:
            try:
                return inputs, self._take(session, inputs, batch_id)
            except Failed as failed:
                for each in (failed, *failed.also):
                    self._guards.failed(each, self._now(batch_id))
                    inputs = inputs.holding(each.name)

    def _take(self, session: SparkSession | None, inputs: BatchInputs, batch_id: int) -> BatchResult:
        """What a batch takes: in this process when that can be, else by Spark."""
        ends = self._checkpoint.start(batch_id), self._checkpoint.position(batch_id)
        try:
            new = local_runs(self._warehouse, *ends, self._settings)
            now = self._now(batch_id, ms(Us(int(longs(new, "released_at").max(initial=0)))))
            runs, change = self._backlog.split_by_allowance(new, inputs.allowed, inputs.lives)
            left, gone, again = self._split_left_out(runs, inputs, self._look_up_here, now)
            left, change, handed = change.within(left)
            change = change.with_again(*again, now)
            left_out = withdrawn_arrays(gone, batch_id, self._settings.driver_rows) if gone.num_rows else None
            release = LocalRelease.of(left, inputs.lives, self._log, self._settings, inputs.closed, inputs.priorities)
        except NotInDriver as error:
            self.watch.routed(DISPATCH, error.reason)
            begin, end = (each.offset for each in ends)
            redelivery = self._warehouse.within(session).between(REDELIVERY, begin, end)
            return self._take_by_spark(redelivery, inputs, batch_id)
        self.watch.routed(DISPATCH, DRIVER)
        self.watch.took(DISPATCH, runs.num_rows)
        return BatchResult(release, left_out, change, _counts(gone), handed, pa.concat_tables(again))

    def _take_by_spark(self, runs: DataFrame, inputs: BatchInputs, batch_id: int) -> BatchResult:
        change, names, held = BacklogChange(), {*inputs.allowed, *inputs.shapings}, None
        gone, counts, handed = [], dict[tuple[str, Who], int](), dict[Name, int]()
        now = self._now(batch_id, EPOCH if self._timeline.live else release_spark.released_last(runs))
        if names:
            # What policies say of runs is said of arrays.
            own, runs = release_spark.of_names(runs, names)
            taken, change = self._backlog.split_by_allowance(own, inputs.allowed, inputs.lives)
            left, out, again = self._split_left_out(taken, inputs, self._look_up_by_spark, now)
            counts, held = _counts(out), pa.concat_tables(again)
            left, change, handed = change.within(left)
            change = change.with_again(*again, now)
            runs = runs.unionByName(arrow_frame(self._warehouse.spark, left)) if left.num_rows else runs
            gone += [release_spark.positions(arrow_frame(self._warehouse.spark, out))] if out.num_rows else []
        if inputs.withdrawn:
            ledgers = release_spark.ledgers(runs) if WAS_REPLACED in inputs.withdrawn.others else None
            runs, withdrawn = release_spark.split_withdrawn(runs, inputs.withdrawn.rows(ledgers))
            gone.append(release_spark.at_time(withdrawn, now))
        rows = [release_spark.withdrawn_rows(each, batch_id) for each in gone]
        left_out = reduce(pyspark.sql.DataFrame.unionByName, rows) if rows else None
        release = SparkRelease.of(runs, inputs.lives, self._log, inputs.closed, inputs.priorities)
        self.watch.took(DISPATCH, 0 if release is None else release.window.runs)
        left_out = None if left_out is None or left_out.isEmpty() else left_out
        return BatchResult(release, left_out, change, counts, handed, held)

    def _split_left_out(
        self, runs: pa.Table, inputs: BatchInputs, look_up: LookUp, now: Ms
    ) -> tuple[pa.Table, pa.Table, tuple[pa.Table, pa.Table]]:
        """Runs less what is left out, or held again, of them; what is left out; and what is held again.

        What is left out has the reason: withdrawn, else expired, else not met. Held again is that on which its guard
        fails, and that of which its guard says nothing yet. All is decided at a time, `now` (ms UTC).

        Raises:
            Failed: a guard cannot be evaluated.
        """
        left, gone = inputs.withdrawn.split_withdrawn(runs)
        is_undecided = pc.equal(gone.column("reason"), UNDECIDED)
        before, gone = gone.filter(is_undecided), gone.filter(pc.invert(is_undecided))
        left, late = expiry.split_expired(left, expired_until(inputs.shapings, now), look_up, inputs.topics)
        guarded = {name: each for name, each in inputs.shapings.items() if each.guard is not None}
        left, unmet, undecided, postponed = self._guards.split_by_guard(left, guarded, inputs.registry, look_up, now)
        # What was held is withdrawn now, and not when it was released.
        pieces = [at_time(each, now) for each in (gone, late, unmet)]
        undecided = pa.concat_tables([before.select(undecided.column_names), undecided])
        gone = pa.concat_tables(pieces, promote_options="default").combine_chunks()
        return left, gone, (undecided, postponed)

    def _look_up_here(self, runs: pa.Table) -> Iterator[pa.Table]:
        return Found.of(runs, self._log, self._settings).pieces()

    def _look_up_by_spark(self, runs: pa.Table) -> Iterator[pa.Table]:
        yield release_spark.looked_up(self._warehouse.spark, runs, self._log)

    def _versions(self) -> tuple[int, int]:
        """Who listens now, and in which life."""
        registry = self._registry.version()
        return registry, self._presence.marker(registry)


def _counts(gone: pa.Table) -> dict[tuple[str, Who], int]:
    """How many positions of runs are left out by policies, for each reason and incarnation of a subscription."""
    parts = {reason: gone.filter(pc.equal(gone.column("reason"), reason)) for reason in (EXPIRED, SUPPRESSED)}
    return {(why, who): share.positions for why, part in parts.items() for who, share in counted(part).items()}


def _rejected(release: Release | None, parts: Sequence[Part], left_out: Rows | None, batch_id: int) -> Rows | None:
    """Rows of `rejected_dispatch`: what has no message, and what is left out. None: there is nothing to say."""
    if release is None or sum(part.count for part in parts) == release.window.positions:
        return left_out
    missing = release.missing(batch_id)
    if left_out is None:
        return missing
    if isinstance(missing, pa.Table):
        return pa.concat_tables([missing, left_out])
    return missing.unionByName(left_out)
