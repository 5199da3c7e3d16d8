"""Lives of subscriptions, as a fold over who joined and who left."""

from __future__ import annotations

from pipeline.subscriptions.incarnations import Incarnation, Joined, alive, next_lives

A, B = ("t", "a"), ("t", "b")


def test_who_comes_back_begins_another_life_and_who_stays_keeps_the_first() -> None:
    """Numbers only grow; a life that ended is remembered, or its number would be given again."""
    first = next_lives({}, {A: Joined(0, 5), B: Joined(3, 8)}, ())
    assert first == {A: Incarnation(1, 0, 5), B: Incarnation(1, 3, 8)}
    left = next_lives(first, {}, [A, ("t", "stranger")])
    assert left == {A: Incarnation(1, None, 5), B: Incarnation(1, 3, 8)}
    assert alive(left) == {B: Incarnation(1, 3, 8)}
    assert next_lives(left, {A: Joined(7, 2)}, ()) == {A: Incarnation(2, 7, 2), B: Incarnation(1, 3, 8)}


def test_who_leaves_and_comes_back_at_once_begins_another_life_too() -> None:
    """Ingest may see both in one batch."""
    assert next_lives({A: Incarnation(1, 0, 5)}, {A: Joined(9, 5)}, [A]) == {A: Incarnation(2, 9, 5)}
