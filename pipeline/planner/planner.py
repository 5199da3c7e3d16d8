"""The planner: occurrences of schedules become rows of `inbox`, each once, whatever is killed (decision 0143)."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from pipeline.client.tables.partitions import partition_counts
from pipeline.config.errors import BadValue, VersionGone
from pipeline.config.options import Observer, nobody
from pipeline.config.settings import DAY_MS, MINUTE_MS, SECOND_MS, Settings
from pipeline.config.spelling import iso_text
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE
from pipeline.config.zones import RULES
from pipeline.delta.checkpoints import Checkpoint
from pipeline.delta.deltars import append, open_table
from pipeline.delta.logs.entries import newest
from pipeline.delta.warehouse import Warehouse
from pipeline.planner.cursors import Cursors, Planned
from pipeline.planner.definitions import Definitions, definitions
from pipeline.planner.occurrencerows import inbox_rows
from pipeline.planner.takeback import Planned as PlannedMessages
from pipeline.planner.takeback import are_few
from pipeline.planner.waiting import Waiting
from pipeline.subscriptions.scheduleplans import NAME, NEVER, Change, Plan, PlanFile, Versions
from schemas import CALENDARS, INBOX, REDELIVERY, SCHEDULES, Table

_LOG = logging.getLogger(__name__)
HORIZON_MS = DAY_MS
"""So far ahead all occurrences are planned."""
AHEAD_MS = 366 * DAY_MS
"""So far behind that the next one of each schedule may be."""
_PART_MS, _ROWS, _BYTES = MINUTE_MS, 100_000, 64 << 20
"""A commit has the occurrences of whole minutes, and of the next one when it has fewer rows and shorter texts."""
_MOST_DRAWN = 1 << 32
_MARGIN_MS = 10 * SECOND_MS
"""Beside the lookahead, for a live clock: so long the command that takes back may take."""


@dataclass
class _Fence:
    """What dispatch may have taken before a command withdrew it.

    Attributes:
        until: nothing that is due later was released, ms UTC.
        batch: the last batch of the schedule that may have released some of it.
        version: of `redelivery`, which has all of it; None: not known yet.
    """

    until: int
    batch: int
    version: int | None = None


@dataclass
class _Known:
    """What the planner remembers between two steps."""

    plan: Plan
    change: Change | None
    definitions: Definitions | None
    cursors: Cursors
    appended: int
    fence: _Fence | None = None
    found: bool = False


class Planner:
    """Plans the schedules of a warehouse; one planner at a time, in the process of ingest."""

    def __init__(
        self,
        warehouse: Warehouse,
        clock: Callable[[], int],
        settings: Settings | None = None,
        lookahead_ms: int | None = None,
        observe: Observer = nobody,
        step_ms: int = 0,
    ) -> None:
        """Look at nothing yet.

        Args:
            warehouse: the warehouse.
            clock: the time, ms UTC.
            settings: of ingest.
            lookahead_ms: how far the clock of the schedule runs ahead of the time; None: it does not.
            observe: told of each step, with the number of the plan.
            step_ms: so long the clock stands at an instant, as in a replay. What occurs until the next one is not
                missed.
        """
        self._warehouse, self._clock, self._observe = warehouse, clock, observe
        longest = (settings or Settings()).max_delay_ms
        self._horizon_ms, self._ahead_ms = min(HORIZON_MS, longest), min(AHEAD_MS, max(0, longest - HORIZON_MS))
        # Planning is done again when half of it has passed, and the next instant has to be planned then.
        self._horizon_ms = max(self._horizon_ms, min(2 * step_ms, longest))
        self._margin_ms, self._step_ms = 0 if lookahead_ms is None else _MARGIN_MS, step_ms
        self._lookahead_ms, self._express_ms = lookahead_ms, (settings or Settings()).express_ms or 0
        self._file = PlanFile(warehouse.files, warehouse.root)
        self._known: _Known | None = None
        self._seen, self._waiting = dict[str, int](), Waiting()

    def has_work(self) -> bool:
        """Whether there is something to do now. Without schedules it is a look at one name of a log."""
        if self._known is None:
            return self._newest_of(SCHEDULES) > 0 or self._has_rows
        return not self._follows(self._known) or self._has_turn()

    def _has_turn(self) -> bool:
        """Whether something of what is followed is to be planned now."""
        return (look := self.next_look) is not None and look <= self._clock()

    @cached_property
    def _has_rows(self) -> bool:
        """Whether the first version has schedules, as when another writer made the table. It is looked up once."""
        return bool(open_table(self._warehouse.root, SCHEDULES).file_uris())

    def _follows(self, known: _Known) -> bool:
        """Whether the plan is by the definitions, the rules and the longest delay that are there now."""
        plan = known.plan
        is_new = known.change is None and plan.versions == self._newest()
        return is_new and plan.rules == RULES and plan.ahead_ms <= self._ahead_ms and not self._was_ahead(plan)

    def _was_ahead(self, plan: Plan) -> bool:
        """Whether the clock was set back by more than is always planned: what lies between would not be planned."""
        return plan.until > self._clock() + max(HORIZON_MS, self._horizon_ms) * 3 // 2

    @property
    def next_look(self) -> int | None:
        """The next instant at which there is something to do if no schedule changes, ms UTC; None: never."""
        turn = None if self._known is None else self._known.cursors.next_turn
        return None if turn is None else max(0, turn - self._horizon_ms // 2)

    def start(self) -> None:
        """Read what is planned. The first step does so, too."""
        self._recalled()

    def step(self) -> bool:
        """Plan what is to be planned now; whether something was done. What fails is done by the next step.

        Raises:
            StillConflicting: others wrote at the same time, every time.
        """
        if not self.has_work():
            return False
        try:
            known = self._recalled()
            if not self._follows(known):
                return self._follow(known)
            # To remember alone is no work.
            return self._has_turn() and self._extend(known)
        except BaseException:
            self._known = None
            raise

    def _newest(self) -> Versions:
        return self._newest_of(SCHEDULES), self._newest_of(CALENDARS)

    def _newest_of(self, table: Table) -> int:
        known = self._seen.get(table.name, 0)
        # A warehouse of an earlier version has no calendars.
        with suppress(FileNotFoundError):
            self._seen[table.name] = max(known, newest(self._warehouse.files, self._warehouse.path(table), known))
        return self._seen.get(table.name, NEVER)

    def _recalled(self) -> _Known:
        """What tables and file say, read once."""
        if self._known is None:
            number = open_table(self._warehouse.root, INBOX).transaction_version(NAME)
            found = self._file.read(number)
            plan, change = found or (Plan(NEVER if number is None else number), None)
            appended = newest(self._warehouse.files, self._warehouse.path(INBOX))
            held, cursors = None if found is None else self._definitions(plan.versions), Cursors(self._ahead_ms)
            for each in () if held is None else held.schedules.values():
                cursors.resume(each, plan.until, plan.ahead_ms)
            self._known = _Known(plan, change, held, cursors, appended)
        return self._known

    def _definitions(self, versions: Versions) -> Definitions | None:
        """What the tables said at versions; None: one was cleaned away."""
        with suppress(VersionGone):
            return definitions(self._warehouse, versions)
        return None

    def _extend(self, known: _Known) -> bool:
        now = self._clock()
        self._plan(known, replace(known.plan, ahead_ms=max(known.plan.ahead_ms, self._ahead_ms)), now, now)
        return True

    def _follow(self, known: _Known) -> bool:
        """Follow other definitions: take back what the ones before have planned, then plan anew."""
        # What is not numbered yet could not be named.
        if known.plan.number != NEVER and not self._has_ingested(known.appended):
            self._waiting.waits(f"ingest has yet to take version {known.appended} of {INBOX.name}", self._clock())
            # Until a change is decided what was followed before counts.
            return known.change is None and self._has_turn() and self._extend(known)
        if known.change is None and self._has_missed(known):
            return self._extend(known)
        change = self._decided(known)
        try:
            new = definitions(self._warehouse, change.versions)
        except VersionGone:
            version, calendars = self._newest()
            change = known.change = replace(change, version=version, calendars=calendars)
            new = definitions(self._warehouse, change.versions)
        was_ahead = self._was_ahead(known.plan)
        is_other = known.plan.rules != RULES or known.plan.ahead_ms > self._ahead_ms or was_ahead
        changed = None if is_other else _changed(known.definitions, new)
        taken = self._taken_back(known, change, changed)
        if taken is None:
            self._waiting.waits("stages have yet to decide of what was planned before", self._clock())
            return False
        _take_on(known, new, changed, change)
        for name, why in new.refused.items():
            _LOG.warning("schedule %r is not followed: %s", name, why)
        let_go = None if was_ahead else _let_go(known, new)
        plan = known.plan.following(change, let_go, _end(known, change, taken))
        # Where all was taken back nothing is planned behind the bound.
        until = plan.until if changed is not None else min(plan.until, change.bound)
        plan = replace(plan, rules=RULES, ahead_ms=self._ahead_ms, until=until)
        self._plan(known, plan, self._clock(), change.since, taken)
        known.change, known.definitions, known.fence, known.found = None, new, None, False
        self._waiting.over()
        return True

    def _has_missed(self, known: _Known) -> bool:
        """Whether the definitions before have something to plan that occurs before others can count.

        After an outage they do: it is caught up by what counted then.
        """
        turn, now = known.cursors.next_turn, self._clock()
        return turn is not None and turn <= min(self._bound(now), now + self._horizon_ms)

    def _bound(self, now: int) -> int:
        """From when on other definitions can count: later than anything that is released, ms UTC."""
        return max(self._released(), now) + self._margin_ms + 1

    def _decided(self, known: _Known) -> Change:
        """From when on other definitions count. It is written down before anything is taken back."""
        if known.change is None:
            now = self._clock()
            version, calendars = self._newest()
            known.change = Change(version, RULES, now, self._bound(now), calendars)
            if known.change.is_done(known.plan):
                # All is planned anew by the same definitions: a start has to know that it is not done yet.
                known.plan = replace(known.plan, rules="")
            self._file.write([known.plan], known.change)
            self._observe("planner.decided", known.plan.number)
        return known.change

    def _taken_back(self, known: _Known, change: Change, names: Collection[str] | None) -> set[tuple[str, str]] | None:
        """Take back what was planned by other definitions; what of it comes all the same. None: that is not known yet.

        What dispatch had taken before the command comes. Nothing is taken that is due later than the schedule has been
        told, so in time only what is due before the bound is.
        """
        if names is not None and not names:
            return set()
        planned = PlannedMessages(self._warehouse.root, names, change.bound)
        try:
            known.found |= planned.take_back(f"version {change.version} of {SCHEDULES.name}")
        except BadValue as error:
            if error.field != "subscription":
                raise
            return None
        self._observe("planner.withdrawn", known.plan.number)
        if known.fence is None:
            schedule = self._checkpoint(SCHEDULE)
            known.fence = _Fence(self._released(), max(schedule.batches(), default=-1))
        if known.fence.until < change.bound or not known.found:
            return set()
        return planned.taken(known.fence.until) if self._has_passed(known.fence) else None

    def _has_passed(self, fence: _Fence) -> bool:
        """Whether dispatch has decided of all that may have been taken before a command."""
        released, decided = self._checkpoint(SCHEDULE).done, self._checkpoint(DISPATCH)
        if fence.batch >= 0 and (released is None or released < fence.batch):
            return False
        if fence.version is None:
            fence.version = newest(self._warehouse.files, self._warehouse.path(REDELIVERY))
        return _is_behind(decided, fence.version)

    def _plan(self, known: _Known, plan: Plan, now: int, missed: int, taken: Collection[tuple[str, str]] = ()) -> None:
        """Append what is due to be planned, in commits of whole minutes. What occurs before `missed` was missed."""
        missed -= self._margin_ms + self._step_ms
        last = max(plan.until, now + self._horizon_ms)
        first = min(last, max(plan.until, now + (self._lookahead_ms or 0) + self._margin_ms))
        rows, count, size = list[Planned](), 0, 0
        for until in _parts(first, last):
            for schedule, found in known.cursors.until(until, missed):
                left = [at for at in found if (schedule.name, iso_text(at)) not in taken] if taken else found
                rows.append((schedule, left))
                count += len(left)
                size += len(left) * schedule.message_bytes
            if count >= _ROWS or size >= _BYTES or until == last:
                self._commit(known, replace(plan, until=until), rows, count)
                rows, count, size = [], 0, 0

    def _commit(self, known: _Known, plan: Plan, rows: Sequence[Planned], count: int) -> None:
        """Append rows, with the number of the plan beside them; a plan without rows is said by the file alone."""
        if not count:
            known.plan = replace(plan, number=known.plan.number)
            self._file.write([known.plan], known.change)
            return
        # Nobody else draws the same number, so what the file says of it is about these rows.
        new = replace(plan, number=known.plan.number + 1 + secrets.randbelow(_MOST_DRAWN))
        self._file.write([known.plan, new], known.change)
        self._observe("planner.planned", new.number)
        # A topic that is divided later keeps what is planned for it.
        found = inbox_rows(rows, partition_counts(self._warehouse.root))
        once, behind = (NAME, new.number), known.plan.number
        known.appended = append(self._warehouse.root, INBOX, found, once=once, behind=behind)
        known.plan = new
        self._observe("planner.appended", new.number)

    def _released(self) -> int:
        """Nothing that is due later is released yet, ms UTC."""
        instant = self._checkpoint(SCHEDULE).instant
        if self._lookahead_ms is None and not self._express_ms:
            return instant
        # What is due so soon after ingest takes it goes past the schedule.
        return max(instant, self._clock() + max(self._lookahead_ms or 0, self._express_ms))

    def _has_ingested(self, version: int) -> bool:
        """Whether ingest has taken all rows up to a version of `inbox`."""
        return _is_behind(self._checkpoint(INGEST), version)

    def _checkpoint(self, stage: str) -> Checkpoint:
        """How far a stage is now."""
        return Checkpoint(self._warehouse.files, self._warehouse.checkpoint(stage))


def _changed(before: Definitions | None, new: Definitions) -> set[str] | None:
    """The schedules that are planned anew; None: all, because they are many, or nobody knows what they were."""
    changed = None if before is None else new.changed(before)
    return None if changed is None or not are_few(changed) else changed


def _take_on(known: _Known, new: Definitions, changed: set[str] | None, change: Change) -> None:
    """Let go what is not followed any more, and begin with what is new, each at its time.

    What was followed before counts until the bound. What was not begins when it was set, but not before all has come
    by what it was when it was followed last.
    """
    before = {} if known.definitions is None else known.definitions.schedules
    unknown = _is_unknown(known)
    for name in before.keys() | new.schedules.keys() if changed is None else changed:
        known.cursors.drop(name)
        if name in new.schedules:
            made = new.schedules[name]
            set_at = change.since if made.set_at is None else min(made.set_at, change.since)
            is_new = not unknown and name not in before
            known.cursors.begin(made, max(set_at, known.plan.free_from(name)) if is_new else change.bound)


def _let_go(known: _Known, new: Definitions) -> set[str] | None:
    """The names that are followed no more; None: nobody knows."""
    before = {} if known.definitions is None else known.definitions.schedules
    return None if _is_unknown(known) else {*before} - new.schedules.keys()


def _is_unknown(known: _Known) -> bool:
    """Whether nobody knows what was followed, though something was planned."""
    return known.definitions is None and (known.found or known.plan.number != NEVER)


def _end(known: _Known, change: Change, taken: Collection[tuple[str, str]]) -> int:
    """From when on nothing comes by what a change lets go, ms UTC: later, where the command was too late."""
    return max(change.bound, known.fence.until + 1) if taken and known.fence is not None else change.bound


def _is_behind(stage: Checkpoint, version: int) -> bool:
    """Whether a stage has done all up to a version of the table that it follows."""
    done = stage.done
    if done is None:
        return False
    end = stage.position(done)
    return end.version > version or (end.version == version and end.index >= 0)


def _parts(first: int, last: int) -> Iterator[int]:
    """Instants from one to another one."""
    yield from range(first, last, _PART_MS)
    yield last
