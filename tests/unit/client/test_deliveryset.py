"""A set of deliveries does what a plain set of tuples does, whatever is added, taken out, and asked."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.tables.deliveryset import NO_SLOT, DeliverySet
from pipeline.client.tables.events import runs_of
from pipeline.client.tables.rows import Rows

Delivery = tuple[int, int, int, int]
"""Ledger, entry, redelivery count, slot."""
DELIVERIES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 2), st.integers(0, 2)), max_size=12
)


def rows(deliveries: list[Delivery]) -> Rows:
    """Rows of these, in their order."""
    ledgers, entries, counts, slots = np.array(deliveries, np.int64).reshape(-1, 4).T
    return Rows(pa.table({"n": pa.array(range(len(deliveries)))}), ledgers, entries, counts, slots, ledgers * 0)


@given(first=DELIVERIES, second=DELIVERIES, gone=DELIVERIES, slots=st.sets(st.integers(0, 2)), asked=DELIVERIES)
def test_it_holds_what_was_added_and_neither_taken_nor_dropped(
    first: list[Delivery], second: list[Delivery], gone: list[Delivery], slots: set[int], asked: list[Delivery]
) -> None:
    """Acknowledgements, closed redeliveries and what comes out of turn are looked up in it."""
    held, known = DeliverySet(), set(first)
    assert held.add(rows(first)) == len(known)
    assert held.add(rows(second)) == len(set(second) - known)
    copy, known = held.copy(), known | set(second)
    named = {each[:2] for each in gone}
    wanted = defaultdict[int, set[tuple[int, int]]](set)
    for ledger, entry, count, _ in known:
        if (ledger, entry) in named:
            wanted[count].add((ledger, entry))
    taken = held.take(runs_of(*np.array([*named], np.int64).reshape(-1, 2).T))
    places = {count: {(n, each) for n, entries in of.by_ledger() for each in entries} for count, of in taken.items()}
    assert places == wanted
    held.drop(slots)
    known = {each for each in known if each[:2] not in named and each[3] not in slots}
    left = {each[:3] for each in known}
    assert held.holds(rows(asked)).tolist() == [each[:3] in left for each in asked]
    assert [held.has(*each[:3]) for each in asked] == [each[:3] in left for each in asked]
    assert held.slots == {each[3] for each in known}
    assert held.ledgers.tolist() == sorted({each[0] for each in known})
    assert bool(held) == bool(known)
    assert copy.holds(rows(first)).all()


def test_all_that_it_has_is_taken_out_by_redelivery_count() -> None:
    """An application gives all of it back."""
    held = DeliverySet()
    held.put(7, NO_SLOT, 0, BitMap([1, 2]))
    held.put(7, 3, 1, BitMap([9]))
    held.put(5, 3, 0, BitMap([4]))
    assert held.has_between(7, 2, 8)
    assert not held.has_between(7, 3, 8)
    taken = {count: list(each.runs()) for count, each in held.take().items()}
    assert taken == {0: [(5, 4, 4), (7, 1, 2)], 1: [(7, 9, 9)]}
    assert not held
