"""Positions that wait for their turn, against a plain list of them, step by step."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from state.buckets import IntArray
from state.turns import FIRST_TURN, Keys, Turn, TurnQueue
from tests.support.turn_model import Position, chosen

positions = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 1), st.integers(0, 50), st.integers(0, 1)),
    min_size=1,
    max_size=12,
)
WEIGHTS = {0: 1, 1: 2, 2: 1, 3: 5, 4: 1}


def weigh(values: IntArray) -> IntArray:
    """The weights of values."""
    return np.array([WEIGHTS[each] for each in values.tolist()], np.int64)


def rows(keys: Keys) -> list[Position]:
    """The same as tuples."""
    return list(zip(*(each.tolist() for each in keys), strict=True))


class Waiting(RuleBasedStateMachine):
    """A queue, and a list."""

    def __init__(self) -> None:
        """Nothing waits."""
        super().__init__()
        self.queue, self.held, self.turn = TurnQueue(), set[Position](), FIRST_TURN

    @rule(new=positions)
    def add(self, new: list[Position]) -> None:
        """Some wait now, too; each once."""
        self._add(new)

    @rule(
        most=st.integers(0, 12),
        until=st.integers(0, 7),
        late=st.sampled_from((0, 0, 2, 100)),
        late_until=st.integers(-1, 4),
        back=st.integers(0, 5),
    )
    def take(self, most: int, until: int, late: int, late_until: int, back: int) -> None:
        """The next ones are taken, and some of them wait again at another time."""
        late_until = min(late_until, until)
        choice = self.queue.choose(weigh, self.turn, most, until, late, late_until)
        wanted, then = chosen(sorted(self.held), WEIGHTS, self.turn, most, until, late, late_until)
        assert sorted(rows(choice.keys)) == sorted(wanted)
        assert choice.keys.ordered().tolist() == list(range(len(wanted)))
        if most and len(wanted) > late:
            assert choice.then == then
        self.turn = Turn(*choice.then)
        self.queue.take(choice)
        self.held.difference_update(wanted)
        again = [(value, 6, ledger, entry, count) for value, _, ledger, entry, count in wanted[:back]]
        self._add(again)

    def _add(self, new: list[Position]) -> None:
        fresh = sorted({each for each in new if each not in self.held})
        self.queue.add(Keys(*np.array(fresh, np.int64).reshape(-1, 5).T))
        self.held.update(fresh)

    @invariant()
    def nothing_is_lost(self) -> None:
        """As many wait as in the list."""
        assert len(self.queue) == len(self.held)


Waiting.TestCase.settings = settings(stateful_step_count=20)
TestWaiting = Waiting.TestCase
