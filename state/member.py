"""What one consumer does about leases: when it renews, claims, hands over, and may hand out messages.

One door: `LeaseMember.handle(now, *events)` takes what happened and returns what is to be done. `now` is a monotonic
clock of the caller in ms, which has to count the time that a machine sleeps, too (Linux: CLOCK_BOOTTIME).

Why no two consumers hand out one slot: an owner stops at `lease - margin` after it **began** the last renewal that the
log has accepted; the others claim no sooner than a lease after they **saw** that renewal, which is later, or when they
know that its process has ended; and a claim is void when a renewal came first. The margin covers clocks that do not run
alike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from state.buckets import check_range
from state.lease_events import (
    Active,
    Announced,
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
    Paced,
    Rebased,
    Resume,
    Take,
)
from state.lease_timing import LeaseTiming
from state.leases import MAX_NUMBER, MAX_PRIORITY, LeasedSlot, LeaseKind, LeaseReplay, LeaseRow, Peer
from state.shares import Candidate, fair_shares, parts_of_free
from state.slots import SubscriptionType


@dataclass(slots=True)
class _Mine:
    """A slot that the log says is ours: since which counter, announced up to where, and how its hand-over stands."""

    since: int
    announced: int
    draining: int | None = None
    drained: bool = False
    released: int | None = None


class LeaseMember:
    """One consumer, in one session. Several members of a process may share a replay; the caller folds the rows in.

    Time for others is counted in steps of at most a renewal a call, so that a clock that jumps ahead takes nothing from
    them; for our own lease it is the clock itself, so that the same jump ends it.

    Attributes:
        ended: True when nothing is to be done any more.
        until: when it stops handing out, on its own clock, unless a renewal is accepted before; None: it may not.
    """

    def __init__(
        self,
        replay: LeaseReplay,
        consumer: str,
        session: int,
        kind: SubscriptionType = SubscriptionType.SHARED,
        timing: LeaseTiming | None = None,
        priority: int = 0,
    ) -> None:
        """A consumer that has not said anything yet.

        Args:
            replay: of the incarnation of its subscription, with all rows of the log up to now.
            consumer: its name.
            session: drawn at random, 0..2^62; nobody else may have it.
            kind: the type of its subscription.
            timing: lease, renewal, margin, hand-over.
            priority: of a failover consumer, 0 is the best.

        Raises:
            OutOfRange: `session` or `priority` outside its range.
        """
        self.replay, self.consumer, self.kind = replay, consumer, kind
        self.session = check_range("session", session, 0, MAX_NUMBER)
        self.priority = check_range("priority", priority, 0, MAX_PRIORITY)
        self.timing = timing or LeaseTiming()
        self.ended = False
        self.until: int | None = None
        self._mine: dict[int, _Mine] = {}
        # Our renewals: the number of the last one, until when each holds that is not accepted yet, when the last began.
        self._beat, self._ends = 0, dict[int, int]()
        self._renewed: int | None = None
        self._asked: tuple[int, int] | None = None  # The renewal before our last claims, and when that was.
        # How far we are: in the slots that keep up, and in each that does not.
        self._handed, self._progress, self._unsaid = 0, dict[int, int | None](), False
        # The clock; what others are given of it; when we last looked; of each consumer its last renewal and since when.
        self._now, self._waited, self._first = 0, 0, True
        self._looked: int | None = None
        self._seen: dict[int, tuple[int, int]] = {}
        self._joined = False
        self._busy: int | None = None
        # Consumers that were seen to renew: they live. Others may have died before we came.
        self._renewing = set[int]()
        self._died = frozenset[int]()
        self._active: bool | None = None
        # What was seen of the replay, when something happens by itself, and whether something is to be decided.
        self._changes, self._next, self._open = -1, 0, True
        self._out: list[Instruction] = []

    # ---- the door

    def handle(self, now: int, *events: Event) -> list[Instruction]:
        """Take in what happened until `now` (ms, this consumer's clock); return what is to be done, in order.

        Call it whenever the log was looked at, when something happened, and at `next_call` at the latest. O(1) when
        there is nothing new, else O(slots + consumers).
        """
        self._out = []
        if not self.ended:
            self._advance(now)
            for event in events:
                self._take_in(event)
        fresh = self._open or self._changes != self.replay.changes or now >= self._next
        if not self.ended and fresh:
            self._open = True
            self._observe()
            if not self.ended:
                self._go_on(decide=any(isinstance(event, Looked) for event in events))
        return self._out

    def may_hand_out(self, slot: int, now: int) -> bool:
        """Whether a message of this slot may be given to the application at `now`; asked anew for each one. O(1)."""
        # Read once: another thread may turn the consumer meanwhile.
        mine, until = self._mine.get(slot), self.until
        in_time = until is not None and self._now <= now < until
        return in_time and mine is not None and mine.draining is None

    @property
    def next_call(self) -> int:
        """When `handle` is to be called at the latest, ms of this consumer's clock."""
        return self._next

    @property
    def slots(self) -> list[int]:
        """The slots that are ours by the log, ascending."""
        return sorted(self._mine)

    # ---- events

    def _advance(self, now: int) -> None:
        """The clock. One that steps back cannot say how long we have had our lease: it is over until it is renewed."""
        step = 0 if self._first else now - self._now
        if step < 0:
            self.until, self._ends, self._open = None, {}, True
        self._waited += min(max(step, 0), self.timing.renew_ms)
        self._now, self._first = now, False

    def _take_in(self, event: Event) -> None:
        match event:
            case Looked():
                self._looked = self._now
                return
            case Rebased(replay):
                self.replay, self._changes = replay, -1
            case Handed(upto, None):
                self._handed = max(self._handed, upto)
                return
            case Handed(upto, slot) if slot is not None:
                self._progress[slot], self._unsaid = upto, True
            case CaughtUp(slot):
                self._progress[slot], self._unsaid = None, True
            case Drained(slot) if slot in self._mine:
                self._mine[slot].drained = self._mine[slot].draining is not None
            case Paced(timing):
                self.timing = timing
            case Died(sessions):
                self._died |= sessions
            case Leave():
                self._leave()
        self._open = True

    def _leave(self) -> None:
        if self._beat:
            leave = LeaseRow(LeaseKind.LEAVE, self.consumer, self.session, self._beat, handed=self._handed)
            self._out.append(Append((leave,)))
        self._end()

    def _end(self) -> None:
        self._out += [Drop(slot) for slot in self.slots]
        self._mine, self.until, self.ended = {}, None, True
        self._tell_active()
        self._out.append(Ended())

    # ---- what the log says

    def _observe(self) -> None:
        peers = self.replay.peers
        self._changes = self.replay.changes
        known = self._seen
        self._seen = {session: self._sight(session, peer) for session, peer in peers.items()}
        changed = {session for session, sight in self._seen.items() if known.get(session, sight) != sight}
        self._renewing = (self._renewing | changed) & peers.keys()
        self._died &= peers.keys()
        me = peers.get(self.session)
        if me is not None:
            self._joined = True
            self._accepted(me.beat)
        elif self._joined or self.session in self.replay.gone:
            self._end()
            return
        self._compare_slots()

    def _sight(self, session: int, peer: Peer) -> tuple[int, int]:
        """The last renewal of a consumer, and when we first saw it."""
        known = self._seen.get(session)
        return known if known is not None and known[0] == peer.beat else (peer.beat, self._waited)

    def _accepted(self, beat: int) -> None:
        if beat in self._ends:
            # A later one that asks for less may be in the log, too, before we have read it: then others wait for less.
            self.until = min(end for later, end in self._ends.items() if later >= beat)
            self._ends = {later: end for later, end in self._ends.items() if later > beat}

    def _compare_slots(self) -> None:
        owned = {number: self.replay.slots[number] for number in self.replay.owned(self.session)}
        for number in [n for n, mine in self._mine.items() if n not in owned or owned[n].since != mine.since]:
            del self._mine[number]
            self._progress.pop(number, None)
            self._out.append(Drop(number))
        for number, slot in owned.items():
            if number not in self._mine:
                self._mine[number] = _Mine(slot.since, slot.handed)
                self._out.append(Take(number, slot.owed))
            self._compare_progress(number, slot)

    def _compare_progress(self, number: int, slot: LeasedSlot) -> None:
        mine, shown = self._mine[number], number in self._progress and self._shown(number)
        if slot.behind and (shown or slot.handed > mine.announced):
            mine.announced = slot.handed
            self._out.append(Announced(number, slot.handed))
        if shown:
            del self._progress[number]

    def _shown(self, number: int) -> bool:
        """Whether the log has what we said last of a slot that is, or was, behind."""
        slot, upto = self.replay.slots[number], self._progress[number]
        return not slot.behind if upto is None else slot.handed >= upto and slot.owed is None

    # ---- decisions

    def _go_on(self, *, decide: bool) -> None:
        claims = self._decide() if decide else []
        self._tell_active()
        self._append(claims)
        self._open = self._open and not decide
        self._next = self._wake()

    def _decide(self) -> list[int]:
        """Balance what we have; return the slots to claim."""
        peers = self.replay.peers
        live = {session: peers[session] for session in peers if self._lives(session)}
        me = Peer(self.consumer, self.priority, self._beat, self.timing.lease_ms, 0)
        owned = Counter(slot.owner for slot in self.replay.slots)
        candidates = [
            Candidate(session, peer.consumer, peer.priority, owned[session])
            for session, peer in {self.session: me, **live}.items()
        ]
        self._tell_busy(live)
        shares = fair_shares(self.kind, candidates, len(self.replay.slots))
        self._balance(shares[self.session])
        free = [number for number, slot in enumerate(self.replay.slots) if slot.owner not in live]
        part = parts_of_free(shares, owned, free)[self.session]
        return [] if self._undecided() else part

    def _lives(self, session: int) -> bool:
        """Whether a consumer may still have its lease, as far as we can know. We do."""
        silent = self._waited - self._seen[session][1]
        return session == self.session or (session not in self._died and silent < self.replay.peers[session].lease_ms)

    def _undecided(self) -> bool:
        """Whether claims of ours may still be on their way."""
        if self._asked is None:
            return False
        beat, at = self._asked
        me = self.replay.peers.get(self.session)
        return (me is None or me.beat < beat) and self._waited - at < self.timing.renew_ms

    def _balance(self, share: int) -> None:
        """Hand over what is more than our share, the highest slots first; keep what is not."""
        draining = [number for number in self.slots if self._mine[number].draining is not None]
        kept = [number for number in self.slots if self._mine[number].draining is None]
        more = max(0, len(self._mine) - share) - len(draining)
        for number in kept[len(kept) - more :] if more > 0 else []:
            self._mine[number].draining = self._waited
            self._out.append(Drain(number))
        back = [number for number in draining if self._mine[number].released is None]
        for number in back[: max(0, -more)]:
            self._mine[number].draining, self._mine[number].drained = None, False
            self._out.append(Resume(number))

    def _tell_busy(self, live: dict[int, Peer]) -> None:
        """Say who has the subscription once that consumer was seen to renew; one that died never does."""
        owner = self.replay.slots[0].owner
        if self.kind != SubscriptionType.EXCLUSIVE or owner in (None, self.session, self._busy):
            return
        if owner in live and owner in self._renewing:
            self._busy = owner
            self._out.append(Busy(live[owner].consumer))

    def _tell_active(self) -> None:
        active = any(mine.draining is None for mine in self._mine.values())
        if self.kind == SubscriptionType.FAILOVER and self._looked is not None and active != self._active:
            self._active = active
            self._out.append(Active(active))

    # ---- rows

    def _append(self, claims: list[int]) -> None:
        """Whatever is to be said, in one commit, behind a renewal: so a claim is never older than our lease."""
        now = self._now
        if self._looked is None or now - self._looked > self.timing.lease_ms:
            return  # Who cannot read may not hand out: it must not keep its slots from others either.
        if self.kind == SubscriptionType.EXCLUSIVE and not (claims or self._beat):
            return  # An exclusive consumer does not join before it has a chance.
        releases = [self._row(LeaseKind.RELEASE, number) for number in self.slots if self._releases(number)]
        due = self._renewed is None or now // self.timing.renew_ms != self._renewed // self.timing.renew_ms
        if not (due or claims or releases or (self._unsaid and self._progress)):
            return
        rows = [self._renewal(now)]
        rows += [self._row(LeaseKind.RENEW, n, upto) for n, upto in self._progress.items() if n in self._mine]
        rows += [LeaseRow(LeaseKind.CLAIM, self.consumer, self.session, self._counter(n), n) for n in claims]
        rows += releases + (self._farewells() if due else [])
        self._unsaid = False
        self._asked = (self._beat, self._waited) if claims else self._asked
        self._out.append(Append(tuple(rows)))

    def _renewal(self, now: int) -> LeaseRow:
        self._beat += 1
        name, lease = self.consumer, self.timing.lease_ms
        self._renewed, self._ends[self._beat] = now, now + lease - self.timing.margin_ms
        if self.until is not None:
            self.until = min(self.until, self._ends[self._beat])
        return LeaseRow(LeaseKind.RENEW, name, self.session, self._beat, None, self._handed, self.priority, lease)

    def _row(self, kind: LeaseKind, number: int, handed: int | None = None) -> LeaseRow:
        return LeaseRow(kind, self.consumer, self.session, self._mine[number].since, number, handed)

    def _counter(self, number: int) -> int:
        return self.replay.slots[number].counter

    def _releases(self, number: int) -> bool:
        """Whether a slot is to be released now, or once more because the log does not show it; notes that it is."""
        mine = self._mine[number]
        if mine.draining is None or not (mine.drained or self._waited - mine.draining >= self.timing.drain_ms):
            return False
        if mine.released is not None and self._waited - mine.released < self.timing.renew_ms:
            return False
        mine.released = self._waited
        return True

    def _farewells(self) -> list[LeaseRow]:
        """Rows that end the sessions of consumers that died without a slot; the first one of the living writes them."""
        peers = self.replay.peers
        living = {session for session in peers if self._lives(session)}
        owners = {slot.owner for slot in self.replay.slots}
        dead = [session for session in peers if session not in living and session not in owners]
        if min(living, default=None) != self.session:
            return []
        return [LeaseRow(LeaseKind.LEAVE, peers[each].consumer, each, peers[each].beat) for each in dead]

    def _wake(self) -> int:
        """When something happens by itself: our renewal, the end of another's lease, of a hand-over."""
        now, renew = self._now, self.timing.renew_ms
        waits = [(now // renew + 1) * renew - now]
        waits += [at + self.replay.peers[session].lease_ms - self._waited for session, (_, at) in self._seen.items()]
        for mine in self._mine.values():
            if mine.released is not None:
                waits.append(mine.released + renew - self._waited)
            elif mine.draining is not None:
                waits.append(mine.draining + self.timing.drain_ms - self._waited)
        return now + min(wait for wait in waits if wait > 0)
