"""The backlog of slots that were just taken: each row once, in order, and of a lost owner only what was announced."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.consuming.backlog import Backlog, BacklogState
from pipeline.client.tables.deliveryset import DeliverySet
from pipeline.client.tables.rows import Rows

SLOTS = 3
PARTS = st.lists(st.lists(st.integers(0, SLOTS - 1), max_size=4), max_size=5)


def rows(first: int, slots: list[int]) -> Rows:
    """Rows of some slots at places from a first one on."""
    places, zeros = np.arange(first, first + len(slots)), np.zeros(len(slots), np.int64)
    return Rows(pa.table({"place": places}), zeros, places, zeros, np.array(slots, np.int64), places)


class BacklogMachine(RuleBasedStateMachine):
    """Rows are asked for, announced or not, and slots go meanwhile."""

    @initialize(parts=PARTS, owed=st.booleans())
    def take(self, parts: list[list[int]], owed: bool) -> None:  # noqa: FBT001 - drawn
        """Slots are taken; of a lost owner, or free ones."""
        starts = np.cumsum([1, *map(len, parts)]).tolist()
        self.parts = [rows(first, slots) for first, slots in zip(starts, parts, strict=False)]
        owing = dict.fromkeys(range(SLOTS), 0) if owed else {}
        self.backlog = Backlog(set(range(SLOTS)), 7, 0, 0, owing, announces=True, mark=0, exclude=DeliverySet())
        self.owed, self.given = owed, list[int]()
        self.noted, self.asked = dict.fromkeys(range(SLOTS), 0), dict.fromkeys(range(SLOTS), 0)
        self.wanted = [
            (place, slot) for each in self.parts for place, slot in zip(each.places, each.slots, strict=True)
        ]

    @precondition(lambda self: self.backlog.state is BacklogState.WAITING)
    @rule()
    def settle_reads(self) -> None:
        """What is open is known; what an owner had may have to be counted as failed first."""
        assert self.backlog.next() == (None, [])
        if self.owed:
            self.backlog.pay()
            assert self.backlog.next() == (None, [])
        self.backlog.read(iter(self.parts))

    @rule()
    def ask(self) -> None:
        """Take the next rows."""
        found, says = self.backlog.next()
        for each in says:
            assert each.slot is not None
            self.asked[each.slot] = each.upto
        for place, slot in [] if found is None else zip(found.places.tolist(), found.slots.tolist(), strict=True):
            assert slot in self.backlog.slots
            assert self.asked[slot] >= place
            assert not self.owed or self.noted[slot] >= place
            self.given.append(place)

    @rule(slot=st.integers(0, SLOTS - 1))
    def announce(self, slot: int) -> None:
        """The log has what was said of a slot."""
        self.noted[slot] = self.asked[slot]
        self.backlog.announced(slot, self.asked[slot])

    @precondition(lambda self: len(self.backlog.slots) > 1)
    @rule(slot=st.integers(0, SLOTS - 1))
    def drop(self, slot: int) -> None:
        """Somebody else has a slot now."""
        self.backlog.slots -= {slot}

    @invariant()
    def nothing_comes_twice_or_out_of_order(self) -> None:
        """Nor is anything of a slot that is still there left out when all is read."""
        assert self.given == sorted(set(self.given))
        if self.backlog.state is BacklogState.READ:
            of_mine = {int(place) for place, slot in self.wanted if slot in self.backlog.slots}
            assert of_mine <= set(self.given)


TestBacklog = BacklogMachine.TestCase
