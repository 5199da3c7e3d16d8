"""What was handed out, in order: what a cumulative acknowledgement costs, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.consuming.unackedtracker import Handed
from pipeline.client.tables.deliveryset import DeliverySet
from pipeline.client.tables.rows import Rows

looks = 0


class Ledgers(np.ndarray[Any, Any]):  # noqa: PLW1641 - nobody asks for a hash
    """Ledgers that count how often somebody looks for one."""

    def __eq__(self, other: object) -> Any:  # noqa: ANN401 - as numpy has it
        """Count, and compare."""
        global looks  # noqa: PLW0603 - numpy makes and copies these as it likes
        looks += 1
        return np.asarray(self) == other


@dataclass
class Some:
    """Rows of ledger 1 in one slot."""

    entries: Any
    counts: Any

    @property
    def ledgers(self) -> Any:  # noqa: ANN401 - an array
        """The same one for all."""
        return np.ones(len(self.entries), np.int64).view(Ledgers)

    @property
    def slots(self) -> Any:  # noqa: ANN401 - an array
        """The same one for all."""
        return np.zeros(len(self.entries), np.int64)

    def __len__(self) -> int:
        """How many."""
        return len(self.entries)


def handed(*parts: tuple[range, int]) -> Handed:
    """Entries that were handed out, each part with a redelivery count, and all of them held."""
    holding = DeliverySet()
    found = Handed(holding)
    for entries, count in parts:
        rows = cast("Rows", Some(np.array(entries, np.int64), np.full(len(entries), count)))
        holding.add(rows)
        found.add(rows)
    return found


def test_who_acknowledges_one_by_one_what_was_handed_out_long_before_does_not_look_through_all_of_it() -> None:
    """Each acknowledgement looked at all parts from the last one on: 60 a second, with 500 parts behind it."""
    found = handed(*((range(start, start + 10), 0) for start in range(0, 1_000, 10)))
    before = looks
    for entry in range(100):
        assert found.upto(1, entry) is not None
    # The parts of which all was acknowledged are looked at, until all of them is let go.
    assert looks - before < 100 * 20


def test_a_message_that_came_again_stands_where_it_came_last() -> None:
    """Also when what came later holds others only."""
    found = handed((range(10), 0), (range(10, 20), 0), (range(3, 4), 1), (range(20, 30), 0))
    taken = found.upto(1, 3)
    assert taken is not None
    assert list(taken.runs()) == [(1, 0, 19)]
    assert found.upto(1, 19) is None
    more = found.upto(1, 22)
    assert more is not None
    assert list(more.runs()) == [(1, 20, 22)]


@pytest.mark.parametrize("again", [range(1), range(2, 3)])
def test_what_came_again_behind_a_message_is_not_acknowledged_with_it(again: range) -> None:
    """It was in work, and was lost when it failed: it counts where it came last."""
    found = handed((range(2), 0), (range(2, 4), 0), (again, 1), (range(5, 6), 0))
    taken = found.upto(1, 3)
    assert taken is not None
    assert list(taken.runs()) == ([(1, 1, 3)] if again == range(1) else [(1, 0, 1), (1, 3, 3)])
    rest = found.upto(1, 5)
    assert rest is not None
    assert list(rest.runs()) == [(1, again[0], again[0]), (1, 5, 5)]
