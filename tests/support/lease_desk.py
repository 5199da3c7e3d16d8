"""A consumer and its log, for tests that say when each row lands."""

from __future__ import annotations

from state import LeaseKind, LeaseMember, LeaseReplay, LeaseRow, SubscriptionType
from state.lease_events import (
    Append,
    Event,
    Instruction,
    Looked,
)

ME, OTHER = 7, 8
LEASE, RENEW, MARGIN = 10_000, 3_000, 1_000
Rows = list[LeaseRow]


class Desk:
    """A member and its log; what it appends lands when the test says so."""

    def __init__(self, kind: SubscriptionType = SubscriptionType.SHARED, slots: int = 4, priority: int = 0) -> None:
        self.replay = LeaseReplay(kind.slots(slots))
        self.member = LeaseMember(self.replay, "me", ME, kind, priority=priority)
        self.waiting: list[Rows] = []

    def handle(self, now: int, *events: Event) -> list[Instruction]:
        """What it answers, without appends; those wait."""
        out = self.member.handle(now, *events)
        self.waiting += [list(each.rows) for each in out if isinstance(each, Append)]
        return [each for each in out if not isinstance(each, Append)]

    def land(self) -> Rows:
        """All that waits lands."""
        rows = [row for rows in self.waiting for row in rows]
        self.waiting = []
        self.replay.apply(rows)
        return rows

    def look(self, now: int, *rows: LeaseRow) -> list[Instruction]:
        """Rows of others and its own land, and it reads to the end of the log."""
        self.land()
        self.replay.apply(rows)
        return self.handle(now, Looked())

    def live(self, since: int, until: int) -> list[Instruction]:
        """It looks every 500 ms, and its rows land."""
        return [each for now in range(since, until, 500) for each in self.look(now)]

    def may(self, now: int) -> list[int]:
        """Slots whose messages it may hand out."""
        return [slot for slot in range(len(self.replay.slots)) if self.member.may_hand_out(slot, now)]


def other(beat: int, priority: int = 0, session: int = OTHER, name: str = "other") -> LeaseRow:
    """A renewal of another consumer."""
    return LeaseRow(LeaseKind.RENEW, name, session, beat, handed=beat * 100, priority=priority, lease_ms=LEASE)


def claim(slot: int, counter: int, session: int = OTHER) -> LeaseRow:
    """A claim of another consumer."""
    return LeaseRow(LeaseKind.CLAIM, "other", session, counter, slot)


def owner_of_all() -> Desk:
    """A consumer that has all four slots, at time 0."""
    desk = Desk()
    desk.look(0)
    desk.look(0)
    assert desk.may(0) == [0, 1, 2, 3]
    return desk
