"""The bytes of what settling keeps: golden files, damage, and authors who lie behind right checksums."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import pytest
from pyroaring import BitMap

from state import Cell, Condition, CorruptBytes, Counts, OutOfRange, Outstanding
from state.cursor_bytes import Head, block_counts, pack_block, read_block
from tests.golden.make import CURSOR, CURSOR_CELLS
from tests.support import cursor_reader
from tests.support.forge import column, varint, zstd
from tests.support.hostile import damaged
from tests.support.roaring_reader import FormatError

HEAD = (CURSOR / "head.bin").read_bytes()
BLOCKS = {int(path.stem): path.read_bytes() for path in CURSOR.glob("[0-9]*.bin")}
Forged = tuple[int, int, int, int, Sequence[int]]
"""(ledger less 16n, condition, round, redelivery count, entries)."""


def sealed(kind: bytes, body: bytes, version: int = 1) -> bytes:
    """A body behind a checksum that is right."""
    front = bytes([version]) + kind
    return front + zlib.crc32(front + body).to_bytes(4, "little") + body


def block(
    cells: Sequence[Forged], number: int = 1, counts: Sequence[int] | None = None, more: int = 0, size: int = 0
) -> bytes:
    """A block of these cells, with numbers that are right unless others are given."""
    bitmaps = [BitMap(entries) for *_, entries in cells]
    for bitmap in bitmaps:
        bitmap.run_optimize()
    blobs = [bitmap.serialize() for bitmap in bitmaps]
    found = [sum(len(each[-1]) for each in cells if each[1] == condition) for condition in range(3)]
    numbers = (number, *(counts or found), len(cells) + more, sum(map(len, blobs)) + size)
    columns: list[Sequence[int]] = [list(each) for each in zip(*(cell[:4] for cell in cells), strict=True)]
    columns = [*(columns or [()] * 4), [len(blob) for blob in blobs]]
    return sealed(b"O", b"".join([*map(varint, numbers), *map(column, columns), zstd(b"".join(blobs))]))


GOOD: list[Forged] = [
    (0, 0, 0, 0, [1, 2]),
    (0, 0, 3, 1, [3]),
    (0, 1, 4, 4, [5, 9]),
    (0, 2, 2, 0, [6]),
    (15, 0, 0, 0, [1]),
]


def head(*numbers: int) -> bytes:
    """A head of these numbers."""
    return sealed(b"H", b"".join(map(varint, numbers)))


def test_a_golden_cursor_is_read_as_it_was_written() -> None:
    """A restart after an upgrade finds what was open, round by round; so does a reader written from the document."""
    state = Outstanding.restore(HEAD, BLOCKS)
    state.check_invariants()
    found = {
        (int(one.positions.ledger_ids[0]), *one.cell): [(first, last) for _, first, last in one.positions.runs()]
        for one in state.held(*Condition)
    }
    wanted = {cell: joined(runs) for cell, runs in CURSOR_CELLS.items()}
    assert found == wanted
    assert (state.version, state.oldest) == (77, (0, 0))
    assert state.snapshot().head == HEAD
    cells = cursor_reader.read_cursor(HEAD, BLOCKS)
    assert sum(map(len, cells.values())) == sum(state.counts)
    assert (cells[3, 11], cells[2**62, 8], cells[15, 49_998]) == ([(1, 7, 2)], [(2, 1, 0)], [(0, 4, 4)])


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with neighbours made one."""
    out: list[tuple[int, int]] = []
    for first, last in runs:
        out.append((out.pop()[0], last) if out and out[-1][1] + 1 == first else (first, last))
    return out


def test_a_golden_block_is_written_again_with_the_same_content() -> None:
    """Compressors may choose other bytes; the cells are the same."""
    for number, data in BLOCKS.items():
        assert read_block(pack_block(number, read_block(data))) == read_block(data)


def test_a_forged_block_that_is_right_is_read() -> None:
    """The forger of the tests below makes what both readers take."""
    data = block(GOOD)
    assert block_counts(data) == (1, Counts(4, 2, 1))
    found: cursor_reader.Held = {}
    assert cursor_reader.read_block(1, data, found) == [4, 2, 1]
    assert read_block(data)[16][Cell(Condition.WAITING, 4, 4)] == BitMap([5, 9])


LIES = {
    "no cells": block([]),
    "more cells than there are": block(GOOD, more=1),
    "2^21 cells": block(GOOD, more=2**21),
    "more bytes than there are": block(GOOD, size=1),
    "2^29 bytes": block(GOOD, size=2**29),
    "other counts": block(GOOD, counts=(4, 1, 2)),
    "a block of ledgers above 2^62": block(GOOD[:1], number=2**58 + 1),
    "a ledger above 2^62": block(GOOD, number=2**58),
    "a ledger of the next block": block([(16, 0, 0, 0, [1])]),
    "a fourth condition": block([(0, 3, 1, 0, [1])], counts=(0, 0, 1)),
    "a round above 2^31 - 1": block([(0, 0, 2**31, 0, [1])]),
    "more redeliveries than rounds": block([(0, 0, 1, 2, [1])]),
    "waiting for round 0": block([(0, 1, 0, 0, [1])]),
    "withdrawn in round 0": block([(0, 2, 0, 0, [1])]),
    "a withdrawn one that failed in each round": block([(0, 2, 2, 2, [1])]),
    "cells out of order": block(GOOD[::-1]),
    "a cell twice": block([GOOD[0], (0, 0, 0, 0, [7])]),
    "a cell without entries": block([(0, 0, 0, 0, [])]),
    "an entry above 2^31 - 1": block([(0, 0, 0, 0, [2**31])]),
    "a position outstanding and waiting": block([(0, 0, 0, 0, [1, 2]), (0, 1, 1, 1, [2])]),
    "a position outstanding in two rounds": block([(0, 0, 0, 0, [1, 2]), (0, 0, 1, 1, [2])]),
}


@pytest.mark.parametrize("name", LIES)
def test_a_block_that_lies_is_refused(name: str) -> None:
    """Each rule of the document, broken alone behind a right checksum, is an error."""
    with pytest.raises(FormatError):
        cursor_reader.read_block(block_number(LIES[name]), LIES[name], {})
    with pytest.raises(CorruptBytes):
        read_block(LIES[name])


def block_number(data: bytes) -> int:
    """The number that a block gives itself."""
    return cursor_reader.body_of(data, "O").varint()


def test_a_withdrawn_round_may_stand_beside_another_round_of_its_position() -> None:
    """A position whose pending round was taken back may wait for a later one."""
    data = block([(0, 1, 2, 0, [1]), (0, 2, 1, 0, [1])])
    assert cursor_reader.read_block(1, data, {}) == [0, 1, 1]
    assert len(read_block(data)[16]) == 2


@pytest.mark.parametrize(
    "numbers",
    [
        (2**62 + 1, 0, 0, 0, 0, 0, 0),
        (1, 2**62 + 1, 1, 0, 0, 0, 0),
        (1, 1, 2**31 + 1, 0, 0, 0, 0),
        (1, 1, 0, 0, 0, 0, 0),
        (1, 1, 1, 0, 0, 0),
        (1, 1, 1, 0, 0, 0, 0, 0),
    ],
)
def test_a_head_that_lies_is_refused(numbers: tuple[int, ...]) -> None:
    """Numbers out of range, missing, left over."""
    with pytest.raises(FormatError):
        cursor_reader.read_cursor(head(*numbers), {})
    with pytest.raises(CorruptBytes):
        Head.from_bytes(head(*numbers))


@pytest.mark.parametrize("head", [Head(-1, None, Counts(), 0), Head(0, (0, 0), Counts(1, 2, 3), 4)])
def test_a_head_is_read_as_it_was_written(head: Head) -> None:
    """Also the one of a subscription that has seen nothing."""
    assert Head.from_bytes(head.to_bytes()) == head


@pytest.mark.parametrize("data", [HEAD, *BLOCKS.values()])
def test_every_cut_and_every_changed_byte_is_noticed_at_the_start(data: bytes) -> None:
    """Nobody settles on a state that was damaged: the blocks are checked before the first one is decoded."""
    read = Head.from_bytes if data is HEAD else block_counts
    for at in range(len(data)):
        for harmed in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(CorruptBytes):
                read(harmed)
    with pytest.raises(CorruptBytes):
        read(data + b"\0")


def test_an_unknown_version_and_a_foreign_kind_are_refused() -> None:
    """The error names both."""
    body = BLOCKS[1][6:]
    for harmed in (sealed(b"O", body, version=2), sealed(b"C", body)):
        with pytest.raises(CorruptBytes, match="known: version 1, kind b'O'"):
            block_counts(harmed)


@pytest.mark.parametrize(
    "blocks",
    [
        {number: BLOCKS[number] for number in (0, 1)},
        BLOCKS | {1: BLOCKS[0]},
        BLOCKS | {1: block([(0, 0, 9, 9, [7, 8])])},
        BLOCKS | {5: block([(0, 0, 9, 9, [7])], number=5)},
    ],
)
def test_blocks_that_are_not_those_of_the_head_are_refused(blocks: dict[int, bytes]) -> None:
    """One is missing, in another's place, of another batch, or too many."""
    with pytest.raises(CorruptBytes):
        Outstanding.restore(HEAD, blocks)


def test_a_block_is_refused_before_it_is_written_when_no_reader_would_take_it() -> None:
    """The limits of the document hold for writers, too."""
    with pytest.raises(OutOfRange):
        pack_block(0, {0: {}})


def read(data: bytes) -> cursor_reader.Held | None:
    """A block as `state` reads it, position by position; None when it refuses."""
    try:
        return expanded(read_block(data))
    except CorruptBytes:
        return None


def expected(data: bytes) -> cursor_reader.Held | None:
    """A block as the document says it is; None when it says that it is none."""
    held: cursor_reader.Held = {}
    try:
        cursor_reader.read_block(block_number(data), data, held)
    except FormatError:
        return None
    return held


def test_bytes_with_right_checksums_read_as_the_document_says_or_not_at_all() -> None:
    """Checksums stop accidents, not authors: the parsing behind them has to stand alone."""
    rng = random.Random(22)  # noqa: S311 - test data, the same in each run
    bodies = [block(GOOD)[6:], BLOCKS[1][6:], block([(0, 0, 0, 0, range(40)), (3, 1, 300, 2, [70_000])])[6:]]
    refused = 0
    for _ in range(3_000):
        data = sealed(b"O", damaged(rng, rng.choice(bodies)))
        wanted = expected(data)
        assert read(data) == wanted
        refused += wanted is None
    assert 1_000 < refused < 3_000


def expanded(ledgers: dict[int, dict[Cell, BitMap]]) -> cursor_reader.Held:
    """Cells position by position."""
    out: cursor_reader.Held = {}
    for ledger, cells in ledgers.items():
        for cell, entries in cells.items():
            for entry in entries:
                out.setdefault((ledger, entry), []).append((int(cell.condition), cell.round, cell.redelivery_count))
    return out
