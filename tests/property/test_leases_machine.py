"""Leases under what may happen to consumers and to the log, in virtual time (`tests/support/lease_world.py`).

After every step no two consumers may hand out one slot. When things have gone well for a while, the shares are fair,
every slot is given out, and all who have read the log hold the same replay.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from state import LeaseKind, SubscriptionType
from tests.support.lease_world import STEP, Consumer, Fate, World

QUIET_MS = 70_000
"""A late row (30 s), a lease of a slow clock, a hand-over, and time to spare."""
GOOD: list[Fate] = [[100], [100], [300], [700]]
BAD: list[Fate] = [[], [], [100, 2_500], [1_500], [4_000], [9_000], [100, 12_000], [30_000]]
LOOKS = st.sampled_from([STEP, 1_000, 4_000])
FATES = st.lists(st.sampled_from(GOOD + BAD), min_size=1, max_size=12)


class LeaseMachine(RuleBasedStateMachine):
    """Consumers come, go, stop, die, and write into a log that may lose, repeat and delay what they write."""

    def __init__(self, kind: SubscriptionType) -> None:
        """A subscription of some type."""
        super().__init__()
        self.world = World(kind)

    @initialize(renewals=FATES, claims=FATES, looks=st.lists(LOOKS, min_size=1, max_size=4))
    def begin(self, renewals: list[Fate], claims: list[Fate], looks: list[int]) -> None:
        """What becomes of appends, in turns: of those with claims, and of the others. Some consumers are there."""
        for number, look_ms in enumerate(looks):
            self.world.join("abcd"[number]).look_ms = look_ms
        self.world.run(15_000)
        turns = {True: cycle(claims), False: cycle(renewals)}
        self.world.fate = lambda rows: next(turns[any(row.kind == LeaseKind.CLAIM for row in rows)])

    def some(self, number: int) -> Consumer:
        """One of the consumers."""
        return self.world.consumers[number % len(self.world.consumers)]

    @precondition(lambda self: sum(each.there for each in self.world.consumers) < 5)
    @rule(
        number=st.integers(0, 9),
        rate=st.sampled_from([1.0, 0.95, 1.05]),
        priority=st.integers(0, 2),
        work_ms=st.sampled_from([200, 0, 5_000, 60_000]),
        look_ms=LOOKS,
    )
    def join(self, number: int, rate: float, priority: int, work_ms: int, look_ms: int) -> None:
        """A consumer with a clock, a pace of work and of looking."""
        self.world.join(f"{number}{len(self.world.consumers)}", rate, priority, work_ms).look_ms = look_ms

    @precondition(lambda self: self.world.consumers)
    @rule(number=st.integers(0, 9), ms=st.sampled_from([500, 3_000, 8_000, 11_000, 30_000]))
    def pause(self, number: int, ms: int) -> None:
        """A process stands still, for less or for longer than a lease."""
        self.some(number).paused_until = self.world.now + ms

    @precondition(lambda self: self.world.consumers)
    @rule(number=st.integers(0, 9), ms=st.sampled_from([500, 3_000, 8_000, 11_000, 30_000]))
    def stall(self, number: int, ms: int) -> None:
        """It stands still after it has read the log, and before it acts on that."""
        self.some(number).stall_ms = ms

    @precondition(lambda self: self.world.consumers)
    @rule(number=st.integers(0, 9), seen=st.booleans())
    def kill(self, number: int, *, seen: bool) -> None:
        """A process is gone, with what it had not appended; the others may see that it is."""
        self.world.kill(self.some(number), seen=seen)

    @precondition(lambda self: self.world.consumers)
    @rule(number=st.integers(0, 9))
    def leave(self, number: int) -> None:
        """A consumer is closed."""
        self.world.leave(self.some(number))

    @precondition(lambda self: self.world.consumers)
    @rule(number=st.integers(0, 9))
    def fall_behind(self, number: int) -> None:
        """The log was cut above what a consumer has read."""
        if self.some(number).there:
            self.world.cut(self.some(number))

    @rule(ms=st.sampled_from([STEP, 1_000, 3_000]))
    def run(self, ms: int) -> None:
        """Time passes."""
        self.world.run(ms)

    @rule(ms=st.sampled_from([9_000, 11_000, 20_000]))
    def run_long(self, ms: int) -> None:
        """About a lease, and more."""
        self.world.run(ms)

    def teardown(self) -> None:
        """Everything is well again; after a while it has to show."""
        self.world.fate = lambda _: [100]
        for consumer in self.world.consumers:
            consumer.paused_until, consumer.look_ms, consumer.stall_ms = 0, STEP, 0
            consumer.work_ms = min(consumer.work_ms, 5_000)
        self.world.run(QUIET_MS)
        self.world.settled()


@pytest.mark.parametrize("kind", list(SubscriptionType))
def test_no_slot_is_handed_out_by_two_and_none_is_left_in_the_end(kind: SubscriptionType) -> None:
    """For each type of subscription, over random programs."""
    chosen = settings(max_examples=max(1, settings().max_examples // 2), stateful_step_count=25)
    machine = partial(LeaseMachine, kind)
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type] # it calls it, and any factory will do
