"""Leases: which consumer has which slots of a subscription, as everybody reads it from one log.

Consumers append rows to `consumer_events`; whoever folds them in the order of the log comes to the same owners. There
is no coordinator, no conditional write and no clock in here. What a consumer does with this is in `state/member.py`.

A slot has a counter. It grows with each change of its owner, and with each renewal of the owner. A claim names the
counter that the claimant saw: it is void when anything has happened to the slot since. So of two claims the first one
in the log wins, and a renewal that stands before a claim saves the slot.

Two consumers join, and both claim slot 0, of which they saw counter 0. The first claim in the log wins. The counter has
grown by it, so the second claim is void:

    >>> replay = LeaseReplay(slots=2)
    >>> joined = [LeaseRow(LeaseKind.RENEW, each, session, 1, lease_ms=9_000) for each, session in (("a", 5), ("b", 6))]
    >>> claims = [LeaseRow(LeaseKind.CLAIM, name, session, 0, slot=0) for name, session in (("b", 6), ("a", 5))]
    >>> replay.apply([*joined, *claims])
    3
    >>> replay.owned(5), replay.owned(6), replay.slots[0].counter
    ([], [0], 1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from state.buckets import check_range
from state.slots import MAX_SLOTS, SLOTS

MAX_NUMBER = 1 << 62
"""Above every session, counter and place."""
MAX_PRIORITY = 1 << 31
MIN_LEASE, MAX_LEASE = 1_000, 600_000
"""Ms. A row that asks for another lease is void: one that lasts for years would keep its slots for years."""
MOST_PEERS = MAX_SLOTS
"""Consumers that are there at once. When more come, half of those without a slot are gone: their rows may be anybody's,
and a consumer that lives joins anew."""
REMEMBERED = 256
"""Sessions that ended and are remembered, so that a late or repeated row of theirs does not begin them again."""


class LeaseKind(StrEnum):
    """What a row of a lease says; the column `kind` of `consumer_events`."""

    RENEW = "renew"
    """The consumer lives. Its first one lets it join. With a slot: how far it has got in that slot."""
    CLAIM = "claim"
    """The consumer wants a slot whose counter is `counter`. It owns the slot when the log has accepted this."""
    RELEASE = "release"
    """The consumer gives a slot back."""
    LEAVE = "leave"
    """The consumer is gone. Without `handed`, somebody else says so of a consumer that was silent for a lease."""


_KINDS = frozenset(LeaseKind)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A row of `consumer_events` about leases, of one incarnation of one subscription.

    Attributes:
        kind: what it says.
        consumer: name of the consumer that it is about.
        session: number that its consumer drew at random when it subscribed (0..2^62); names may be used again.
        counter: renew and leave: the number of the consumer's renewal; claim: the counter of the slot that the claimant
            saw; release, and renew of a slot: the counter at which the consumer came to own the slot, or a later one.
        slot: which slot; None for what is about the consumer.
        handed: place up to which messages may have been handed to the application; None: see `LeaseKind`.
        priority: of a failover consumer, 0 is the best.
        lease_ms: how long the others wait after this renewal before they take the slots.
    """

    kind: LeaseKind
    consumer: str
    session: int
    counter: int
    slot: int | None = None
    handed: int | None = None
    priority: int = 0
    lease_ms: int = 0


@dataclass(slots=True)
class LeasedSlot:
    """What the log says of a slot.

    Attributes:
        owner: session of the consumer that has it; None: nobody.
        counter: what a claim must name.
        since: the counter when the owner came to own it.
        handed: place up to which its messages may have been handed out, by anybody.
        owed: up to which place the owner, or the next one, has to nack with reason `owner_lost`; None: nothing.
        behind: True while the owner works on what was there before it came; then its renewals say nothing of it.
    """

    owner: int | None = None
    counter: int = 0
    since: int = 0
    handed: int = 0
    owed: int | None = None
    behind: bool = False


@dataclass(slots=True)
class Peer:
    """What the log says of a consumer: name, priority (0 is the best), last renewal, its lease, and its place."""

    consumer: str
    priority: int
    beat: int
    lease_ms: int
    handed: int


class LeaseReplay:
    """The fold over the rows of one incarnation of a subscription. Equal rows in equal order give equal owners.

    Attributes:
        slots: what is known of each slot, by number.
        peers: the consumers that are there, by session.
        gone: sessions that ended, the latest ones, oldest first.
        changes: rows that changed something; who sees the same number twice has missed nothing.
    """

    def __init__(self, slots: int = SLOTS) -> None:
        """Nobody there.

        Raises:
            OutOfRange: `slots` not in 1..4096.
        """
        self.slots = [LeasedSlot() for _ in range(check_range("slots", slots, 1, MAX_SLOTS))]
        self.peers: dict[int, Peer] = {}
        self.gone: dict[int, None] = {}
        self.changes = 0
        # Consumers that are known to have no slot. There may be thousands, and as many slots.
        self._idle = set[int]()

    def apply(self, rows: Iterable[LeaseRow]) -> int:
        """Fold in the next rows of the log; return how many were accepted. The others are void and change nothing.

        A row that no consumer of this code writes is void as well, whatever is in it. O(rows), renewals of a consumer
        that has slots O(slots).
        """
        before = self.changes
        for row in rows:
            self.changes += _sound(row, len(self.slots)) and self._accepts(row)
        return self.changes - before

    def owned(self, session: int) -> list[int]:
        """The slots of a consumer, ascending. O(slots)."""
        return [number for number, slot in enumerate(self.slots) if slot.owner == session]

    def _accepts(self, row: LeaseRow) -> bool:
        match row.kind:
            case LeaseKind.RENEW if row.slot is None:
                return self._renew(row)
            case LeaseKind.LEAVE:
                return self._leave(row)
        slot = self.slots[row.slot or 0]
        if row.kind == LeaseKind.CLAIM:
            return self._claim(row, slot)
        if slot.owner != row.session or row.counter < slot.since:
            return False
        return self._release(slot) if row.kind == LeaseKind.RELEASE else self._got_to(row, slot)

    def _renew(self, row: LeaseRow) -> bool:
        peer = self.peers.get(row.session)
        if row.session in self.gone or (peer is not None and row.counter <= peer.beat):
            return False
        if peer is None:
            self._idle.add(row.session)
        handed = max(row.handed or 0, peer.handed if peer else 0)
        self.peers[row.session] = Peer(row.consumer, row.priority, row.counter, row.lease_ms, handed)
        if len(self.peers) > MOST_PEERS:
            self._make_room(row.session)
        for number in self._had(row.session):
            slot = self.slots[number]
            slot.counter += 1
            slot.handed = slot.handed if slot.behind else max(slot.handed, handed)
        return True

    def _had(self, session: int) -> list[int]:
        """The slots of a consumer, which are not looked for again when there are none."""
        found = [] if session in self._idle else self.owned(session)
        if not found:
            self._idle.add(session)
        return found

    def _make_room(self, newcomer: int) -> None:
        """End half of the sessions that have no slot, those first that have renewed least often."""
        owners = {slot.owner for slot in self.slots}
        idle = [session for session in self.peers if session not in owners and session != newcomer]
        idle.sort(key=lambda session: (self.peers[session].beat, session))
        for session in idle[: len(idle) // 2 + 1]:
            self._end(session, lost=False)

    def _claim(self, row: LeaseRow, slot: LeasedSlot) -> bool:
        if row.session not in self.peers or slot.owner == row.session or slot.counter != row.counter:
            return False
        if slot.owner is not None:
            self._end(slot.owner, lost=True)
        self._idle.discard(row.session)
        slot.owner, slot.counter, slot.since, slot.behind = row.session, row.counter + 1, row.counter + 1, True
        return True

    def _release(self, slot: LeasedSlot) -> bool:
        slot.owner, slot.counter = None, slot.counter + 1
        return True

    def _got_to(self, row: LeaseRow, slot: LeasedSlot) -> bool:
        """A row of an owner that is behind: it has paid what was owed, and says how far it is, or (None) keeps up."""
        reached = self.peers[row.session].handed if row.handed is None else row.handed
        before = (slot.handed, slot.behind, slot.owed)
        slot.handed, slot.owed = max(slot.handed, reached), None
        slot.behind = slot.behind and row.handed is not None
        return before != (slot.handed, slot.behind, slot.owed)

    def _leave(self, row: LeaseRow) -> bool:
        peer = self.peers.get(row.session)
        if peer is None or row.counter < peer.beat:
            return False
        self._end(row.session, lost=row.handed is None)
        return True

    def _end(self, session: int, *, lost: bool) -> None:
        """The session is over, and all its slots are free. Counters stay: a claim that is under way is as good."""
        for number in self._had(session):
            slot = self.slots[number]
            slot.owner = None
            slot.owed = slot.handed if lost else slot.owed
        self._idle.discard(session)
        del self.peers[session]
        self.gone[session] = None
        if len(self.gone) > REMEMBERED:
            del self.gone[next(iter(self.gone))]


def _sound(row: LeaseRow, slots: int) -> bool:
    """Whether a row has what its kind needs, within its range; others than consumers may write to the table, too."""
    numbers: list[tuple[object, int]] = [(row.session, MAX_NUMBER), (row.counter, MAX_NUMBER)]
    if row.handed is not None:
        numbers.append((row.handed, MAX_NUMBER))
    if row.slot is not None or row.kind in (LeaseKind.CLAIM, LeaseKind.RELEASE):
        numbers.append((row.slot, slots - 1))
    if row.kind == LeaseKind.RENEW and row.slot is None:
        numbers.append((row.priority, MAX_PRIORITY))
        numbers.append((row.lease_ms - MIN_LEASE, MAX_LEASE - MIN_LEASE))
    return row.kind in _KINDS and all(isinstance(n, int) and 0 <= n <= high for n, high in numbers)
