"""A world of consumers that share a subscription, in virtual time: one log, and whatever may go wrong around it.

Each consumer has a replay, a clock with a rate of its own, and reads and appends when it likes. Rows land late, twice,
out of order, or never. Nothing is drawn here: a test says what happens, and the world checks what must always hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from state import (
    LeaseKind,
    LeaseMember,
    LeaseReplay,
    LeaseRow,
    LeaseTiming,
    SubscriptionType,
    pack_leases,
    unpack_leases,
)
from state.lease_events import (
    Active,
    Append,
    Busy,
    CaughtUp,
    Died,
    Drain,
    Drained,
    Drop,
    Ended,
    Event,
    Handed,
    Instruction,
    Leave,
    Looked,
    Rebased,
    Resume,
    Take,
)

STEP = 100
"""Ms between two moments of the world."""
Fate = list[int]
"""When each copy of an append lands, ms from now; nothing: it is lost."""


@dataclass
class Consumer:
    """A consumer process: a member, its replay, and an application that works on one message of a slot at a time."""

    name: str
    number: int
    member: LeaseMember
    rate: float = 1.0
    priority: int = 0
    read: int = 0
    paused_until: int = 0
    dead: bool = False
    closed: bool = False
    work_ms: int = 200
    look_ms: int = STEP
    stall_ms: int = 0
    stalled: bool = False
    looked_at: int = -1
    busy: list[str] = field(default_factory=list)
    active: list[bool] = field(default_factory=list)
    draining: dict[int, int] = field(default_factory=dict)
    working: dict[int, int] = field(default_factory=dict)
    taken: list[Take] = field(default_factory=list)
    died: frozenset[int] = frozenset()

    @property
    def there(self) -> bool:
        """Whether it counts among the living."""
        return not (self.dead or self.closed)


class World:
    """All of it. `step` moves time on; the checks run with each step.

    Attributes:
        longest_gap: the longest time in which nobody might hand out some slot while consumers were there, ms.
        overtakes: messages that were handed out while another one of the same slot was being worked on elsewhere.
        appends: commits that consumers asked for, and `rows` what was in them.
    """

    def __init__(self, kind: SubscriptionType = SubscriptionType.SHARED, slots: int = 6) -> None:
        """Nobody there, nothing in the log."""
        self.kind, self.slots, self.timing = kind, kind.slots(slots), LeaseTiming()
        self.now, self.sessions, self.places = 0, 0, 0
        self.log: list[tuple[LeaseRow, ...]] = []
        self.flying: list[tuple[int, int, tuple[LeaseRow, ...]]] = []
        self.consumers: list[Consumer] = []
        self.fate: Callable[[tuple[LeaseRow, ...]], Fate] = lambda _: [STEP]
        self.since_handed = dict.fromkeys(range(self.slots), 0)
        self.longest_gap = 0
        self.appends = self.rows = self.overtakes = 0

    # ---- what a test does

    def join(self, name: str, rate: float = 1.0, priority: int = 0, work_ms: int = 200) -> Consumer:
        """A new consumer; it starts from a snapshot of the log as it is now."""
        consumer = Consumer(name, len(self.consumers), self._member(name, priority), rate, priority, len(self.log))
        consumer.work_ms = work_ms
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        """The application closes it."""
        if consumer.there:
            consumer.closed = True
            self._obey(consumer, consumer.member.handle(self.clock(consumer), Leave()))

    def kill(self, consumer: Consumer, *, seen: bool = False) -> None:
        """Its process ends; when that is seen, the others know it at their next turn."""
        consumer.dead = True
        for other in (each for each in self.consumers if each.there and seen):
            other.died |= {consumer.member.session}

    def cut(self, consumer: Consumer) -> None:
        """The rows that it has not read are gone: it goes on from a snapshot."""
        self._obey(consumer, consumer.member.handle(self.clock(consumer), Rebased(self.folded())))
        consumer.read = len(self.log)

    def clock(self, consumer: Consumer) -> int:
        """What its clock shows."""
        return int(self.now * consumer.rate) + 7_919 * consumer.number

    def folded(self) -> LeaseReplay:
        """A replay of the whole log, that has been through bytes half-way."""
        replay, half = LeaseReplay(self.slots), len(self.log) // 2
        for rows in self.log[:half]:
            replay.apply(rows)
        replay = unpack_leases(pack_leases(replay))
        for rows in self.log[half:]:
            replay.apply(rows)
        return replay

    def owners(self) -> list[str | None]:
        """Names of the owners of the slots, by the log."""
        replay = self.folded()
        return [None if each.owner is None else replay.peers[each.owner].consumer for each in replay.slots]

    def measure(self) -> None:
        """Count anew from here on."""
        self.longest_gap, self.appends, self.rows, self.overtakes = 0, 0, 0, 0
        self.since_handed = dict.fromkeys(range(self.slots), self.now)

    def run(self, ms: int) -> None:
        """Let time pass."""
        for _ in range(0, ms, STEP):
            self.step()

    def step(self) -> None:
        """One moment."""
        self.now += STEP
        self._land()
        for consumer in self.consumers:
            if consumer.there and consumer.paused_until <= self.now:
                self._turn(consumer)
        self._check()

    # ---- how it works

    def _member(self, name: str, priority: int) -> LeaseMember:
        self.sessions += 1
        return LeaseMember(self.folded(), name, self.sessions, self.kind, self.timing, priority)

    def _land(self) -> None:
        landing = [each for each in self.flying if each[0] <= self.now]
        self.flying = [each for each in self.flying if each[0] > self.now]
        self.log += [rows for _, _, rows in sorted(landing, key=lambda each: each[:2])]

    def _turn(self, consumer: Consumer) -> None:
        """A moment of a consumer that runs: it looks if it is time, works, and says what it has done."""
        now = self.clock(consumer)
        if consumer.died:
            self._obey(consumer, consumer.member.handle(now, Died(consumer.died)))
            consumer.died = frozenset()
        if self.now - consumer.looked_at >= consumer.look_ms and not consumer.stalled:
            consumer.looked_at = self.now
            for rows in self.log[consumer.read :]:
                consumer.member.replay.apply(rows)
            consumer.read = len(self.log)
            if consumer.stall_ms:  # It stands still between reading and acting on what it has read.
                consumer.paused_until, consumer.stall_ms, consumer.stalled = self.now + consumer.stall_ms, 0, True
                return
            self._obey(consumer, consumer.member.handle(now, Looked()))
        elif consumer.stalled:
            consumer.stalled = False
            self._obey(consumer, consumer.member.handle(now, Looked()))
        elif now >= consumer.member.next_call:
            self._obey(consumer, consumer.member.handle(now))
        self._work(consumer, now)

    def _work(self, consumer: Consumer, now: int) -> None:
        consumer.working = {slot: end for slot, end in consumer.working.items() if end > self.now}
        for slot in consumer.member.slots:
            if slot not in consumer.working and consumer.member.may_hand_out(slot, now):
                self.overtakes += any(slot in each.working for each in self.consumers if each.there)
                self.places += 1
                consumer.working[slot] = self.now + consumer.work_ms
        done = [slot for slot in consumer.draining if slot not in consumer.working]
        events: list[Event] = [Handed(self.places), *(Drained(slot) for slot in done)]
        self._obey(consumer, consumer.member.handle(now, *events))

    def _obey(self, consumer: Consumer, instructions: list[Instruction]) -> None:
        for each in instructions:
            match each:
                case Append(rows):
                    self.appends, self.rows = self.appends + 1, self.rows + len(rows)
                    self._check_releases(consumer, rows)
                    self.flying += [(self.now + delay, consumer.number, rows) for delay in self.fate(rows)]
                case Take(slot, owed):
                    self._taken(consumer, slot, owed)
                case Drain(slot):
                    consumer.draining[slot] = self.now
                case Resume(slot) | Drop(slot):
                    consumer.draining.pop(slot, None)
                case Busy(name):
                    consumer.busy.append(name)
                case Active(active):
                    consumer.active.append(active)
                case Ended() if consumer.there:
                    consumer.working, consumer.draining = {}, {}
                    consumer.member, consumer.read = self._member(consumer.name, consumer.priority), len(self.log)

    def _taken(self, consumer: Consumer, slot: int, owed: int | None) -> None:
        """It works on what was there at once: it says so, and that it is level with the rest."""
        consumer.taken.append(Take(slot, owed))
        now = self.clock(consumer)
        self._obey(consumer, consumer.member.handle(now, Handed(self.places, slot), CaughtUp(slot)))

    def _check_releases(self, consumer: Consumer, rows: tuple[LeaseRow, ...]) -> None:
        """A slot goes to the next one when its messages are settled, or have had their time."""
        for slot in [row.slot for row in rows if row.kind == LeaseKind.RELEASE and row.slot in consumer.working]:
            waited = (self.now - consumer.draining[slot]) * consumer.rate
            assert waited >= self.timing.drain_ms - 1, f"slot {slot} was released after {waited} ms of work on it"

    def _check(self) -> None:
        """No two may hand out the same slot; a consumer that is paused is asked as if it woke up at this moment."""
        there = [each for each in self.consumers if each.there]
        for slot in range(self.slots):
            may = [each for each in there if each.member.may_hand_out(slot, self.clock(each))]
            assert len(may) <= 1, f"slot {slot} at {self.now}: {[each.name for each in may]}"
            if may or not there:
                self.longest_gap = max(self.longest_gap, self.now - self.since_handed[slot])
                self.since_handed[slot] = self.now

    def settled(self) -> None:
        """What must hold when nothing has gone wrong for a while: shares are fair, and every slot is given out."""
        there = [each for each in self.consumers if each.there]
        owners = self.owners()
        held = {each.name: owners.count(each.name) for each in there}
        alone = self.kind.alone
        assert not there or None not in owners, owners
        assert alone or not held or max(held.values()) - min(held.values()) <= 1, held
        for slot in range(self.slots):
            may = [each.name for each in there if each.member.may_hand_out(slot, self.clock(each))]
            assert may == [owners[slot]] if there else may == []
        replays = {pack_leases(each.member.replay) for each in there if each.read == len(self.log)}
        assert len(replays) <= 1
