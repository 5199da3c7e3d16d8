"""The slots of one consumer: which it has by its lease, and what becomes of their rows when they change hands."""

from __future__ import annotations

import secrets
import threading

from pipeline.client.consuming.options import ConsumerOptions
from pipeline.client.consuming.slotfetcher import Logs, SlotFetcher
from pipeline.client.consuming.unackedtracker import UnackedTracker
from pipeline.client.tables.events import EventRows
from pipeline.client.tables.rows import Key
from state import LeaseKind, LeaseMember, LeaseReplay, LeaseTiming
from state.lease_events import (
    Announced,
    Append,
    Died,
    Drain,
    Drained,
    Drop,
    Ended,
    Event,
    Handed,
    Instruction,
    Leave,
    Paced,
    Resume,
    Take,
)

NO_SESSION = 0
"""Of who says something without a lease."""
_SESSION_BITS = 62
_CALM_MS = 60_000
"""Commits were often for so long: leases are as they were in the beginning."""
_USUAL = LeaseTiming()
_AWAITED = (LeaseKind.CLAIM, LeaseKind.RELEASE, LeaseKind.LEAVE)
"""Rows of leases for which a slot waits that nobody has."""


class SlotAssignment:
    """The slots of a consumer in one life of its subscription; belongs to the thread that turns the engine.

    | A slot | when the lease says | and then |
    |---|---|---|
    | comes | `Take` | what is open of it is read, but for what the application has |
    | drains | `Drain`: another consumer is to have it | nothing more of it is handed out; it goes when all is settled |
    | stays after all | `Resume` | what is open of it is read again |
    | goes | `Drop` | what was read of it is thrown away |

    Attributes:
        member: the consumer as its peers see it: its lease.
        fetcher: reads the rows of its slots.
        event_rows: how rows of events begin.
    """

    def __init__(
        self,
        logs: Logs,
        key: Key,
        options: ConsumerOptions,
        replay: LeaseReplay,
        tracker: UnackedTracker,
        lock: threading.Condition,
    ) -> None:
        """No slots yet; `lock` guards the tracker."""
        self._logs, self._key, self._options, self._tracker, self._lock = logs, key, options, tracker, lock
        self.fetcher = SlotFetcher(logs, key, options.kind, len(replay.slots))
        self._draining, self._resumed = set[int](), set[int]()
        self._rare_at, self._leaves = 0, False
        self._begin_session(replay)

    def _begin_session(self, replay: LeaseReplay) -> None:
        name, session = self._options.consumer_name, secrets.randbits(_SESSION_BITS)
        self.member = LeaseMember(replay, name, session, self._options.kind, _USUAL, self._options.priority)
        # What cannot be a member holds no lock: nobody would let it go.
        self._logs.sessions.hold(session)
        self.event_rows = self._tracker.event_rows = EventRows(self._key, name, session)

    @property
    def readable(self) -> set[int]:
        """The slots of which messages may be queued."""
        return set(self.member.slots) - self._draining

    def owner(self, slot: int) -> str | None:
        """The consumer that has a slot by the log, whether it lives or not."""
        owner = self.member.replay.slots[slot].owner
        peer = None if owner is None else self.member.replay.peers.get(owner)
        return None if peer is None else peer.consumer

    def read_again(self, replay: LeaseReplay) -> None:
        """Read anew what is open of slots of which rows were lost, and of those that stay after all. Needs the lock."""
        self._tracker.forget(self.fetcher.lost)
        self.fetcher.again(replay, self._tracker.holding, self._resumed)
        self._resumed = set()

    def paced(self, now: int) -> list[Event]:
        """Longer leases while commits are rare; those of the beginning when they have not been so for long."""
        interval, timing = self._logs.writer.interval_ms, self.member.timing
        if interval > _USUAL.renew_ms:
            self._rare_at = now
        if interval > timing.renew_ms:
            return [Paced(LeaseTiming.at_interval(interval))]
        return [Paced(_USUAL)] if timing != _USUAL and now - self._rare_at > _CALM_MS else []

    def died(self) -> list[Event]:
        """The other consumers of which it is known that their processes have ended."""
        ended = self._logs.sessions.ended(self.member.replay.peers.keys() - {self.member.session})
        return [Died(ended)] if ended else []

    def progress(self) -> list[Event]:
        """How far the application is, and which slots it is done with that are to be handed over."""
        with self._lock:
            held = self._tracker.holding.slots if self._draining else set()
        return [Handed(self._tracker.upto), *(Drained(slot) for slot in sorted(self._draining - held))]

    def leave(self) -> list[Instruction]:
        """Let all slots go; as `handle`."""
        self._leaves = True
        said = self.handle(Handed(self._tracker.upto), Leave())
        self.end()
        return said

    def end(self) -> None:
        """The session is over."""
        self._logs.sessions.release(self.member.session)

    def handle(self, *events: Event) -> list[Instruction]:
        """Tell the lease what happened, and do what it says of slots; give what it says beside that."""
        taken: list[Take] = []
        others: list[Instruction] = []
        for each in self.member.handle(self._logs.clock.now(), *events):
            match each:
                case Append(rows):
                    events_of_lease = self.event_rows.leases(rows, self._logs.clock.wall())
                    self._logs.writer.add(events_of_lease, hurry=any(row.kind in _AWAITED for row in rows))
                case Take():
                    taken.append(each)
                case Announced(slot, upto):
                    self.fetcher.announced(slot, upto)
                case Drain(slot) | Drop(slot):
                    self._stop(slot, drains=isinstance(each, Drain))
                case Resume(slot):
                    self._draining.discard(slot)
                    self._resumed.add(slot)
                case Ended() if not self._leaves:
                    # Others took it for dead.
                    self.end()
                    self._begin_session(self.member.replay)
                case _:
                    others.append(each)
        if taken:
            with self._lock:
                self.fetcher.take(taken, self._tracker.holding)
        return others

    def _stop(self, slot: int, *, drains: bool) -> None:
        """Hand out nothing more of a slot. If the slot returns, its open rows are read again."""
        self._draining = self._draining | {slot} if drains else self._draining - {slot}
        self._resumed.discard(slot)
        self.fetcher.drop({slot})
        with self._lock:
            self._tracker.forget({slot})
