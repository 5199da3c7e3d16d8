"""The rows of the slots that a consumer has: what was open when it took them, then version after version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from pipeline.client.clock import Clock, Pace
from pipeline.client.consuming.backlog import Backlog, BacklogState, behind, careful, open_rows
from pipeline.client.consuming.sessionlocks import SessionLocks
from pipeline.client.consuming.writer import EventWriter
from pipeline.client.tables.datarows import LIGHT, DataFile
from pipeline.client.tables.deliveryset import DeliverySet
from pipeline.client.tables.events import OWNER_LOST, EventRows
from pipeline.client.tables.logs import ClosedLog, CursorLog, LeaseLog, RegistryLog
from pipeline.client.tables.rows import Key, Rows, chosen, rows_of, slot_rule
from pipeline.client.tables.tail import DeliveryLog
from pipeline.config.errors import VersionGone
from pipeline.subscriptions.incarnations import Name
from state import Condition, LeaseReplay, SubscriptionType
from state.lease_events import CaughtUp, Event, Take


@dataclass
class _Stream:
    """Slots that have been read up to a version, and what is left of the next one."""

    slots: set[int]
    version: int
    rows: Iterator[Rows] | None = None


@dataclass(frozen=True)
class Logs:
    """What all consumers of a process share."""

    clock: Clock
    deliveries: DeliveryLog
    cursors: CursorLog
    closed: ClosedLog
    leases: LeaseLog
    writer: EventWriter
    registry: RegistryLog
    pace: Pace
    sessions: SessionLocks

    def replay(self, key: Key) -> LeaseReplay | None:
        """Who leases the slots of a subscription; None when it cannot be told yet.

        Raises:
            VersionGone: settle has said something newer, or will in a moment.
        """
        if (found := self.leases.replay(key)) is not None:
            return found
        snapshot = self.cursors.snapshot(*key[:2])
        return None if snapshot is None or snapshot.rows.life != key[2] else self.leases.begin(key, snapshot)

    def begin_turn(self, names: AbstractSet[Name]) -> bool:
        """Read what is new, for consumers of these subscriptions; whether anything is."""
        self.pace.begin()
        self.sessions.look(self.clock.now())
        self.cursors.begin_turn(names)
        self.registry.begin_turn(names)
        news = [each.read() for each in (self.leases, self.deliveries, self.cursors, self.closed)]
        return any(news)

    def end_turn(self, oldest: int, keys: AbstractSet[Key]) -> None:
        """Forget versions of `deliveries` up to one, and what was in other lives of subscriptions than these."""
        self.deliveries.forget(oldest + 1)
        self.leases.keep(keys)
        self.closed.keep(keys)


class SlotFetcher:
    """The rows of one consumer, in one life of its subscription; belongs to the thread that turns the engine.

    Slots that have been read equally far are read together.

    Attributes:
        lost: slots whose versions or files are gone: what is open of them has to be read from the table, and what was
            read of them before counts no more.
    """

    def __init__(self, logs: Logs, key: Key, kind: SubscriptionType, slots: int) -> None:
        self._logs, self._key, self._slots_of = logs, key, slot_rule(kind, slots)
        self._streams: list[_Stream] = []
        self._backlogs: list[Backlog] = []
        self.lost: set[int] = set()
        # What was taken out of turn, until its turn has come, and up to which version that was looked for.
        self._early, self._early_upto = DeliverySet(), -1
        logs.closed.watch(key)

    @property
    def oldest(self) -> int:
        """The oldest version of `deliveries` that is needed, less one."""
        return min((each.version for each in self._parts), default=self._logs.deliveries.last)

    @property
    def _parts(self) -> list[_Stream | Backlog]:
        return [*self._streams, *self._backlogs]

    # ---- slots come and go

    def take(self, taken: list[Take], holding: DeliverySet) -> None:
        """Slots that are ours now."""
        self._begin_all({take.slot: (take.owed, True) for take in taken}, holding)

    def again(self, replay: LeaseReplay, holding: DeliverySet, resumed: set[int]) -> None:
        """Slots of which rows were thrown away or are gone from the log, but that are ours still."""
        slots = {slot: replay.slots[slot] for slot in self.lost | resumed}
        self._begin_all({n: (slot.owed if slot.behind else None, slot.behind) for n, slot in slots.items()}, holding)

    def _begin_all(self, taken: Mapping[int, tuple[int | None, bool]], holding: DeliverySet) -> None:
        """Read what is open of slots; by slot what is owed, and whether the lease is to be told how far this is."""
        logs = self._logs
        known = logs.deliveries.last, logs.leases.last, logs.deliveries.source
        for owes, announces in ((False, True), (True, True), (False, False)):
            some = {n: upto for n, (upto, tells) in taken.items() if (upto is not None, tells) == (owes, announces)}
            if some:
                owed = {slot: upto for slot, upto in some.items() if upto is not None}
                self.add(Backlog(set(some), *known, owed, announces, logs.writer.asked, holding.copy()))

    def add(self, backlog: Backlog) -> None:
        """Slots come in, with what is open of them."""
        self.drop(backlog.slots)
        self._backlogs.append(backlog)

    def drop(self, slots: Collection[int]) -> None:
        """Slots that are not ours any more."""
        for each in self._parts:
            each.slots -= set(slots)
        self.lost -= set(slots)
        self._early.drop(slots)
        self._streams = [each for each in self._streams if each.slots]
        self._backlogs = [each for each in self._backlogs if each.slots]

    def _lose(self, slots: Collection[int]) -> None:
        """Versions or files of slots are gone."""
        gone = set(slots)
        self.drop(gone)
        self.lost |= gone

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Rows that were read in a turn go with it when it fails, and nobody goes on in the middle of a file.

        So all slots are read anew then: open rows are read again; rows that the application still holds are skipped.
        """
        try:
            yield
        except BaseException:  # a panic of delta-rs, too
            self._lose(set().union(*(each.slots for each in self._parts)))
            raise

    # ---- what is open of slots that were taken

    def announced(self, slot: int, upto: int) -> None:
        """The log has it that messages of a slot up to a place may have been handed out."""
        for backlog in self._backlogs:
            if slot in backlog.slots:
                backlog.announced(slot, upto)

    def begin_backlogs(self, event_rows: EventRows) -> None:
        """Read what is open of slots, as soon as settle has read what was said of them."""
        new = [each for each in self._backlogs if each.state is BacklogState.WAITING and self._covered(each)]
        snapshot = self._logs.cursors.snapshot(*self._key[:2]) if new else None
        if snapshot is not None and snapshot.rows.life == self._key[2]:
            still_open = snapshot.deliveries(Condition.OUTSTANDING)
            self._logs.closed.add(self._key, snapshot.deliveries(Condition.WITHDRAWN))
            for backlog in new:
                backlog.still_open = still_open
                if backlog.owed:
                    backlog.pay()
                else:
                    backlog.read(self._open(backlog))
        for backlog in [each for each in self._backlogs if each.state is BacklogState.PAYING]:
            try:
                if self._is_paid(backlog, event_rows):
                    backlog.read(careful(self._open(backlog)))
            except VersionGone:
                self._lose(backlog.slots)
            except BaseException:
                # Nobody goes on in the middle of a file: another turn looks for all of it.
                backlog.paying, backlog.lost = None, DeliverySet()
                raise

    def _covered(self, backlog: Backlog) -> bool:
        """Whether settle has read all that counts for a backlog."""
        writer = self._logs.writer
        if writer.done < backlog.mark:
            return False
        if backlog.mark:
            backlog.events, backlog.mark = max(backlog.events, writer.version), 0
        return self._logs.cursors.covers(backlog.events, backlog.released)

    def _open(self, backlog: Backlog) -> Iterator[Rows]:
        for rows in open_rows(self._logs.deliveries, self._key, self._slots_of, backlog):
            left = rows.where(behind(rows, backlog.owed)) if backlog.owed else rows
            yield left.where(~backlog.exclude.holds(left))

    def _is_paid(self, backlog: Backlog, event_rows: EventRows) -> bool:
        """Count a failure for what the last owner may have handed out; False: another turn has to read the rest."""
        logs = self._logs
        backlog.paying = backlog.paying or open_rows(logs.deliveries, self._key, self._slots_of, backlog, LIGHT)
        for rows in backlog.paying:
            backlog.lost.add(rows.where(~behind(rows, backlog.owed)))
            if not logs.pace.more:
                return False
        for count, positions in sorted(backlog.lost.take().items()):
            logs.writer.add(event_rows.nacks(positions, count, None, OWNER_LOST, logs.clock.wall()))
        return True

    # ---- rows, in their turn and before

    def next(self) -> tuple[Rows | None, list[Event]]:
        """The next rows, None when there are none now; and what the lease is to be told before they are handed out.

        A turn calls it within `whole`. Where a piece of a file has none, rows of length 0 come: there may be more.

        Raises:
            OSError: a file cannot be read now.
        """
        events: list[Event] = []
        for backlog in list(self._backlogs):
            rows, says = self._of_backlog(backlog)
            events += says
            if rows is not None:
                return rows, events
        self._merge()
        if self.oldest >= self._early_upto:
            # The turn of all that was taken out of turn has come.
            self._early = DeliverySet()
        for stream in sorted(self._streams, key=lambda each: each.version):
            rows = self._of_stream(stream)
            if rows is not None:
                return rows, events
        return None, events

    def _of_backlog(self, backlog: Backlog) -> tuple[Rows | None, list[Event]]:
        try:
            rows, says = backlog.next()
        except VersionGone:
            self._lose(backlog.slots)
            return None, []
        if backlog.state is BacklogState.READ:
            self._backlogs.remove(backlog)
            self._streams.append(_Stream(backlog.slots, backlog.version))
            return None, [CaughtUp(slot) for slot in sorted(backlog.slots)] if backlog.announces else []
        return rows, list(says)

    def _of_stream(self, stream: _Stream) -> Rows | None:
        try:
            while stream.rows is not None or stream.version < self._logs.deliveries.last:
                if stream.rows is None:
                    stream.rows = self._version(stream.version + 1)
                rows = next(stream.rows, None)
                if rows is None:
                    stream.rows, stream.version = None, stream.version + 1
                else:
                    mine = rows.of_slots(stream.slots)
                    return mine.where(~self._early.holds(mine)) if self._early and mine.counts.any() else mine
        except VersionGone:
            self._lose(stream.slots)
        return None

    def redeliveries(self) -> Iterator[Rows]:
        """What was delivered before and comes later than what was read so far; it does not come again in its turn.

        Who may get nothing new gets these all the same. What is left of a version of which some was read comes in its
        turn only.

        Raises:
            OSError: as `next`.
        """
        begun = {slot: each.version + (each.rows is not None) for each in self._streams for slot in each.slots}
        begun |= {slot: each.version for each in self._backlogs for slot in each.slots}
        first = max(self._early_upto, self.oldest) + 1
        for version in range(first, self._logs.deliveries.last + 1) if begun else ():
            if not self._logs.pace.more:
                return
            self._early_upto = version
            mine = [slot for slot, upto in begun.items() if upto < version]
            for rows in self._again(version):
                found = rows.where(rows.counts > 0).of_slots(mine)
                if len(found):
                    self._early.add(found)
                    yield found

    def _again(self, version: int) -> Iterator[Rows]:
        """The rows of those files of a version that hold redeliveries; none when the version is gone: it is lost."""
        with suppress(VersionGone):
            files = self._logs.deliveries.files(version)
            yield from self._version(version, [each for each in files if each.high.get("redelivery_count") != 0])

    def _version(self, version: int, files: Sequence[DataFile] | None = None) -> Iterator[Rows]:
        """The rows of a version, or of some files of it, that are for this subscription and not closed."""
        log, key = self._logs.deliveries, self._key
        some = [each for each in (log.files(version) if files is None else files) if each.is_for(key)]
        for table in log.data.of(some, version, partial(chosen, key=key)):
            yield self._logs.closed.without(key, rows_of(table, self._slots_of))

    def _merge(self) -> None:
        """Streams between two versions that stand at the same one become one."""
        kept: dict[int, _Stream] = {}
        for stream in self._streams:
            if stream.rows is None and stream.version in kept:
                kept[stream.version].slots |= stream.slots
            elif stream.rows is None:
                kept[stream.version] = stream
        self._streams = [*kept.values(), *(each for each in self._streams if each.rows is not None)]
