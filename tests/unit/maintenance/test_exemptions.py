"""What maintenance keeps: which runs have a position that somebody has yet to settle."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("delta", reason="maintenance needs requirements/all.lock")

from pipeline.maintenance.exemptions import OpenPositions
from pipeline.subscriptions.cursors import CursorRows, by_name
from schemas import CURSOR_HEAD
from state import Ack, CorruptBytes, Cursor, Nack
from state.units import Ms
from tests.support.settled import NOW, at, released


def rows_of(cursor: Cursor) -> CursorRows:
    """The rows of a cursor as the table has them."""
    blocks = {number: data for number, data in cursor.blocks.items() if data is not None}
    return CursorRows(1, {CURSOR_HEAD: cursor.head, **blocks})


def met(kept: OpenPositions, *runs: tuple[int, int, int]) -> list[bool]:
    """Whether each run (ledger, first entry, last entry) has something that is kept."""
    ledgers, firsts, lasts = (np.array(column, np.int64) for column in zip(*runs, strict=True))
    found: list[bool] = kept.meets(ledgers, firsts, lasts).tolist()
    return found


def opened(*cursors: Cursor) -> OpenPositions:
    """What is open by some cursors."""
    return OpenPositions(map(rows_of, cursors))


def test_what_is_outstanding_or_waiting_is_kept_and_what_is_settled_is_not() -> None:
    """Entry 3 was acknowledged, entry 5 failed and waits for its redelivery."""
    state = released((7, 0, 9))
    state.handle(Ack(at((7, 3, 4))), Nack(at((7, 5, 5)), 0), now=Ms(NOW))
    kept = opened(state.snapshot())
    assert met(kept, (7, 2, 2), (7, 3, 3), (7, 5, 5), (7, 10, 12)) == [True, False, True, False]
    assert met(kept, (7, 3, 4), (7, 3, 5), (7, 9, 50), (6, 0, 50)) == [False, True, True, False]
    assert kept.oldest == 7


def test_runs_may_come_in_any_order_of_ledgers() -> None:
    """Files are sorted by due time."""
    kept = opened(released((2, 1, 1), (900, 5, 5)).snapshot())
    assert met(kept, (900, 5, 5), (2, 0, 0), (900, 4, 4), (2, 1, 1), (5, 1, 1)) == [True, False, False, True, False]
    assert (kept.oldest, kept.between(3, 800), kept.between(3, 900), kept.between(901, 10_000)) == (2, True, True, True)
    assert not kept.between(16, 800)


def test_what_any_subscription_has_open_is_kept() -> None:
    """They may be at different places of one block."""
    kept = opened(released((3, 0, 0), (4, 8, 8)).snapshot(), released((4, 2, 2)).snapshot())
    assert met(kept, (3, 0, 0), (4, 2, 2), (4, 8, 8), (4, 3, 7)) == [True, True, True, False]


def test_a_redelivery_that_was_acknowledged_while_it_waited_keeps_its_ledger_in_closed_only() -> None:
    """Its message is settled; dispatch has to leave the redelivery out."""
    state = released((7, 0, 9), (40, 0, 0))
    state.handle(Nack(at((7, 5, 5)), 0), Ack(at((7, 0, 9), (40, 0, 0))), now=Ms(NOW))
    kept = opened(state.snapshot())
    assert (kept.oldest, kept.withdrawn()) == (None, {7})
    assert met(kept, (7, 5, 5)) == [False]


def test_nothing_is_kept_when_nothing_is_open() -> None:
    """A subscription whose consumers keep up."""
    kept = opened(released().snapshot())
    assert (kept.oldest, kept.between(0, 10**9), met(kept, (0, 0, 9))) == (None, False, [False])
    assert OpenPositions().oldest is None


def test_a_cursor_that_cannot_be_read_is_refused_and_not_taken_for_empty() -> None:
    """Else the messages would go that it kept."""
    cursor = released((7, 0, 9), (40, 0, 0)).snapshot()
    whole = rows_of(cursor)
    for damaged in (
        CursorRows(1, {number: data for number, data in whole.blocks.items() if number != CURSOR_HEAD}),
        CursorRows(1, {number: data for number, data in whole.blocks.items() if number != 0}),
        CursorRows(1, {number: data[:-1] for number, data in whole.blocks.items()}),
    ):
        with pytest.raises(CorruptBytes):
            OpenPositions([damaged])


def test_ledgers_that_are_kept_whole() -> None:
    """As `closed` keeps them."""
    kept = OpenPositions(ledgers={9, 4})
    assert met(kept, (4, 0, 0), (5, 0, 0), (9, 7, 8)) == [True, False, True]
    assert (kept.oldest, kept.between(5, 8), kept.between(5, 9)) == (4, False, True)


def test_what_is_open_and_ledgers_that_are_kept_whole() -> None:
    """A command gave something of a ledger another due time, while a subscription has others open."""
    cursor = rows_of(released((20, 0, 9)).snapshot())
    kept = OpenPositions([cursor], {9, 400})
    assert met(kept, (20, 0, 0), (20, 10, 11), (9, 7, 8), (10, 7, 8), (400, 0, 0)) == [True, False, True, False, True]
    assert (kept.oldest, OpenPositions([cursor], {400}).oldest) == (9, 20)
    assert (kept.between(10, 11), kept.between(20, 20), kept.between(300, 400)) == (False, True, True)


def test_of_a_name_the_last_life_counts() -> None:
    """What an earlier one left open is nobody's any more."""
    rows = [
        {"topic": "a", "subscription": "s", "life": life, "block": block, "bytes": bytes([life])}
        for life, block in ((1, -1), (1, 0), (2, -1))
    ]
    assert by_name(rows) == {("a", "s"): CursorRows(2, {-1: b"\x02"})}
