"""When messages are sorted anew: each time rewrites the whole table."""

from __future__ import annotations

import pytest

pytest.importorskip("delta", reason="maintenance needs requirements/all.lock")

from pipeline.layout import scattered


def test_files_that_all_span_the_same_time_are_sorted() -> None:
    """A release would open every one of them."""
    assert scattered([(0, 1_000)] * 8)


def test_few_files_are_left_alone() -> None:
    """To open four files costs less than to write them again."""
    assert not scattered([(0, 1_000)] * 4)


def test_files_that_follow_each_other_are_left_alone() -> None:
    """So they lie when messages are due soon after they came, and after a sort."""
    assert not scattered([(10 * n, 10 * n + 12) for n in range(100)])


def test_new_files_wait_until_they_are_as_many_as_the_sorted_ones() -> None:
    """Or each round would write the whole table for a few new messages."""
    in_order = [(10 * n, 10 * n + 10) for n in range(100)]
    assert not scattered([*in_order, *[(0, 1_000)] * 60])
    assert scattered([*in_order, *[(0, 1_000)] * 110])


def test_one_message_due_in_ten_years_does_not_make_the_others_seem_in_order() -> None:
    """What counts is how many files overlap where files are, and not over all time."""
    assert scattered([*[(0, 1_000)] * 8, (5_000_000, 5_000_001)])
