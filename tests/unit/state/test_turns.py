"""Whose turn it is: by hand, and against turns that are taken one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.buckets import IntArray
from state.turns import FIRST_TURN, NO_KEYS, Keys, Turn, TurnQueue, in_turn
from tests.support.turn_model import one_by_one

values = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(sorted)
turns = st.builds(Turn, st.integers(0, 11), st.integers(0, 5))


def even(numbers: IntArray) -> IntArray:
    """A weight of 1 for each."""
    return np.ones(len(numbers), np.int64)


def keys(*rows: tuple[int, int, int]) -> Keys:
    """Value, due time and entry of each."""
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    zeros = np.zeros(len(rows), np.int64)
    return Keys(columns[0], columns[1], zeros, columns[2], zeros)


@given(values, turns, st.integers(0, 40), st.data())
def test_turns_of_many_messages_are_those_that_are_taken_one_by_one(
    numbers: list[int], turn: Turn, count: int, data: st.DataObject
) -> None:
    """Whatever waits, whatever the weights, and wherever the last turn ended; the next one begins there."""
    size = len(numbers)
    waiting = data.draw(st.lists(st.sampled_from((0, 1, 2, 7, 30)), min_size=size, max_size=size))
    weights = data.draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    taken, then = in_turn(np.array(numbers), np.array(waiting), np.array(weights), turn, count)
    came, expected = one_by_one(
        dict(zip(numbers, waiting, strict=True)), dict(zip(numbers, weights, strict=True)), turn, count
    )
    assert taken.tolist() == [came.count(number) for number in numbers]
    assert not came or then == expected


def test_one_message_is_not_behind_a_million() -> None:
    """It is in the first two."""
    taken, then = in_turn(np.array([3, 8]), np.array([1_000_000, 1]), np.array([1, 1]), FIRST_TURN, 2)
    assert (taken.tolist(), then) == ([1, 1], Turn(9))


@pytest.mark.parametrize("count", [1_000, 12_345])
def test_equal_ones_have_equal_shares_and_others_what_their_weights_say(count: int) -> None:
    """To one turn, whatever the number of the messages."""
    taken, _ = in_turn(np.arange(10), np.full(10, 100_000), np.repeat([1, 3], 5), Turn(4), count)
    share = count / 20
    assert np.abs(taken[:5] - share).max() <= 1
    assert np.abs(taken[5:] - 3 * share).max() <= 3


def test_nothing_comes_of_nothing() -> None:
    """And nobody's turn is over."""
    queue = TurnQueue()
    queue.add(NO_KEYS)
    assert queue.choose(even, Turn(5, 2), 9, 9).then == Turn(5, 2)
    assert in_turn(np.array([1]), np.array([4]), np.array([2]), Turn(1, 1), 0)[1] == Turn(1, 1)


def test_a_choice_takes_nothing_until_it_is_taken() -> None:
    """A batch may be decided twice."""
    queue = TurnQueue()
    queue.add(keys((1, 5, 0), (1, 4, 1), (2, 9, 2)))
    for _ in range(2):
        choice = queue.choose(even, FIRST_TURN, 2, 9)
        assert choice.keys.entry.tolist() == [1, 2]
    queue.take(choice)
    assert (len(queue), queue.choose(even, choice.then, 2, 9).keys.entry.tolist()) == (1, [0])


def test_what_is_late_comes_first_and_uses_up_no_turn() -> None:
    """It is chosen to be left out, in the order of time if it is too much."""
    queue = TurnQueue()
    queue.add(keys(*((1, entry, entry) for entry in range(8)), (2, 20, 30)))
    choice = queue.choose(even, FIRST_TURN, 2, 99, 3, 4)
    assert (sorted(choice.keys.entry.tolist()), choice.then) == ([0, 1, 2, 3, 30], Turn(3))


def test_a_choice_looks_at_values_and_not_at_all_that_waits() -> None:
    """The parts are few and stay as they are: what is added is merged with what is as small."""
    queue = TurnQueue()
    for number in range(200):
        queue.add(keys(*((number % 7, number, place) for place in range(1 + number % 5))))
        sizes = [len(part) for part in queue._parts]
        assert all(first >= 2 * second for first, second in pairwise(sizes))
    while len(queue):
        queue.take(queue.choose(even, FIRST_TURN, 13, 1_000))
        for part in queue._parts:
            assert 2 * len(part) > len(part.keys.value)
