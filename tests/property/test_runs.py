"""Array work on runs against plain sets."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from state import Runs
from tests.support.index_model import LEDGERS, MAX_ENTRY, Pending, popped, popped_runs, run_count

Run = tuple[int, int, int, int]
"""Due, ledger, first entry, last entry."""


def run_near(first: int, length: int) -> tuple[int, int]:
    """A run that ends at the last entry at the latest."""
    return min(first, MAX_ENTRY), min(first + length, MAX_ENTRY)


SPANS = st.builds(run_near, st.one_of(st.integers(0, 30), st.integers(MAX_ENTRY - 30, MAX_ENTRY)), st.integers(0, 9))
RUN_LISTS = st.lists(
    st.builds(lambda due, ledger, span: (due, ledger, *span), st.sampled_from([0, 512, 1_024, 2**48]), LEDGERS, SPANS),
    max_size=12,
)


def runs_of(rows: list[Run]) -> Runs:
    """Runs, as they are."""
    columns = [np.asarray(column, dtype=np.int64) for column in zip(*rows, strict=True)] if rows else None
    return Runs(*columns) if columns else Runs.empty()


def set_of(rows: list[Run]) -> set[Pending]:
    """The messages of runs."""
    return {(due, ledger, entry) for due, ledger, first, last in rows for entry in range(first, last + 1)}


def apart(rows: list[Run]) -> list[Run]:
    """The rows that share no message with an earlier one."""
    seen: set[Pending] = set()
    kept = []
    for row in rows:
        if not seen & set_of([row]):
            seen |= set_of([row])
            kept.append(row)
    return kept


@given(rows=RUN_LISTS)
def test_united_runs_are_the_set_of_messages_in_order_in_the_fewest_runs(rows: list[Run]) -> None:
    """Overlapping, touching, nested and repeated runs become each message once."""
    united, expected = runs_of(rows).united(), sorted(set_of(rows))
    assert popped_runs(united) == expected
    assert len(united) == run_count(expected)
    assert not united.overlap()


@given(rows=RUN_LISTS, others=RUN_LISTS)
def test_runs_without_others_are_the_difference_of_the_sets(rows: list[Run], others: list[Run]) -> None:
    """Whatever the others overlap, and in whatever order either comes."""
    rows, others = apart(rows), apart(others)
    difference, expected = runs_of(rows).without(runs_of(others)), sorted(set_of(rows) - set_of(others))
    assert popped_runs(difference) == expected
    assert len(difference) == run_count(expected)


@given(rows=RUN_LISTS)
def test_joined_runs_are_the_same_messages_in_the_fewest_runs(rows: list[Run]) -> None:
    """Joining ordered runs neither loses nor invents a message, and doing it again changes nothing."""
    ordered = runs_of(apart(rows)).sorted()
    joined, expected = ordered.joined(), sorted(set_of(apart(rows)))
    assert popped_runs(joined) == popped_runs(ordered) == expected
    assert len(joined) == len(joined.joined()) == run_count(expected)


@given(rows=RUN_LISTS, messages=st.integers(0, 130))
def test_a_split_is_the_first_messages_and_the_rest(rows: list[Run], messages: int) -> None:
    """At any place, through a run or between two; the runs themselves are not changed."""
    runs = runs_of(apart(rows)).sorted()
    whole = popped_runs(runs)
    head, tail = runs.split(messages)
    assert popped_runs(head) == whole[:messages]
    assert popped_runs(tail) == whole[messages:]
    assert popped_runs(runs) == whole


@given(rows=RUN_LISTS)
def test_sorting_orders_by_due_ledger_and_first_entry(rows: list[Run]) -> None:
    """Also where the three ranges do not fit one key of 63 bits."""
    ordered = runs_of(rows).sorted()
    columns = (ordered.due, ordered.ledger_ids, ordered.first_entries)
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    assert keys == sorted(row[:3] for row in rows)


@given(rows=RUN_LISTS, cuts=st.lists(st.integers(0, 12), max_size=3), few=st.sampled_from([0, 4096]))
def test_merged_parts_are_all_their_runs_in_order(rows: list[Run], cuts: list[int], few: int) -> None:
    """However runs are cut into parts, whether parts are packed one by one or together, or cannot be packed."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with patch("state.runs._FEW", few):
        merged = Runs.merged([runs_of(rows[first:last]) for first, last in pairwise(edges)])
    columns = (merged.due, merged.ledger_ids, merged.first_entries, merged.last_entries)
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert [row[:3] for row in found] == sorted(row[:3] for row in rows)
    assert sorted(found) == sorted(rows)


@given(rows=RUN_LISTS)
def test_runs_are_in_order_when_each_lies_behind_the_one_before(rows: list[Run]) -> None:
    """Judged by their messages: sorted, none twice."""
    runs = runs_of(rows)
    messages = popped_runs(runs)
    assert runs.in_order() == (messages == sorted(set(messages)))
    assert runs_of(apart(rows)).sorted().in_order()


@given(rows=RUN_LISTS, place=st.tuples(st.sampled_from([0, 512, 600, 2**48]), LEDGERS, st.integers(0, 40)))
def test_as_many_messages_lie_before_a_position_as_one_counts(rows: list[Run], place: Pending) -> None:
    """The position itself included, whether it is there or not, and also inside a run."""
    runs = runs_of(apart(rows)).sorted()
    assert runs.until(*place) == sum(message <= place for message in popped_runs(runs))


@given(rows=RUN_LISTS)
def test_runs_that_come_apart_are_a_run_for_each_message(rows: list[Run]) -> None:
    """The same messages in the same order, and known to be single."""
    runs = runs_of(rows)
    singles = runs.apart()
    assert popped_runs(singles) == popped_runs(runs)
    assert len(singles) == runs.messages
    assert singles.single


@given(rows=RUN_LISTS)
def test_expanded_runs_are_one_element_a_message(rows: list[Run]) -> None:
    """In the order of the runs, and as many as they count."""
    runs = runs_of(rows)
    assert popped(runs.expanded()) == popped_runs(runs)
    assert runs.messages == sum(runs.counts.tolist()) == len(runs.expanded())


@given(rows=RUN_LISTS)
def test_ordered_runs_overlap_when_a_message_is_in_two(rows: list[Run]) -> None:
    """Judged by counting: fewer distinct messages than messages."""
    runs = runs_of(rows).sorted()
    assert runs.overlap() == (len(set_of(rows)) < runs.messages)


@given(rows=RUN_LISTS, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_concatenated_parts_are_the_whole(rows: list[Run], cuts: list[int]) -> None:
    """However runs are cut into parts, some of them empty."""
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [runs_of(rows[first:last]) for first, last in pairwise(edges)]
    assert popped_runs(Runs.concat(parts)) == popped_runs(runs_of(rows))
    assert len(Runs.concat([])) == 0
