"""The state of settling against plain dicts, compared after every step of random programs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyroaring import BitMap

from state import (
    Ack,
    Backoff,
    Cancel,
    Cell,
    Clear,
    Condition,
    Event,
    LeftOut,
    Move,
    Nack,
    Outstanding,
    Positions,
    Released,
    RetryPolicy,
    Undeliverable,
)
from state.cursor_bytes import Head, block_counts, counted, pack_block
from state.positionset import PositionSet
from state.units import Ms
from tests.support.cursor_reader import read_cursor
from tests.support.outstanding_model import LATEST, OutstandingModel, Position, fates, held

LEDGERS = st.sampled_from([0, 1, 7, 16, 2**62 - 1, 2**62])
"""Two blocks of several ledgers, and the ends of what is possible."""
ENTRIES = st.one_of(st.integers(0, 20), st.integers(65_526, 65_546), st.integers(2**31 - 9, 2**31 - 1))
RUNS = st.builds(
    lambda ledger, first, more: (ledger, first, min(first + more, 2**31 - 1)), LEDGERS, ENTRIES, st.integers(0, 25)
)
POSITIONS = st.lists(RUNS, max_size=4)
POSITION = st.tuples(LEDGERS, ENTRIES)
CELLS = st.builds(
    lambda condition, around, count: Cell(condition, max(around, condition), min(count, around)),
    st.sampled_from([Condition.OUTSTANDING, Condition.WAITING]),
    st.integers(0, 3),
    st.integers(0, 3),
)
ROUNDS = st.sampled_from([0, 0, 1, 1, 2, 3, 2**31 - 1])
DELAYS = st.sampled_from([None, None, 0, 700, 10**9, LATEST])
REASONS = st.sampled_from(["nack", "ack_timeout", "owner_lost"])
POLICIES = st.builds(
    RetryPolicy,
    st.sampled_from([Backoff(60_000, 1, 60_000), Backoff(), Backoff(100, 3, 1_000), Backoff(0, 2, 5)]),
    st.sampled_from([None, 0, 1, 2]),
)
NOWS = st.sampled_from([0, 1_700_000_000_000, LATEST])


class OutstandingMachine(RuleBasedStateMachine):
    """Everything that can happen to a subscription, to the model too, with its bytes in a table beside it."""

    def __init__(self) -> None:
        """Nothing is outstanding; the table is empty."""
        super().__init__()
        self.state, self.model = Outstanding(), OutstandingModel()
        self.head, self.table = b"", dict[int, bytes]()
        self.save()

    @initialize(rows=st.dictionaries(POSITION, CELLS, max_size=8))
    def begin(self, rows: dict[Position, Cell]) -> None:
        """With positions whose rounds grew for other reasons than failures, as a table may hold them."""
        ledgers: dict[int, dict[Cell, BitMap]] = {}
        for (ledger, entry), cell in rows.items():
            ledgers.setdefault(ledger, {}).setdefault(cell, BitMap()).add(entry)
            known = (self.model.outstanding, self.model.waiting)[cell.condition]
            known[ledger, entry] = (cell.round, cell.redelivery_count)
        self.model.highest = max(rows, default=(-1, -1))
        numbers = {ledger // 16 for ledger in ledgers}
        self.table = {n: pack_block(n, {k: v for k, v in ledgers.items() if k // 16 == n}) for n in numbers}
        highest = max(rows) if rows else None
        self.head = Head(-1, highest, counted(ledgers), len(numbers)).to_bytes()
        self.state = Outstanding.restore(self.head, self.table)

    def save(self) -> None:
        """Write what has changed."""
        cursor = self.state.changes()
        self.state.saved()
        self.head = cursor.head
        for number, data in cursor.blocks.items():
            if data is None:
                self.table.pop(number, None)
            else:
                self.table[number] = data

    def apply(self, data: st.DataObject, *events: Event) -> None:
        """Give events to the state, the model, and a twin that was restored from bytes: it says the very same."""
        now, policy = data.draw(NOWS, label="now"), data.draw(POLICIES, label="policy")
        whole = self.state.snapshot()
        twin = Outstanding.restore(whole.head, {n: block for n, block in whole.blocks.items() if block is not None})
        found = fates(self.state.handle(*events, now=Ms(now), policy=policy))
        assert sorted(found) == sorted(self.model.handle(*events, now=now, policy=policy))
        assert fates(twin.handle(*events, now=Ms(now), policy=policy)) == found

    def draw_held(
        self, data: st.DataObject, positions: dict[Position, tuple[int, int]], which: int = 0
    ) -> tuple[Positions, int]:
        """Some positions of one round, and the round; or of one redelivery count."""
        number = data.draw(st.sampled_from(sorted({each[which] for each in positions.values()})), label="number")
        known = sorted(p for p, each in positions.items() if each[which] == number)
        chosen = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=12), label="positions")
        return Positions.of_runs((ledger, entry, entry) for ledger, entry in chosen), number

    def draw_event(self, data: st.DataObject) -> Event:
        """Anything, known or not, in any round."""
        positions = Positions.of_runs(data.draw(POSITIONS, label="runs"))
        if data.draw(st.integers(0, 3), label="command") == 0:
            count = data.draw(st.integers(0, 2))
            number, fresh = count + data.draw(st.integers(1, 3)), data.draw(st.booleans())
            return Move(positions, count, number, fresh) if data.draw(st.booleans()) else LeftOut(positions, number - 1)
        match data.draw(st.integers(0, 9), label="kind"):
            case 0 | 1 | 2:
                version = self.model.version + data.draw(st.sampled_from([1, 1, 1, 5]), label="version")
                return Released(positions, data.draw(ROUNDS, label="round"), version)
            case 3 | 4 | 5:
                return Nack(positions, data.draw(ROUNDS), data.draw(DELAYS), data.draw(REASONS))
            case 6:
                return Cancel(positions)
            case 7:
                return Undeliverable(positions)
            case _:
                return Ack(positions, data.draw(st.none() | ROUNDS, label="had"))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Round 0 of new positions, some of them known."""
        self.apply(data, Released(Positions.of_runs(data.draw(POSITIONS)), 0, self.model.version + 1))

    @precondition(lambda self: self.model.waiting or self.model.withdrawn)
    @rule(data=st.data())
    def release_what_waits(self, data: st.DataObject) -> None:
        """Later rounds, of what waits and of what was withdrawn."""
        positions, number = self.draw_held(data, self.model.waiting | self.model.withdrawn)
        self.apply(data, Released(positions, number, self.model.version + 1))

    @precondition(lambda self: self.model.outstanding)
    @rule(data=st.data())
    def nack_what_is_outstanding(self, data: st.DataObject) -> None:
        """As consumers do."""
        positions, number = self.draw_held(data, self.model.outstanding, 1)
        self.apply(data, Nack(positions, number, data.draw(DELAYS), data.draw(REASONS)))

    @precondition(lambda self: self.model.outstanding or self.model.waiting)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """As consumers do, in time or late."""
        positions, number = self.draw_held(data, self.model.outstanding | self.model.waiting, 1)
        self.apply(data, Ack(positions, data.draw(st.sampled_from([number, None, 0]), label="had")))

    @precondition(lambda self: self.model.outstanding)
    @rule(data=st.data())
    def leave_out_what_is_outstanding(self, data: st.DataObject) -> None:
        """As dispatch does, because a command named it; then settle puts it back."""
        positions, number = self.draw_held(data, self.model.outstanding)
        count = data.draw(st.integers(0, min(number, 2)), label="count")
        fresh = data.draw(st.booleans(), label="fresh")
        waits = data.draw(st.booleans(), label="waits")
        self.apply(data, LeftOut(positions, number, waits), Move(positions, count, number + 1, fresh=fresh))

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data())
    def move_what_waits(self, data: st.DataObject) -> None:
        """As users do."""
        positions, count = self.draw_held(data, self.model.waiting, 1)
        self.apply(data, Move(positions, count, count + data.draw(st.integers(1, 3), label="more")))

    @rule(data=st.data(), size=st.integers(1, 5))
    def batch(self, data: st.DataObject, size: int) -> None:
        """Many events in one call, one of them twice."""
        events = [self.draw_event(data) for _ in range(size)]
        self.apply(data, *events, data.draw(st.sampled_from(events)))

    @rule(data=st.data())
    def repeat_a_version(self, data: st.DataObject) -> None:
        """A zombie reads a version again that was read before."""
        if self.model.version >= 0:
            positions = Positions.of_runs(data.draw(POSITIONS))
            version = data.draw(st.integers(0, self.model.version))
            before = held(self.state)
            self.apply(data, Released(positions, data.draw(ROUNDS), version))
            assert held(self.state) == before

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        """Give everything up."""
        self.apply(data, Clear())

    @rule()
    def write(self) -> None:
        """What has changed since the last time, which is all that the table lacks."""
        self.save()
        assert self.state.changes().blocks == {}
        for number, data in self.table.items():
            assert block_counts(data)[0] == number

    @rule(again=st.booleans())
    def restart(self, *, again: bool) -> None:
        """From the table, after a last write or after all blocks were written anew."""
        self.save()
        if again:
            whole = self.state.snapshot()
            assert whole.head == self.head
            self.table = {number: data for number, data in whole.blocks.items() if data is not None}
        assert read_cursor(self.head, self.table) == held(self.state)
        self.state = Outstanding.restore(self.head, self.table)

    @invariant()
    def agrees(self) -> None:
        """All that can be seen is what the model has."""
        self.state.check_invariants()
        some = {(7, 0), (7, 1), (0, 65_536)}
        unknown = self.state.unknown(PositionSet.of(Positions.of_runs((ledger, e, e) for ledger, e in some)))
        assert {(ledger, e) for ledger, own in unknown.by_ledger() for e in own} == some - self.model.held.keys()
        assert held(self.state) == self.model.held
        sizes = (len(self.model.outstanding), len(self.model.waiting), len(self.model.withdrawn))
        assert tuple(self.state.counts) == sizes
        assert self.state.oldest == min(self.model.outstanding.keys() | self.model.waiting.keys(), default=None)
        assert self.state.version == self.model.version


def test_the_state_of_settling_is_three_dicts() -> None:
    """After every step of a random program it holds, and says, what the model does."""
    run_state_machine_as_test(OutstandingMachine, settings=settings(stateful_step_count=40))
