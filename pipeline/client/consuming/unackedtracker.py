"""Between the application and one consumer of one topic: what it gets, and what it says of it.

Nothing here reads or writes a table. The caller has the lock.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from pipeline.client.clock import Clock
from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.received import Owner, Received
from pipeline.client.consuming.receiverqueue import ReceiverQueue
from pipeline.client.consuming.stats import ConsumerStats
from pipeline.client.tables.deliveryset import DeliverySet
from pipeline.client.tables.events import ACK_TIMEOUT, NACK, EventRows, runs_of
from pipeline.client.tables.rows import Rows
from pipeline.storage.arrays import IntArray, longs
from state import MessageTimers, Positions, UnackedLimit
from state.positionset import PositionSet

Place = tuple[int, int]
"""Ledger, entry."""
Failed = dict[int, Positions]
"""Messages by redelivery count."""
Nack = tuple[int | None, int | None]
"""After how long messages come again, ms (None: by the policies), and their redelivery count (None: any)."""
ROUND = "redelivery_count"
"""The column that says in which round a message came."""
Part = tuple[IntArray, IntArray, bool]
"""Ledgers and entries of messages that were handed out together; whether some of them had failed before."""


class UnackedTracker:
    """Hands out rows and collects what is said of them, until `count` passes it on.

    Attributes:
        queue: what was read and not handed out.
        holding: what the application has, as of the last `count`.
        upto: the last place of which a message was handed out, as of the last `count`.
        event_rows: how rows of events begin; set before anything is queued. None: what is said waits.
        stats: figures for the log.
    """

    def __init__(
        self, clock: Clock, options: ConsumerOptions, may: Callable[[int, int], bool], say: Callable[[pa.Table], None]
    ) -> None:
        """Nothing is queued.

        Args:
            clock: the clock.
            options: how the consumer works.
            may: whether a message of a slot may be handed out at an instant.
            say: takes rows of events.
        """
        self._clock, self._options, self._may, self._say = clock, options, may, say
        timeout = options.unacked_messages_timeout_ms
        self._timers = MessageTimers(timeout, options.unacked_messages_tick_ms) if timeout else None
        self.event_rows: EventRows | None
        self.stats = ConsumerStats(options.stats_interval_s, clock.now())
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.event_rows = None
        self.queue, self.holding = ReceiverQueue(), DeliverySet()
        self._limit = UnackedLimit(self._options.max_unacked)
        self._handed = Handed(self.holding) if self._options.kind.alone else None
        self._acks: list[Place] = []
        self._ack_runs: list[Positions] = []
        self._nacks: dict[Nack, list[Place]] = defaultdict(list)
        self._room = self._limit.room
        self.upto = 0
        if self._timers is not None:
            self._timers.clear()

    # ---- out

    def take_one(self, consumer: Owner) -> Received | None:
        """The next message; None when there is none, or it may not be handed out now."""
        now = self._clock.now()
        while (shown := self.queue.peek()) is not None:
            window, number = shown
            if not self._may(window.slots[number], now):
                return None
            if self._room is not None and not window.counts[number]:
                if self._room <= 0:
                    self.count()
                    if self._room <= 0 and not self.queue.bring_forward_redeliveries():
                        return None
                    continue
                self._room -= 1
            self.queue.step()
            if self._timers is not None:
                self._timers.add_one(window.ledgers[number], window.entries[number], self._clock.timer())
            return Received(window, number, self._options.schema, consumer)
        return None

    def holds(self, message: Received) -> bool:
        """Whether a message that was handed out still is: it was neither settled nor put back, and its life goes on."""
        self.count()
        return self.holding.has(*message.position, message.redelivery_count())

    def take_rows(self, most: int) -> Rows | None:
        """The next messages as they were read; None when there are none, or they may not be handed out now."""
        now = self._clock.now()
        if self._room is not None and self._room <= 0:
            self.count()
            if self._room <= 0:
                self.queue.bring_forward_redeliveries()
        rows = self.queue.take(most, self._room, lambda slots: all(self._may(slot, now) for slot in slots))
        if rows is None:
            return None
        if self._room is not None:
            self._room -= int((rows.counts == 0).sum())
        if self._timers is not None:
            self._timers.add(runs_of(rows.ledgers, rows.entries), self._clock.timer())
        return rows

    # ---- in

    def acknowledge(self, place: Place) -> None:
        """A message is done with."""
        self._acks.append(place)

    def acknowledge_table(self, table: pa.Table) -> None:
        """All messages of a table are."""
        self._ack_runs.append(runs_of(longs(table, "ledger_id"), longs(table, "entry_id")))

    def acknowledge_upto(self, place: Place) -> bool:
        """All that was handed out up to a message is done with; False: it was not handed out."""
        self.count()
        found = None if self._handed is None else self._handed.upto(*place)
        if found is not None:
            self._ack_runs.append(found)
        return found is not None

    def fail(self, place: Place, after_ms: int | None, count: int | None) -> None:
        """A message failed; one that the application does not hold is none of its business.

        Args:
            place: of the message.
            after_ms: it comes again after so long; None: by the policies.
            count: with this redelivery count, else it has come again since, and is somebody else's; None: with any.
        """
        self._nacks[after_ms, count].append(place)

    def fail_table(self, table: pa.Table, after_ms: int | None) -> None:
        """All messages of a table failed, each with its redelivery count, if the table has them; the rest as `fail`."""
        ledgers, entries = longs(table, "ledger_id"), longs(table, "entry_id")
        counts = longs(table, ROUND) if ROUND in table.column_names else None
        for count in [None] if counts is None else np.unique(counts).tolist():
            mine = slice(None) if count is None else counts == count
            self._nacks[after_ms, count] += zip(ledgers[mine].tolist(), entries[mine].tolist(), strict=True)

    def fail_all(self) -> None:
        """All that the application holds comes again at once."""
        self.count()
        self._put_back(self._taken_back(), 0, NACK)

    # ---- the books

    def count(self) -> None:
        """Note what was handed out, and pass on what was said of it since the last time."""
        if self.event_rows is None:
            return
        for rows in self.queue.taken():
            self._limit = self._limit.given(self.holding.add(rows))
            self.stats.handed(rows)
            self.upto = max(self.upto, int(rows.places.max()))
            if self._handed is not None:
                self._handed.add(rows)
        self._pass_acks()
        nacks, self._nacks = self._nacks, defaultdict(list)
        for (after_ms, count), places in nacks.items():
            self._put_back(self._taken_back(_runs(places), count), after_ms, NACK)
        if self._timers is not None and (due := self._timers.take_due(self._clock.timer())):
            self._put_back(self._taken_back(due), None, ACK_TIMEOUT)
        self._room = self._limit.room

    @property
    def has_acks(self) -> bool:
        """Whether there are acknowledgements that were not passed on."""
        return bool(self._acks or self._ack_runs)

    @property
    def is_paused(self) -> bool:
        """Whether the application holds so much, as of the last `count`, that it gets nothing new."""
        return self._room is not None and self._room <= 0

    @property
    def next_timeout(self) -> int | None:
        """When a message that is not acknowledged comes again, by the clock of timeouts, ms; None: never."""
        return None if self._timers is None else self._timers.next_deadline

    def forget(self, slots: Collection[int]) -> None:
        """Nothing more of these slots is handed out."""
        if self.queue.size:
            self.queue.drop(slots)

    @property
    def unacked(self) -> int:
        """How many messages the application has, as of the last `count`."""
        return self._limit.unacked

    def _taken_back(self, positions: Positions | None = None, count: int | None = None) -> Failed:
        """Take some messages (None: all) from what the application has, of one redelivery count or of any, by it."""
        failed = self.holding.take(positions, count)
        self._limit = self._limit.returned(sum(each.messages for each in failed.values()))
        return failed

    def _pass_acks(self) -> None:
        acks, self._acks = self._acks, []
        runs, self._ack_runs = self._ack_runs, []
        for positions in [*runs, _runs(acks)] if acks else runs:
            if len(positions):
                self._say_acks(positions, self._taken_back(positions))
                self.stats.settled += positions.messages
                if self._timers is not None:
                    self._timers.remove(positions)

    def _say_acks(self, positions: Positions, held: Failed) -> None:
        """Say with which redelivery count the application had them; of what it had given back it says none."""
        parts: list[tuple[Positions, int | None]] = [(mine, count) for count, mine in sorted(held.items())]
        if sum(mine.messages for mine, _ in parts) < positions.messages:
            known = PositionSet.union(PositionSet.of(mine) for mine, _ in parts)
            parts.append(((PositionSet.of(positions) - known).positions(), None))
        for mine, count in parts:
            self._say(self._rows.acks(mine, self._clock.wall(), count))

    def _put_back(self, failed: Failed, after_ms: int | None, cause: str) -> None:
        for count, positions in sorted(failed.items()):
            self.stats.failed += positions.messages
            self._say(self._rows.nacks(positions, count, after_ms, cause, self._clock.wall()))
            if self._timers is not None:
                self._timers.remove(positions)

    @property
    def _rows(self) -> EventRows:
        assert self.event_rows is not None  # noqa: S101 - whoever has a message came after the lease
        return self.event_rows


def _runs(places: list[Place]) -> Positions:
    array = np.array(places, np.int64).reshape(-1, 2)
    return runs_of(array[:, 0], array[:, 1])


def _positions(parts: Sequence[Part]) -> Positions:
    none = np.zeros(0, np.int64)
    return runs_of(*(np.concatenate([none, *(each[n] for each in parts)]) for n in (0, 1)))


class Handed:
    """What was handed out, in order, as far as something of it is held: cumulative acknowledgement asks for it."""

    def __init__(self, holding: DeliverySet) -> None:
        self._holding, self._parts = holding, deque[Part]()
        self._last: tuple[int, int] | None = None

    def add(self, rows: Rows) -> None:
        """These were."""
        self._parts.append((rows.ledgers, rows.entries, bool(rows.counts.any())))
        self._tidy()

    def upto(self, ledger: int, entry: int) -> Positions | None:
        """All that was handed out up to a message, and is forgotten from here on; None: it was not handed out.

        Of a message that came again the last time counts.
        """
        # A message comes twice only when it failed in between. All else is looked for from the first part on, which
        # costs little: the parts before the one that has it are forgotten.
        again = [number for number, (*_, failed) in enumerate(self._parts) if failed]
        others = (number for number, (*_, failed) in enumerate(self._parts) if not failed)
        for number in chain(reversed(again), others):
            ledgers, entries, _ = self._parts[number]
            at = np.flatnonzero((ledgers == ledger) & (entries == entry))
            if len(at):
                self._last = (ledger, entry)
                return self._cut(number, int(at[-1]) + 1)
        return _positions([]) if (ledger, entry) == self._last else None

    def _cut(self, number: int, count: int) -> Positions:
        before = [self._parts.popleft() for _ in range(number)]
        ledgers, entries, failed = self._parts[0]
        self._parts[0] = ledgers[count:], entries[count:], failed
        before.append((ledgers[:count], entries[:count], failed))
        found, again = _positions(before), [each for each in self._parts if each[2]]
        # What came again behind the message is in work, however early it came before.
        return (PositionSet.of(found) - PositionSet.of(_positions(again))).positions() if again else found

    def _tidy(self) -> None:
        while self._parts and not self._holding.has_any(*self._parts[0][:2]):
            self._parts.popleft()
