"""The search for the messages on which a guard fails: few questions find them, and the others are decided."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="guards need requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.dispatch.searching import QUESTIONS, SEARCH_MS, growing, searched
from pipeline.storage.arrays import IntArray, longs
from pipeline.subscriptions.guards import NUMBER, GuardFailed


def numbered(count: int) -> pa.Table:
    """Messages by number."""
    return pa.table({NUMBER: pa.array(range(count), pa.int64())})


class Asked:
    """A guard that even numbers meet, and that fails on some."""

    def __init__(self, poison: set[int], *, took_ms: int = 0, always: bool = False) -> None:
        """It was not asked yet."""
        self.times, self._poison, self._took_ms, self._always = 0, poison, took_ms, always

    def __call__(self, rows: pa.Table) -> IntArray:
        """The even ones."""
        self.times += 1
        numbers = longs(rows, NUMBER)
        if self._always or self._poison.intersection(numbers.tolist()):
            raise GuardFailed("no", self._took_ms)
        even: IntArray = numbers[numbers % 2 == 0]
        return even


@example(1, {0})
@example(2, {0, 1})
@given(st.integers(1, 300), st.sets(st.integers(0, 299), max_size=6))
def test_what_a_guard_fails_on_is_found_and_the_others_are_decided(count: int, poison: set[int]) -> None:
    """Whoever they are, and however many there are beside them."""
    poison = {each for each in poison if each < count}
    met, undecided, failed, _ = searched(Asked(poison), [numbered(count)])
    assert set(undecided.tolist()) == poison
    assert set(met.tolist()) == set(range(0, count, 2)) - poison
    assert (failed is not None) == bool(poison)


def test_a_search_has_bounds_and_what_it_did_not_come_to_waits() -> None:
    """A guard that fails on every message, or on every tenth, or takes long to fail, is not asked for ever."""
    for poison, took_ms in ((range(10_000), 0), (range(0, 10_000, 10), 0), ((7,), SEARCH_MS // 3)):
        asked = Asked(set(poison), took_ms=took_ms)
        met, undecided, *_ = searched(asked, [numbered(10_000)])
        assert asked.times <= QUESTIONS + 2
        assert set(undecided.tolist()) >= set(poison)
        assert set(met.tolist()) == set(range(0, 10_000, 2)) - set(undecided.tolist())


def test_most_messages_are_decided_after_few_questions_wherever_the_failing_one_is() -> None:
    """Each failure may take long, as when the process of guards dies of it."""
    for place, failures in ((0, 2), (0, 3), (500, 3), (999, 2), (999, 3)):
        asked = Asked({place}, took_ms=SEARCH_MS // failures + 1)
        met, undecided, *_ = searched(asked, [numbered(1_000)])
        assert place in undecided
        assert len(undecided) <= 1_000 >> (failures - 1)
        assert asked.times <= 2 * failures + 1
        assert set(met.tolist()) == set(range(0, 1_000, 2)) - set(undecided.tolist())


def test_a_guard_that_fails_without_a_message_is_not_searched() -> None:
    """The messages are not why."""
    asked = Asked(set(), always=True)
    with pytest.raises(GuardFailed):
        searched(asked, [numbered(9)])
    assert asked.times == 2


@given(st.integers(1, 100))
def test_parts_grow_and_are_all_of_the_rows(count: int) -> None:
    """In their order."""
    parts = [part.column(NUMBER).to_pylist() for part in growing(numbered(count))]
    assert [number for part in parts for number in part] == list(range(count))
    assert [len(part) for part in parts[:-1]] == [1 << n for n in range(len(parts) - 1)]
    assert parts[-1]
