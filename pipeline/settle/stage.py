"""Settle, batch by batch: what consumers said of deliveries, and what became of it.

It is a loop over a few small tables and not a query of Spark's: nothing in it is work for Spark (decision 0043). A
batch takes what its sources have; its plan says how far. Before the first commit that somebody else reads the plan is
noted, so that a repeated batch is the same, and commits what is missing: `inbox`, `segments`, `closed`,
`rejected_settle`, and `cursors` last. The events, and what dispatch refused, are looked up before the releases:
whatever a consumer was handed, its release is known when its acknowledgement is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa

from pipeline.config.errors import CursorUnreadable, SourceBehind
from pipeline.config.options import Observer, SettleBatch, Settled, StageListener
from pipeline.config.stages import SETTLE
from pipeline.config.wallclock import thread_cpu_ms, wall_ms
from pipeline.config.zones import RULES
from pipeline.delta.logs.entries import newest
from pipeline.delta.reading.messages import MessageLog
from pipeline.delta.tables import segment_ms
from pipeline.delta.warehouse import Warehouse
from pipeline.settle.core.events import (
    RELEASED,
    ConsumerEvents,
    consumer_events,
    only_released,
    refused_by,
    released_by,
)
from pipeline.settle.core.fold import Batch, Outcome, fold, followed, gone, idle, mute, refused_line, unheard
from pipeline.settle.core.listener import Listener
from pipeline.settle.core.opened import CursorState
from pipeline.settle.moves import Moves
from pipeline.settle.plan import Plan, PlanFile, Upto, check_read, newest_of, reached, unfinished
from pipeline.settle.retrytimes import RetryTimes
from pipeline.settle.sources import Source, refused_files
from pipeline.settle.undone import begins_behind
from pipeline.settle.writes import Cursors, Writes
from pipeline.storage.arrays import arrow_schema
from pipeline.subscriptions.commands import READ, moves
from pipeline.subscriptions.daysoff import DaysOff
from pipeline.subscriptions.incarnations import Incarnation, Name
from pipeline.subscriptions.letters import drawn
from pipeline.subscriptions.lines import RegistryLine, wrong_since
from pipeline.subscriptions.markers import PresentIncarnations
from pipeline.subscriptions.registry import Registry
from schemas import COMMANDS, CONSUMER_EVENTS, REDELIVERY, REJECTED_DISPATCH, SEGMENTS
from state.settling import Event
from state.units import EPOCH, Ms

_REFUSED = ("topic", "subscription", "life", "ledger_id", "entry_id", "redelivery_count", "round", "reason")
_RELEASES_MS = 1_000
"""While no consumer says anything, releases are counted so often, by a live clock."""
POLICY = "policy"
"""The reason in `rejected_settle` of a policy that cannot be followed."""
_NO_COMMANDS = arrow_schema(COMMANDS.columns).empty_table().select(READ)
_HELD_BYTES = 64 << 20
"""Of rows of `consumer_events` that are looked at together."""
_NOTHING_YET = Upto(-1, -1, -1)


class Settle:
    """The body of settle: call `step` when there may be something to do."""

    def __init__(self, warehouse: Warehouse, observe: Observer) -> None:
        """Look up once what the tables hold. While nobody acknowledges that is next to nothing.

        Raises:
            SourceBehind: a table that it follows ends before what it has read of it.
            CursorUnreadable: what is open of a subscription is not what settle wrote.
        """
        self._warehouse, self._observe = warehouse, observe
        self.watch = StageListener()
        self._files = warehouse.files
        self._registry, self._presence = Registry(warehouse), PresentIncarnations(warehouse)
        self._sources = {
            CONSUMER_EVENTS.name: Source(warehouse, CONSUMER_EVENTS, CONSUMER_EVENTS.columns.names),
            REDELIVERY.name: Source(warehouse, REDELIVERY, RELEASED),
            COMMANDS.name: Source(warehouse, COMMANDS, READ),
            REJECTED_DISPATCH.name: Source(warehouse, REJECTED_DISPATCH, _REFUSED),
        }
        self._noted = PlanFile(self._files, warehouse.checkpoint(SETTLE))
        self._cursors, self._moves = Cursors(warehouse), Moves.of_tables(warehouse)
        self._messages, self._days = MessageLog(warehouse), DaysOff(warehouse)
        self._passed, self._follows = 0, self._cursors.follows
        # Whoever lost the checkpoint goes on as the one who wrote last: all that it needs is in the tables.
        self.owner = self._noted.owner or self._cursors.owner or str(uuid4())
        self._writes: Writes | None = None
        self._written: list[Plan] = []
        self._last = self._cursors.last
        self._opened: dict[Name, CursorState] = {}
        self._torn: dict[Name, CursorUnreadable] = {}
        self._lines: Mapping[Name, RegistryLine] = {}
        # Until a batch is planned here, `inbox` may have letters of batches that are not in `cursors`.
        self._reported_all, self._may_be_sent = False, True
        self._segment_ms = segment_ms(warehouse)
        if self._last is not None and self._follows:
            # Otherwise nothing is open, and the version of the registry may be gone.
            self._lines = self._registry.at(self._last.registry).acknowledging
            self._opened = self._cursors.restored(self._everybody(self._last))
            self._torn = {name: each.unreadable for name, each in self._opened.items() if each.unreadable is not None}
            self._all_readable()
        if self._last is not None:
            # Of commands none is passed over, also while there is nothing to follow.
            self._ends(self._begin())

    def step(self, instant: Ms, *, patient: bool) -> bool:
        """Take a batch, when there is anything for one; whether there was.

        Args:
            instant: the time, ms UTC; the instants of batches never go back, but by `reset_clock`.
            patient: releases alone are left until a second has passed since the last batch.
        """
        if not self._all_readable():
            return False
        begun = self._unfinished()
        plan = begun or self._plan(instant, patient=patient)
        if plan is None:
            return False
        self._take(plan)
        self._may_be_sent &= begun is not None
        return True

    def _all_readable(self) -> bool:
        """Whether what is open of everybody who stays can be read.

        False: one of them cannot be read, and the registry has changed since ingest looked at it. Perhaps that
        subscription was ended, and nobody needs its rows then.

        Raises:
            CursorUnreadable: it was not ended.
        """
        if not self._torn:
            return True
        registry = self._registry.version()
        lives = self._presence.incarnations(self._presence.marker(registry))
        stay = [error for name, error in self._torn.items() if name in lives and lives[name].number == error.life]
        if stay and self._presence.noticed(registry):
            raise stay[0]
        self._torn = self._torn if stay else {}
        return not stay

    @property
    def instant(self) -> Ms:
        """The instant of the last batch that was begun, ms UTC; 0: there was none."""
        return max((each.now for each in (self._last, self._unfinished()) if each is not None), default=EPOCH)

    def reset_clock(self, latest: Ms) -> None:
        """Let the next batches be at `latest` (ms UTC), or later, when the last one was later still.

        A batch that was begun is finished as it was planned. Then one that takes nothing in says the time.
        """
        if (plan := self._unfinished()) is not None:
            self._take(plan)
        last = self._last
        if last is not None and last.now > latest:
            self._take(replace(last, batch=self._next, now=latest, begin=last.end, letters=drawn()))

    def _unfinished(self) -> Plan | None:
        """The plan of a batch that was begun and is not in `cursors`."""
        begun = self._last or self._noted.plan or self._moves.any
        if self._writes is None and (begun or self._registry.at(self._registry.version()).acknowledging):
            self._writes = Writes(self._warehouse, self.owner, self._after(), self._observe)
            if self._last is None and self._noted.plan is None:
                self.owner = self._writes.take_over()
            # Of a checkpoint that is lost the commits still know the plan.
            self._written = [*self._writes.plans()]
        known = self._written if self._noted.plan is None else [self._noted.plan, *self._written]
        return unfinished(known, self._last, lambda plan: reached(self._files, self._warehouse.root, plan))

    @property
    def _next(self) -> int:
        """The number of the next batch: behind all that the tables have, also those that `cursors` does not know."""
        return 1 + max((each.batch for each in (self._last, *self._written) if each is not None), default=0)

    def _after(self) -> int:
        """The version of `segments` behind which a batch may have written that is not in `cursors`."""
        known = [each.segments for each in (self._noted.plan, self._last) if each is not None]
        return min(known) if known else begins_behind(self._warehouse)

    def _plan(self, instant: Ms, *, patient: bool) -> Plan | None:
        """What there is to take now; None: nothing, or nobody acknowledges."""
        last = self._last
        registry = self._registry.version()
        concerns = self._opened or self._moves.any or self._registry.at(registry).acknowledging
        if not concerns and not self._commanded():
            return None
        begin = self._begin()
        end = self._ends(begin)
        lives = self._presence.marker(registry)
        said = (last.registry, last.lives, begin.events, begin.commands) if last is not None else None
        quiet = said == (registry, lives, end.events, end.commands)
        if quiet and (end == begin or (patient and last is not None and instant - last.now < _RELEASES_MS)):
            return None
        now = instant if last is None else max(instant, last.now)
        segments = newest(self._files, self._warehouse.path(SEGMENTS))
        upto = (end.events, end.released, end.refused, segments, end.commands)
        days = self._days.version(self._registry.at(registry).topics)
        return Plan(self._next, now, registry, lives, begin, *upto, letters=drawn(), rules=RULES, calendars=days)

    def _begin(self) -> Upto:
        """Where the next batch begins: at the end of the last one; while there was nothing to follow, now.

        Of commands none is passed over.
        """
        if self._last is not None and (self._opened or self._follows):
            return self._last.end
        known = _NOTHING_YET if self._last is None else self._last.end
        return replace(newest_of(self._files, self._warehouse.root, known), commands=known.commands)

    def _ends(self, begin: Upto) -> Upto:
        """How far there is something to take.

        What dispatch refused or left out was released before: its release is in this batch or was in an earlier one.
        And if it was left out because of a command, that is known, too: of `redelivery` the newest version is looked up
        after those of the others. What is not released by then dispatch will leave out.
        """
        ends = newest_of(self._files, self._warehouse.root, begin)
        check_read(begin, ends)
        return ends

    def _commanded(self) -> bool:
        """Whether commands have come that give something another due time; of the others nothing is noted.

        Raises:
            SourceBehind: the table ends before what was read of it.
        """
        known = max(self._passed, 0 if self._last is None else self._last.commands)
        commands = newest(self._files, self._warehouse.path(COMMANDS), known)
        if commands < known:
            raise SourceBehind(SETTLE, COMMANDS.name, commands, known)
        if commands == known or self._news(known, commands).num_rows:
            return commands > known
        self._passed = commands
        return False

    def _listeners(self, plan: Plan) -> dict[Name, Listener]:
        """Who acknowledges in a batch."""
        lines = self._registry.at(plan.registry).acknowledging
        lives = self._lives(plan) if lines else {}
        known = ((name, line, lives[name]) for name, line in lines.items() if name in lives)
        return {
            name: Listener(name, life.number, life.tick_ms, line.policies.slots_of(line.type), line.policies)
            for name, line, life in known
        }

    def _news(self, after: int, upto: int) -> pa.Table:
        """The rows of some versions of `commands` that give something another due time."""
        versions = self._sources[COMMANDS.name].since(after, upto)
        return pa.concat_tables([_NO_COMMANDS, *(moves(rows) for _, rows in versions)])

    def _everybody(self, plan: Plan) -> dict[Name, Listener]:
        """All subscriptions that ingest knows, those that do not acknowledge, too."""
        return {name: mute(name, life) for name, life in self._lives(plan).items()} | self._listeners(plan)

    def _present(self, plan: Plan) -> dict[Name, Listener]:
        """Who is followed in a batch: who acknowledges, and of whom something got another due time."""
        lives = self._lives(plan)
        moved = self._moves.names(lives) | {name for name, each in self._opened.items() if each.moved}
        return {name: mute(name, lives[name]) for name in sorted(moved & lives.keys())} | self._listeners(plan)

    def _lives(self, plan: Plan) -> Mapping[Name, Incarnation]:
        return self._presence.incarnations(plan.lives)

    def _take(self, plan: Plan) -> None:
        """Fold a batch into the state, and commit what comes of it."""
        self._observe("settle.planned", plan.batch)
        begun, cpu = wall_ms(), thread_cpu_ms()
        self._moves.take(self._news(plan.begin.commands, plan.commands))
        present = self._present(plan)
        over = gone(self._opened, present)
        held = followed(self._opened, present, plan.begin.released)
        incoming = self._incoming(plan, present)
        refused = [*incoming.refused, *refused_files(self._sources.values()), *self._wrong_policies(plan)]
        happened = self._happened(plan, present, held)
        earlier = self._earlier_events(plan, self._fresh(plan, held), happened)
        torn = None if self._writes is None else self._writes.moved(plan)
        comes = RetryTimes(self._messages, self._days.followed(self._registry.at(plan.registry).topics, plan.calendars))
        batch = Batch(plan.now, self._segment_ms, happened, incoming, comes, earlier, torn, refused)
        outcome = fold(held, batch, self._moves)
        done = idle(held)
        over += [held[name] for name in done & self._opened.keys()]
        held = {name: each for name, each in held.items() if name not in done}
        self._commit(plan, outcome, held, over)
        first, self._opened, self._last = not self._reported_all, held, plan
        self._reported_all, self._follows = True, bool(held) or self._moves.any
        self._observe("settle.done", plan.batch)
        heard = ((name, each) for name, each in held.items() if each.acknowledges)
        changed = [each for name, each in heard if first or happened[name] or incoming.events[name]]
        figures = tuple(_figures(each, outcome) for each in changed)
        refused = sum(rows.num_rows for rows in outcome.refused)
        times, cpu = (begun, wall_ms(), plan.now), thread_cpu_ms() - cpu
        self.watch.settled(SettleBatch(plan.batch, incoming.rows, *times, plan.events, refused, figures, cpu))

    def _fresh(self, plan: Plan, held: Mapping[Name, CursorState]) -> dict[Name, Listener]:
        """Who acknowledges and is followed for the first time, by a batch that does not begin where another one ended.

        What was released to them since they asked may have been refused, or acknowledged, before it begins.
        """
        if self._last is not None and plan.begin == self._last.end:
            return {}
        return {n: each.listener for n, each in held.items() if each.acknowledges and self._opened.get(n) is not each}

    def _earlier_events(
        self, plan: Plan, fresh: Mapping[Name, Listener], happened: Mapping[Name, Sequence[Event]]
    ) -> dict[Name, list[Event]]:
        """What consumers of those who are new said before the batch begins."""
        found: defaultdict[Name, list[Event]] = defaultdict(list)
        events = self._sources[CONSUMER_EVENTS.name]
        for _, rows in events.since(-1, plan.begin.events) if any(happened[name] for name in fresh) else ():
            said = consumer_events(rows, fresh).events
            _sort(found, only_released(((name, each) for name, own in said.items() for each in own), happened))
        return found

    def _incoming(self, plan: Plan, present: Mapping[Name, Listener]) -> ConsumerEvents:
        """What consumers said, in the order of the log."""
        acknowledging = {name: each for name, each in present.items() if each.policies.ack}
        if not acknowledging:
            return ConsumerEvents()
        incoming, rows, size = ConsumerEvents(), list[pa.Table](), 0
        for _, some in self._sources[CONSUMER_EVENTS.name].versions(plan.begin.events, plan.events):
            rows.append(some)
            size += some.nbytes
            if size > _HELD_BYTES:
                incoming, rows, size = consumer_events(pa.concat_tables(rows), acknowledging, incoming), [], 0
        return consumer_events(pa.concat_tables(rows), acknowledging, incoming) if rows else incoming

    def _happened(
        self, plan: Plan, present: Mapping[Name, Listener], held: Mapping[Name, CursorState]
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
        refused = self._sources[REJECTED_DISPATCH.name]
        fresh = self._fresh(plan, held)
        for _, rows in refused.since(-1, plan.begin.refused) if any(found[name] for name in fresh) else ():
            _sort(found, only_released(refused_by(rows, fresh), found))
        for _, rows in refused.versions(plan.begin.refused, plan.refused):
            _sort(found, refused_by(rows, present))
        mute = [name for name, each in present.items() if not each.policies.ack]
        return defaultdict(list, found | {name: list(unheard(found[name])) for name in mute})

    def _wrong_policies(self, plan: Plan) -> list[pa.Table]:
        """Rows about lines of the registry that are not followed as they are, since they have changed."""
        lines, before = self._registry.at(plan.registry).acknowledging, self._lines
        self._lines = lines
        return [refused_line(name, f"{POLICY}: {reason}") for name, reason in wrong_since(lines, before)]

    def _commit(
        self, plan: Plan, outcome: Outcome, held: Mapping[Name, CursorState], gone: Iterable[CursorState]
    ) -> None:
        sent: Mapping[str, int] = {}
        if outcome.is_seen:
            # Of a checkpoint that is lost the commits still know what was begun.
            fresh = plan not in (self._noted.plan, *self._written)
            self._noted.write(self.owner, plan)
            self._observe("settle.noted", plan.batch)
            if self._writes is None:
                self._writes = Writes(self._warehouse, self.owner, plan.segments, self._observe)
            done = self._last.batch if self._may_be_sent and self._last is not None else None
            sent = self._writes.write(outcome, plan, fresh=fresh, done=done)
        self._cursors.write(self.owner, plan, held.values(), gone, sent, follows=bool(held) or self._moves.any)
        self._observe("settle.cursors", plan.batch)


def _figures(opened: CursorState, outcome: Outcome) -> Settled:
    """For those who watch."""
    done, counts = outcome.figures[opened.listener.name], opened.outstanding.counts
    names = opened.listener.name
    return Settled(*names, counts.outstanding, counts.waiting, done.acked, done.returned, done.dead_letters)


def _sort(found: defaultdict[Name, list[Event]], events: Iterator[tuple[Name, Event]]) -> None:
    for name, event in events:
        found[name].append(event)
