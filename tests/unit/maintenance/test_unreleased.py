"""Whether messages and runs are of the same positions, beside a plain set of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="maintenance needs requirements/all.lock")

from pipeline.maintenance.unreleased import _LISTENERS, differing

TOPICS, LEDGERS, ENTRIES = "ab", 3, 6
Position = tuple[str, str, int, int, int]
"""Topic, subscription, life, ledger, entry."""
listeners_of = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.sampled_from("xy"), st.just(2), st.integers(0, LEDGERS), st.integers(0, 3)),
    max_size=4,
    unique_by=lambda each: each[:2],
)
messages_of = st.sets(st.tuples(st.sampled_from(TOPICS), st.integers(0, LEDGERS), st.integers(0, ENTRIES)), max_size=25)
changes_of = st.sets(
    st.tuples(
        st.sampled_from(TOPICS),
        st.sampled_from("xyz"),
        st.integers(1, 2),
        st.integers(0, LEDGERS),
        st.integers(0, ENTRIES),
    ),
    max_size=2,
)


def table(rows: Sequence[tuple[object, ...]], names: tuple[str, ...]) -> pa.Table:
    """Rows; texts and whole numbers."""
    kinds = [pa.string() if name in ("topic", "subscription") else pa.int64() for name in names]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return pa.Table.from_arrays(columns, names=list(names))


def runs(positions: set[Position]) -> list[tuple[object, ...]]:
    """The same as runs: what stands together is one."""
    found: list[tuple[object, ...]] = []
    for *key, entry in sorted(positions):
        if found and list(found[-1][:4]) == key and found[-1][5] == entry - 1:
            found[-1] = (*found[-1][:5], entry)
        else:
            found.append((*key, entry, entry))
    return found


@given(listeners_of, messages_of, changes_of, st.integers(1, 5))
def test_ledgers_differ_when_other_positions_were_released(
    listeners: list[tuple[str, str, int, int, int]],
    messages: set[tuple[str, int, int]],
    changes: set[Position],
    pieces: int,
) -> None:
    """Of one or two positions more or less, number and sum tell. Others' runs say nothing."""
    addressed: set[Position] = {
        (topic, name, life, ledger, entry)
        for topic, name, life, since, first in listeners
        for each, ledger, entry in messages
        if each == topic and (ledger, entry if ledger == since else first) >= (since, first)
    }
    released = addressed ^ changes
    known = {each[:3] for each in listeners}
    ledgers = defaultdict[tuple[object, ...], list[set[int]]](lambda: [set(), set()])
    for side, positions in enumerate((addressed, {each for each in released if each[:3] in known})):
        for *key, entry in positions:
            ledgers[tuple(key)][side].add(entry)
    wrong = sum((len(one), sum(one)) != (len(other), sum(other)) for one, other in ledgers.values())
    sent, given_out = sorted(messages), runs(released)
    found = differing(
        table([*listeners], tuple(_LISTENERS.names)),
        (table(sent[part::pieces], ("topic", "ledger_id", "entry_id")) for part in range(pieces)),
        (
            table(given_out[part::pieces], (*_LISTENERS.names[:3], "ledger_id", "first_entry", "last_entry"))
            for part in range(pieces)
        ),
    )
    assert found == wrong
