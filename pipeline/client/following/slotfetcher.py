"""The rows of the slots that a consumer has: what was open when it took them, then what comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.client.consuming.clock import Clock, Pace
from pipeline.client.consuming.events import OWNER_LOST, EventRows, runs_of
from pipeline.client.consuming.holding import Holding
from pipeline.client.consuming.rows import Key, Rows, slot_rule
from pipeline.client.consuming.writer import EventWriter
from pipeline.client.following.backlog import Backlog, OpenRows, behind, careful
from pipeline.client.following.logs import ClosedLog, CursorLog, CursorSnapshot, LeaseLog, Open, RegistryLog
from pipeline.client.following.slotstreams import SlotStreams
from pipeline.client.following.tail import DeliveryLog
from pipeline.config.errors import VersionGone
from pipeline.subscriptions.incarnations import Name
from state import Condition, LeaseReplay, SubscriptionType
from state.lease_events import Event, Take

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
        waiting = [each for each in self._streams.backlogs if each.rows is None and each.held is None]
        new = [each for each in waiting if each.still_open is None and self._covered(each)]
        snapshot = self._logs.cursors.snapshot(*self._key[:2]) if new else None
        if snapshot is not None and snapshot.rows.life == self._key[2]:
            still_open = snapshot.entries(Condition.OUTSTANDING)
            self._logs.closed.add(self._key, snapshot.entries(Condition.WITHDRAWN))
            for backlog in new:
                backlog.still_open = still_open
        for backlog in waiting:
            if backlog.still_open is not None:
                try:
                    self._begin_rows(backlog, backlog.still_open, event_rows)
                except VersionGone:
                    self._streams.lose(backlog.slots)
                except Exception:
                    # Nobody goes on in the middle of a file: another turn looks for all of it.
                    backlog.paying, backlog.lost = None, []
                    raise

    def _begin_rows(self, backlog: Backlog, still_open: Open, event_rows: EventRows) -> None:
        if not backlog.owed:
            backlog.rows = self._rows(backlog, still_open)
        elif self._is_paid(backlog, still_open, event_rows):
            backlog.rows = careful(self._rows(backlog, still_open))

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

    def _is_paid(self, backlog: Backlog, still_open: Open, event_rows: EventRows) -> bool:
        """Count a failure for what the last owner may have handed out; False: another turn has to read the rest."""
        backlog.paying = backlog.paying or self._table.light(backlog, still_open)
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
