"""What settling keeps over a restart: which blocks are written, which are read, and that no hole is lost."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap

from state import (
    Ack,
    Cell,
    Clear,
    Condition,
    CorruptBytes,
    Counts,
    Nack,
    Outstanding,
    Positions,
    Released,
    cursor_bytes,
)
from state.units import Ms
from tests.support.outstanding_model import fates, held
from tests.support.settled import FOREVER, NOW, apply, at, released, restored


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a codec from here on."""
    calls, inner = list[tuple[Any, ...]](), getattr(cursor_bytes, name)

    def noted(*arguments: Any) -> Any:  # noqa: ANN401 - whatever the codec takes and gives
        calls.append(arguments)
        return inner(*arguments)

    monkeypatch.setattr(f"state.outstanding.{name}", noted)
    return calls


def test_what_is_held_comes_by_ledger_and_from_a_ledger_on() -> None:
    """A new consumer reads what is outstanding in order, and may begin in the middle."""
    state = released((300, 0, 1), (2, 5, 6), (2, 0, 1), (17, 0, 0))
    apply(state, Nack(at((2, 0, 0)), 0))
    waiting = [one.positions.runs() for one in state.held(Condition.WAITING)]
    outstanding = [one.positions.runs() for one in state.held(Condition.OUTSTANDING)]
    later = [one.positions.runs() for one in state.held(Condition.OUTSTANDING, first_ledger=17)]
    assert waiting == [[(2, 0, 0)]]
    assert outstanding == [[(2, 1, 1), (2, 5, 6)], [(17, 0, 0)], [(300, 0, 1)]]
    assert later == outstanding[1:]


def test_all_holes_survive_a_restart() -> None:
    """Twenty thousand of them, where the reference keeps ten thousand."""
    state = released((1, 0, 39_999))
    state.handle(Ack(Positions.of([1] * 20_000, range(0, 40_000, 2), range(0, 40_000, 2))), now=Ms(NOW))
    again = restored(state.snapshot())
    again.check_invariants()
    [one] = again.held(Condition.OUTSTANDING)
    assert one.positions.runs() == [(1, entry, entry) for entry in range(1, 40_000, 2)]
    found = again.handle(Ack(at((1, 0, 39_999))), now=Ms(NOW))
    assert [len(fates([effect])) for effect in found] == [20_000, 20_000]


def test_only_blocks_that_changed_are_written() -> None:
    """A batch pays for the ledgers that it touched, and for none that it only looked at."""
    state = released(*((ledger, 0, 9) for ledger in range(320)))
    assert len(state.changes().blocks) == 20
    assert len(state.changes().blocks) == 20
    state.saved()
    apply(state, Ack(at((17, 0, 0), (40, 30, 31))), Nack(at((300, 0, 0)), 3))
    assert list(state.changes().blocks) == [1]
    state.saved()
    assert state.changes().blocks == {}


def test_a_block_that_is_empty_leaves_the_table() -> None:
    """What is settled for good takes no room."""
    state = released((1, 0, 0), (20, 0, 0))
    state.saved()
    apply(state, Ack(at((20, 0, 0))))
    assert state.changes().blocks == {1: None}


def test_blocks_that_are_not_touched_are_neither_decoded_nor_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred million outstanding, a batch costs what it touches."""
    cursor = released(*((16 * block, 0, 9) for block in range(50))).snapshot()
    state = restored(cursor)
    read, wrote = counted(monkeypatch, "read_block"), counted(monkeypatch, "pack_block")
    state.handle(Ack(at((32, 0, 4), (48, 99, 99))), now=Ms(NOW))
    state.changes()
    assert (len(read), [number for number, _ in wrote]) == (2, [2])


def test_a_block_that_nobody_touched_between_two_saves_is_kept_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was touched once does not stay decoded for ever, and is read again when it is needed."""
    state = released((1, 0, 9), (100, 0, 9))
    for _ in range(2):
        state.changes()
        state.saved()
    read = counted(monkeypatch, "read_block")
    for entry in range(3):
        assert fates(state.handle(Ack(at((1, entry, entry))), now=Ms(NOW))) == [("closed", 1, entry, 0, "ack")]
        state.changes()
        state.saved()
    assert len(read) == 1
    assert state.counts.outstanding == 17


def test_a_block_that_cannot_be_read_stops_a_batch_before_it_changed_anything() -> None:
    """The stage stops with the name of the part, and the tables still say what they did."""
    cursor = released((1, 0, 9), (100, 0, 9)).snapshot()
    blocks = {n: data for n, data in cursor.blocks.items() if data is not None}
    rows = {100: {Cell(Condition.OUTSTANDING, 0, 0): BitMap(range(10))}}
    lying = cursor_bytes._sealed(b"O", cursor_bytes.pack_block(6, rows)[6:-1])
    state = Outstanding.restore(cursor.head, blocks | {6: lying})
    with pytest.raises(CorruptBytes):
        state.handle(Ack(at((1, 0, 0))), Ack(at((100, 0, 0))), now=Ms(NOW))
    assert state.counts == Counts(20, 0, 0)
    assert state.changes().blocks == {}


def test_a_clear_takes_every_block_out_of_the_table() -> None:
    """What a clear gave up does not come back with a restart."""
    state = released((1, 0, 3), (900, 0, 0))
    state.changes()
    state.saved()
    apply(state, Clear())
    assert state.changes().blocks == {0: None, 56: None}


def test_the_largest_numbers_are_held() -> None:
    """Ledgers up to 2^62, entries up to 2^31 - 1, runs of all of them, instants up to the end of the calendar."""
    whole, top = (2**62, 0, 2**31 - 1), 2**31 - 1
    state = Outstanding()
    state.handle(Released(at(whole), 0, 2**62 - 1), now=Ms(NOW))
    assert state.counts.outstanding == 2**31
    effects = state.handle(Ack(at((2**62, 1, top - 1))), Nack(at((2**62, top, top)), 0), now=Ms(FOREVER))
    assert fates(effects[1:]) == [("retry", 2**62, top, 1, 1, FOREVER, "nack")]
    again = restored(state.snapshot())
    assert held(again) == {(2**62, 0): [(0, 0, 0)], (2**62, top): [(1, 1, 1)]}
