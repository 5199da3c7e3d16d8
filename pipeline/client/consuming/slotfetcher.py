"""The rows of the slots that a consumer has: what was open when it took them, then version after version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from pipeline.client.consuming.backlog import Backlog, BacklogState, OpenRows, behind, careful
from pipeline.client.consuming.clock import Clock, Pace
from pipeline.client.consuming.earlyredeliveries import EarlyRedeliveries
from pipeline.client.consuming.holding import Holding
from pipeline.client.consuming.writer import EventWriter
from pipeline.client.tables.datarows import DataFile
from pipeline.client.tables.events import OWNER_LOST, EventRows, runs_of
from pipeline.client.tables.logs import ClosedLog, CursorLog, CursorSnapshot, LeaseLog, Open, RegistryLog
from pipeline.client.tables.rows import Key, Rows, SlotsOf, chosen, rows_of, slot_rule
from pipeline.client.tables.tail import DeliveryLog
from pipeline.config.errors import VersionGone
from pipeline.subscriptions.incarnations import Name
from state import Condition, LeaseReplay, SubscriptionType
from state.lease_events import CaughtUp, Event, Take

_COUNT = "redelivery_count"


@dataclass
class _Stream:
    """Slots that have been read up to a version, and what is left of the next one."""

    slots: set[int]
    version: int
    rows: Iterator[Rows] | None = None


class SlotStreams:
    """The rows of one consumer. Slots that have been read equally far are read together.

    Attributes:
        lost: slots whose versions are gone: what is open of them has to be read from the table.
    """

    def __init__(self, log: DeliveryLog, closed: ClosedLog, key: Key, slots_of: SlotsOf, pace: Pace) -> None:
        """No slots."""
        self._log, self._closed, self._key, self._slots_of = log, closed, key, slots_of
        self._streams: list[_Stream] = []
        self._pace = pace
        self.backlogs: list[Backlog] = []
        self.lost: set[int] = set()
        self._early = EarlyRedeliveries()

    @property
    def oldest(self) -> int:
        """The oldest version that is needed, less one."""
        versions = [stream.version for stream in self._streams] + [each.version for each in self.backlogs]
        return min(versions, default=self._log.last)

    def take(self, backlog: Backlog) -> None:
        """Slots come in, with what is open of them."""
        self.drop(backlog.slots)
        self.backlogs.append(backlog)

    def drop(self, slots: Collection[int]) -> None:
        """Slots go."""
        for stream in self._streams:
            stream.slots -= set(slots)
        for backlog in self.backlogs:
            backlog.slots -= set(slots)
        self.lost -= set(slots)
        self._early.drop(slots)
        self._streams = [each for each in self._streams if each.slots]
        self.backlogs = [each for each in self.backlogs if each.slots]

    def next(self) -> tuple[Rows | None, list[Event]]:
        """The next rows, None when there are none now; and what the lease is to be told before they are handed out.

        Where a piece of a file has none, rows of length 0 come: there may be more.

        Raises:
            OSError: a file cannot be read now.
        """
        with self._whole():
            return self._next()

    def _next(self) -> tuple[Rows | None, list[Event]]:
        events: list[Event] = []
        for backlog in list(self.backlogs):
            rows, says = self._of_backlog(backlog)
            events += says
            if rows is not None:
                return rows, events
        self._merge()
        self._early.passed(self.oldest)
        for stream in sorted(self._streams, key=lambda each: each.version):
            rows = self._of_stream(stream)
            if rows is not None:
                return rows, events
        return None, events

    def _of_backlog(self, backlog: Backlog) -> tuple[Rows | None, list[Event]]:
        try:
            rows, says = backlog.next()
        except VersionGone:
            self.lose(backlog.slots)
            return None, []
        if backlog.state is BacklogState.READ:
            self.backlogs.remove(backlog)
            self._streams.append(_Stream(backlog.slots, backlog.version))
            return None, [CaughtUp(slot) for slot in sorted(backlog.slots)] if backlog.announces else []
        return rows, list(says)

    def _of_stream(self, stream: _Stream) -> Rows | None:
        try:
            while stream.rows is not None or stream.version < self._log.last:
                if stream.rows is None:
                    stream.rows = self._version(stream.version + 1)
                rows = next(stream.rows, None)
                if rows is None:
                    stream.rows, stream.version = None, stream.version + 1
                else:
                    return self._early.without(rows.of_slots(stream.slots))
        except VersionGone:
            self.lose(stream.slots)
        return None

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Rows that were read in a turn go with it when it fails, and nobody goes on in the middle of a file.

        So all slots are read anew then: open rows are read again; rows that the application still holds are skipped.
        """
        try:
            yield
        except Exception:
            self.lose(set().union(*(each.slots for each in self._streams), *(each.slots for each in self.backlogs)))
            raise

    def lose(self, slots: Collection[int]) -> None:
        """Versions or files of slots are gone."""
        gone = set(slots)
        self.drop(gone)
        self.lost |= gone

    def redeliveries(self) -> Iterator[Rows]:
        """What was delivered before and comes later than what was read so far; it does not come again in its turn.

        What is left of a version of which some was read comes in its turn only.

        Raises:
            OSError: as `next`.
        """
        with self._whole():
            yield from self._redeliveries()

    def _redeliveries(self) -> Iterator[Rows]:
        begun = {slot: each.version + (each.rows is not None) for each in self._streams for slot in each.slots}
        begun |= {slot: each.version for each in self.backlogs for slot in each.slots}
        first = max(self._early.upto, self.oldest) + 1
        for version in range(first, self._log.last + 1) if begun else ():
            if not self._pace.more:
                return
            self._early.upto = version
            mine = [slot for slot, upto in begun.items() if upto < version]
            for rows in self._again(version):
                found = rows.where(rows.counts > 0).of_slots(mine)
                if len(found):
                    self._early.give(found)
                    yield found

    def _again(self, version: int) -> Iterator[Rows]:
        """The rows of those files of a version that hold redeliveries; none when the version is gone: it is lost."""
        with suppress(VersionGone):
            yield from self._version(version, [f for f in self._log.files(version) if f.high.get(_COUNT) != 0])

    def _version(self, version: int, files: Sequence[DataFile] | None = None) -> Iterator[Rows]:
        """The rows of a version, or of some files of it, that are for this subscription and not closed."""
        some = [each for each in (self._log.files(version) if files is None else files) if each.is_for(self._key)]
        for table in self._log.data.of(some, version, partial(chosen, key=self._key)):
            yield self._closed.without(self._key, rows_of(table, self._slots_of))

    def _merge(self) -> None:
        """Streams between two versions that stand at the same one become one."""
        kept: dict[int, _Stream] = {}
        for stream in self._streams:
            if stream.rows is None and stream.version in kept:
                kept[stream.version].slots |= stream.slots
            elif stream.rows is None:
                kept[stream.version] = stream
        self._streams = [*kept.values(), *(each for each in self._streams if each.rows is not None)]


_NONE = (np.zeros(0, np.int64),) * 3


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

    def replay(self, key: Key, snapshot: CursorSnapshot | None = None) -> LeaseReplay | None:
        """Who leases the slots of a subscription; None when it cannot be told yet.

        Raises:
            VersionGone: not from this snapshot.
        """
        found = self.leases.replay(key)
        if found is not None:
            return found
        snapshot = snapshot or self.cursors.snapshot(*key[:2])
        return None if snapshot is None or snapshot.rows.life != key[2] else self.leases.begin(key, snapshot)

    def keep(self, keys: AbstractSet[Key], names: AbstractSet[Name]) -> None:
        """Forget what nobody of this process asks about any more.

        Args:
            keys: the lives in which its consumers are.
            names: their subscriptions.
        """
        self.leases.keep(keys)
        self.closed.keep(keys)
        self.cursors.keep(names)
        self.registry.keep({subscription for _, subscription in names})


class SlotFetcher:
    """The rows of one consumer, in one life of its subscription; belongs to the thread that turns the engine."""

    def __init__(self, logs: Logs, key: Key, kind: SubscriptionType, slots: int) -> None:
        """No slots."""
        rule = slot_rule(kind, slots)
        self._logs, self._key = logs, key
        self._streams = SlotStreams(logs.deliveries, logs.closed, key, rule, logs.pace)
        self._table = OpenRows(logs.deliveries, key, rule)
        logs.closed.watch(key)

    @property
    def oldest(self) -> int:
        """The version of `deliveries` up to which all was read."""
        return self._streams.oldest

    @property
    def lost(self) -> set[int]:
        """Slots that are to be read from the table anew: what was read of them before counts no more."""
        return self._streams.lost

    def redeliveries(self) -> Iterator[Rows]:
        """See `SlotStreams.redeliveries`."""
        return self._streams.redeliveries()

    def take(self, taken: list[Take], holding: Holding) -> None:
        """Slots that are ours now."""
        self._begin_all({take.slot: (take.owed, True) for take in taken}, holding)

    def again(self, replay: LeaseReplay, holding: Holding, resumed: set[int]) -> None:
        """Slots of which rows were thrown away or are gone from the log, but that are ours still."""
        slots = {slot: replay.slots[slot] for slot in self._streams.lost | resumed}
        self._begin_all({n: (slot.owed if slot.behind else None, slot.behind) for n, slot in slots.items()}, holding)

    def drop(self, slots: set[int]) -> None:
        """Slots that are not ours any more."""
        self._streams.drop(slots)

    def announced(self, slot: int, upto: int) -> None:
        """The log has it that messages of a slot up to a place may have been handed out."""
        for backlog in self._streams.backlogs:
            if slot in backlog.slots:
                backlog.announced(slot, upto)

    def next(self) -> tuple[Rows | None, list[Event]]:
        """See `SlotStreams.next`."""
        return self._streams.next()

    def begin_backlogs(self, event_rows: EventRows) -> None:
        """Read what is open of slots, as soon as settle has read what was said of them."""
        backlogs = self._streams.backlogs
        new = [each for each in backlogs if each.state is BacklogState.WAITING and self._covered(each)]
        snapshot = self._logs.cursors.snapshot(*self._key[:2]) if new else None
        if snapshot is not None and snapshot.rows.life == self._key[2]:
            still_open = snapshot.entries(Condition.OUTSTANDING)
            self._logs.closed.add(self._key, snapshot.entries(Condition.WITHDRAWN))
            for backlog in new:
                if backlog.owed:
                    backlog.pay(still_open)
                else:
                    backlog.read(self._rows(backlog, still_open))
        for backlog in [each for each in backlogs if each.state is BacklogState.PAYING]:
            try:
                if self._is_paid(backlog, event_rows):
                    backlog.read(careful(self._rows(backlog, backlog.still_open)))
            except VersionGone:
                self._streams.lose(backlog.slots)
            except Exception:
                # Nobody goes on in the middle of a file: another turn looks for all of it.
                backlog.paying, backlog.lost = None, []
                raise

    def _begin_all(self, taken: Mapping[int, tuple[int | None, bool]], holding: Holding) -> None:
        """Read what is open of slots; by slot what is owed, and whether the lease is to be told how far this is."""
        for owes, announces in ((False, True), (True, True), (False, False)):
            owed = {
                slot: upto for slot, (upto, tells) in taken.items() if (upto is not None, tells) == (owes, announces)
            }
            if owed:
                paid = {slot: upto for slot, upto in owed.items() if upto is not None}
                self._begin(set(owed), paid, holding, announces=announces)

    def _begin(self, slots: set[int], owed: dict[int, int], holding: Holding, *, announces: bool) -> None:
        logs = self._logs
        known = (logs.deliveries.last, logs.leases.last, logs.deliveries.source)
        self._streams.take(Backlog(slots, *known, owed, announces, logs.writer.asked, holding.copy()))

    def _covered(self, backlog: Backlog) -> bool:
        """Whether settle has read all that counts for a backlog."""
        writer = self._logs.writer
        if writer.done < backlog.mark:
            return False
        if backlog.mark:
            backlog.events, backlog.mark = max(backlog.events, writer.version), 0
        return self._logs.cursors.covers(backlog.events, backlog.released)

    def _rows(self, backlog: Backlog, still_open: Open) -> Iterator[Rows]:
        for rows in self._table.of(backlog, still_open):
            left = rows.where(behind(rows, backlog.owed)) if backlog.owed else rows
            yield left.where(~backlog.exclude.held(left))

    def _is_paid(self, backlog: Backlog, event_rows: EventRows) -> bool:
        """Count a failure for what the last owner may have handed out; False: another turn has to read the rest."""
        backlog.paying = backlog.paying or self._table.light(backlog, backlog.still_open)
        for rows in backlog.paying:
            lost = rows.where(~behind(rows, backlog.owed))
            backlog.lost.append((lost.ledgers, lost.entries, lost.counts))
            if not self._logs.pace.more:
                return False
        ledgers, entries, counts = (np.concatenate(each) for each in zip(_NONE, *backlog.lost, strict=True))
        for count in np.unique(counts).tolist():
            positions = runs_of(ledgers[counts == count], entries[counts == count])
            self._say(event_rows.nacks(positions, count, None, OWNER_LOST, self._logs.clock.wall()))
        backlog.lost = []
        return True

    def _say(self, rows: pa.Table) -> None:
        self._logs.writer.add(rows)
