"""Settle, batch by batch: what consumers said of deliveries, and what became of it.

It is a loop over a few small tables and not a query of Spark's: nothing in it is work for Spark (decision 0043). A
batch takes what its sources have; its plan says how far. Before the first commit that somebody else reads the plan is
noted, so that a repeated batch is the same, and commits what is missing: `inbox`, `segments`, `closed`,
`rejected_settle`, and `cursors` last. The events, and what dispatch refused, are looked up before the releases:
whatever a consumer was handed, its release is known when its acknowledgement is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.config.options import Observer
from pipeline.config.stages import SETTLE
from pipeline.config.wallclock import thread_cpu_ms, wall_ms
from pipeline.config.watching import SettleBatch, Settled, Watch
from pipeline.delta.logs.entries import newest
from pipeline.delta.tables import segment_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.cursors import Cursors
from pipeline.settle.events import RELEASED, Told, refused_by, released_by, told_by
from pipeline.settle.letters import DeadLetters
from pipeline.settle.listener import Listener
from pipeline.settle.opened import Opened
from pipeline.settle.outcome import Outcome
from pipeline.settle.plan import Plan, PlanFile, Upto
from pipeline.settle.registry import AckRegistry, Line, listeners, wrong_lines
from pipeline.settle.sources import Source
from pipeline.settle.writes import Writes
from pipeline.storage.hadoop import session_files
from pipeline.subscriptions.incarnations import Name
from pipeline.subscriptions.presence import PresentIncarnations
from schemas import CONSUMER_EVENTS, REDELIVERY, REJECTED_DISPATCH, SEGMENTS
from state.settling import Event

_REFUSED = ("topic", "subscription", "life", "ledger_id", "entry_id", "reason")
_RELEASES_MS = 1_000
"""While no consumer says anything, releases are counted so often, by a live clock."""
MESSAGE_MISSING, POLICY = "message_missing", "policy"
"""Reasons in `rejected_settle`: the message of a dead letter is gone; a policy cannot be followed."""
_NOTHING_YET = Upto(-1, -1, -1)


class Settle:
    """The body of settle: call `step` when there may be something to do."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, observe: Observer) -> None:
        """Look up once what the tables hold. While nobody acknowledges that is next to nothing."""
        self._spark, self._warehouse, self._observe = spark, warehouse, observe
        self.watch = Watch()
        self._files = session_files(spark)
        self._registry, self._presence = AckRegistry(spark, warehouse), PresentIncarnations(spark, warehouse)
        self._sources = {
            CONSUMER_EVENTS.name: Source(spark, warehouse, CONSUMER_EVENTS, CONSUMER_EVENTS.schema.names),
            REDELIVERY.name: Source(spark, warehouse, REDELIVERY, RELEASED),
            REJECTED_DISPATCH.name: Source(spark, warehouse, REJECTED_DISPATCH, _REFUSED),
        }
        self._noted = PlanFile(self._files, warehouse.checkpoint(SETTLE))
        self._cursors = Cursors(spark, warehouse)
        # Whoever lost the checkpoint goes on as the one who wrote last: all that it needs is in the tables.
        self.owner = self._noted.owner or self._cursors.owner or str(uuid4())
        self._writes: Writes | None = None
        self._last = self._cursors.last
        self._opened: dict[Name, Opened] = {}
        self._lines: Mapping[Name, Line] = {}
        self._told_all = False
        self._segment_ms = segment_ms(spark, warehouse)
        if self._last is not None:
            self._lines = self._registry.at(self._last.registry)
            self._opened = self._cursors.restored(self._listeners(self._last))

    def step(self, instant: int, *, patient: bool) -> bool:
        """Take a batch, when there is anything for one; whether there was.

        Args:
            instant: the time, ms UTC; the instants of batches never go back.
            patient: releases alone are left until a second has passed since the last batch.
        """
        plan = self._unfinished() or self._plan(instant, patient=patient)
        if plan is None:
            return False
        self._take(plan)
        return True

    def _unfinished(self) -> Plan | None:
        """The plan of a batch that was begun and is not in `cursors`."""
        plans = [self._noted.plan]
        if self._writes is None and (self._last is not None or self._noted.plan is not None):
            self._writes = Writes(self._spark, self._warehouse, self.owner, self._after(), self._observe)
            # Of a checkpoint that is lost the commits still know the plan.
            plans += self._writes.plans()
        done = -1 if self._last is None else self._last.batch
        return max((each for each in plans if each is not None and each.batch > done), key=_batch, default=None)

    def _after(self) -> int:
        """The version of `segments` behind which a batch may have written that is not in `cursors`."""
        known = [each.segments for each in (self._noted.plan, self._last) if each is not None]
        return min(known)

    def _plan(self, instant: int, *, patient: bool) -> Plan | None:
        """What there is to take now; None: nothing, or nobody acknowledges."""
        last = self._last
        registry = self._registry.version()
        if not self._opened and not self._registry.at(registry):
            return None
        begin = self._begin()
        events = self._newest(CONSUMER_EVENTS.name, begin.events)
        # What dispatch refused or left out was released before: its release is in this batch or was in an earlier one.
        refused = self._newest(REJECTED_DISPATCH.name, begin.refused)
        end = Upto(events, self._newest(REDELIVERY.name, begin.released), refused)
        lives = self._presence.marker(registry)
        quiet = last is not None and (registry, lives, events) == (last.registry, last.lives, begin.events)
        if quiet and (end == begin or (patient and last is not None and instant - last.now < _RELEASES_MS)):
            return None
        now = instant if last is None else max(instant, last.now)
        batch = 1 if last is None else last.batch + 1
        segments = newest(self._files, self._warehouse.path(SEGMENTS))
        return Plan(batch, now, registry, lives, begin, end.events, end.released, end.refused, segments)

    def _begin(self) -> Upto:
        """Where the next batch begins: at the end of the last one; while nobody acknowledged, now."""
        if self._last is not None and self._opened:
            return self._last.end
        known = _NOTHING_YET if self._last is None else self._last.end
        named = ((CONSUMER_EVENTS, known.events), (REDELIVERY, known.released), (REJECTED_DISPATCH, known.refused))
        return Upto(*(self._newest(table.name, version) for table, version in named))

    def _newest(self, table: str, known: int) -> int:
        return newest(self._files, f"{self._warehouse.root}/{table}", known)

    def _listeners(self, plan: Plan) -> dict[Name, Listener]:
        """Who acknowledges in a batch."""
        lines = self._registry.at(plan.registry)
        return listeners(lines, self._presence.incarnations(plan.lives)) if lines else {}

    def _take(self, plan: Plan) -> None:
        """Fold a batch into the state, and commit what comes of it."""
        self._observe("settle.planned", plan.batch)
        begun, cpu = wall_ms(), thread_cpu_ms()
        present, outcome = self._listeners(plan), Outcome(plan.now, self._segment_ms)
        gone = [each for name, each in self._opened.items() if _has_gone(each, present.get(name))]
        held = self._following(plan, present)
        told = self._told(plan, present)
        outcome.refused += told.refused
        self._say_wrong_policies(plan, outcome)
        happened = self._happened(plan, present, held)
        for name, opened in held.items():
            events: list[Event] = [*happened[name], *told.events[name]]
            outcome.take(opened.listener, opened.handle(events, told.leases[name], plan.now))
        self._commit(plan, outcome, held, gone)
        first, self._opened, self._last = not self._told_all, held, plan
        self._told_all = True
        self._observe("settle.done", plan.batch)
        changed = [each for name, each in held.items() if first or happened[name] or told.events[name]]
        figures = tuple(_figures(each, outcome) for each in changed)
        refused = sum(rows.num_rows for rows in outcome.refused)
        times, cpu = (begun, wall_ms(), plan.now), thread_cpu_ms() - cpu
        self.watch.settled(SettleBatch(plan.batch, told.rows, *times, plan.events, refused, figures, cpu))

    def _following(self, plan: Plan, present: Mapping[Name, Listener]) -> dict[Name, Opened]:
        """The state of each listener: what is there, or nothing yet."""
        held: dict[Name, Opened] = {}
        for name, listener in present.items():
            known = self._opened.get(name)
            if known is None or known.listener.life != listener.life:
                after = listener.policies.ack_after
                known = Opened.begun(listener, plan.begin.released if after is None else after)
            known.follow(listener)
            held[name] = known
        return held

    def _told(self, plan: Plan, present: Mapping[Name, Listener]) -> Told:
        """What consumers said, in the order of the log."""
        if not present:
            return Told()
        versions = self._sources[CONSUMER_EVENTS.name].versions(plan.begin.events, plan.events)
        rows = [rows for _, rows in versions]
        return told_by(pa.concat_tables(rows), present) if rows else Told()

    def _happened(
        self, plan: Plan, present: Mapping[Name, Listener], held: Mapping[Name, Opened]
    ) -> defaultdict[Name, list[Event]]:
        """What was released and refused since; for those who are new, what was released since they asked, too."""
        found: defaultdict[Name, list[Event]] = defaultdict(list)
        if not present:
            # Nobody keeps the logs for who has gone.
            return found
        new = {name: present[name] for name, each in held.items() if each.outstanding.version < plan.begin.released}
        new = {name: each for name, each in new.items() if self._opened.get(name) is not held[name]}
        after = min((held[name].outstanding.version for name in new), default=plan.begin.released)
        redelivery = self._sources[REDELIVERY.name]
        for version, rows in redelivery.since(after, plan.begin.released) if new else ():
            _sort(found, released_by(rows, version, new))
        for version, rows in redelivery.versions(plan.begin.released, plan.released):
            _sort(found, released_by(rows, version, present))
        for _, rows in self._sources[REJECTED_DISPATCH.name].versions(plan.begin.refused, plan.refused):
            _sort(found, refused_by(rows, present))
        return found

    def _say_wrong_policies(self, plan: Plan, outcome: Outcome) -> None:
        lines = self._registry.at(plan.registry)
        for name, reason in wrong_lines(lines, self._lines):
            outcome.refuse_line(name, f"{POLICY}: {reason}")
        self._lines = lines

    def _commit(self, plan: Plan, outcome: Outcome, held: Mapping[Name, Opened], gone: Iterable[Opened]) -> None:
        letters = self._letters(outcome)
        if outcome.is_seen:
            self._noted.write(self.owner, plan)
            self._observe("settle.noted", plan.batch)
            if self._writes is None:
                self._writes = Writes(self._spark, self._warehouse, self.owner, plan.segments, self._observe)
            self._writes.write(outcome, letters, plan)
        self._cursors.write(self.owner, plan, held.values(), gone)
        self._observe("settle.cursors", plan.batch)

    def _letters(self, outcome: Outcome) -> pa.Table | None:
        """Rows of `inbox` for what is given up; what has no message any more is refused."""
        if not outcome.letters:
            return None
        letters, missing = DeadLetters(self._spark, self._warehouse).rows(outcome.letters)
        for listener, positions in missing:
            outcome.refuse(listener, positions, MESSAGE_MISSING)
        return letters


def _batch(plan: Plan) -> int:
    return plan.batch


def _has_gone(opened: Opened, listener: Listener | None) -> bool:
    """Whether an incarnation is over, or acknowledges no longer."""
    return listener is None or listener.life != opened.listener.life


def _figures(opened: Opened, outcome: Outcome) -> Settled:
    """For those who watch."""
    done, counts = outcome.figures[opened.listener.name], opened.outstanding.counts
    names = opened.listener.name
    return Settled(*names, counts.outstanding, counts.waiting, done.acked, done.returned, done.dead_letters)


def _sort(found: defaultdict[Name, list[Event]], told: Iterator[tuple[Name, Event]]) -> None:
    for name, event in told:
        found[name].append(event)
