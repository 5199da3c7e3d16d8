"""Turns one by one: what `state.turns` does to whole arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Position = tuple[int, int, int, int, int]
"""Value, due time, ledger, entry, count."""


def next_value(waiting: Mapping[int, int], weights: Mapping[int, int], turn: tuple[int, int]) -> int:
    """Whose turn it is, of those of whom something waits."""
    value, used = turn
    there = sorted(each for each, count in waiting.items() if count)
    is_over = value in there and used >= weights[value]
    return next((each for each in there if each >= value + is_over), there[0])


def one_by_one(
    waiting: Mapping[int, int], weights: Mapping[int, int], turn: tuple[int, int], count: int
) -> tuple[list[int], tuple[int, int]]:
    """The values of the next messages, in turn, and whose turn it is then."""
    left, came = dict(waiting), list[int]()
    while len(came) < count and any(left.values()):
        value = next_value(left, weights, turn)
        used = 1 + (turn[1] if value == turn[0] and turn[1] < weights[value] else 0)
        came.append(value)
        left[value] -= 1
        turn = (value, used) if left[value] and used < weights[value] else (value + 1, 0)
    return came, turn


def chosen(
    held: Sequence[Position],
    weights: Mapping[int, int],
    turn: tuple[int, int],
    most: int,
    until: int,
    late: int = 0,
    late_until: int = 0,
) -> tuple[list[Position], tuple[int, int]]:
    """The next positions, in any order: what is late first, and then in turn, as they are due within a value."""
    gone = sorted((each for each in held if each[1] <= late_until), key=lambda each: each[1:])[: max(0, late)]
    rest = sorted(each for each in held if each[1] <= until and each not in gone)
    queues = {value: [each for each in rest if each[0] == value] for value, *_ in rest}
    came, turn = one_by_one({value: len(each) for value, each in queues.items()}, weights, turn, most)
    return gone + [queues[value].pop(0) for value in came], turn
