"""What settling keeps, as bytes (`docs/format.md`, Cursor): a head, and blocks of ledgers that are read one by one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap

from state.bitmaps import pack_bitmap, read_bitmap
from state.buckets import IntArray, check_range
from state.cells import Cell, Cells, Condition
from state.columns import Reader, compress, decompress, pack_column, varint
from state.errors import CorruptBytes
from state.retry import MAX_ROUND
from state.runs import MAX_ENTRY, MAX_LEDGER
from state.settling import MAX_VERSION

VERSION = 1
LEDGERS = 16
"""Ledgers of a block: those whose ids divided by this give its number. A batch writes the blocks that it touched: more
ledgers cost bytes with each batch, fewer cost a row of a table each."""
MAX_CELLS = 1 << 20
MAX_BITMAP_BYTES = 1 << 28
_HEAD, _BLOCK = b"H", b"O"
_FRAME = struct.Struct("<B1sI")
"""version, kind, CRC-32 of version, kind and what follows."""
_MAX = (1 << 63) - 1


class Counts(NamedTuple):
    """How many positions are in each condition."""

    outstanding: int = 0
    waiting: int = 0
    withdrawn: int = 0

    def __bool__(self) -> bool:
        """False when there is none."""
        return any(self[:])


@dataclass(frozen=True, slots=True)
class Head:
    """What holds for all blocks together.

    Attributes:
        version: newest version of the table of releases that was read; -1: none.
        highest: ledger and entry of the highest position that was released; None: nothing was.
        counts: positions of all blocks.
        blocks: number of blocks.
    """

    version: int
    highest: tuple[int, int] | None
    counts: Counts
    blocks: int

    def to_bytes(self) -> bytes:
        """The head as bytes."""
        ledger, entry = self.highest or (0, -1)
        return _sealed(_HEAD, b"".join(map(varint, (self.version + 1, ledger, entry + 1, *self.counts, self.blocks))))

    @classmethod
    def from_bytes(cls, data: bytes) -> Head:
        """The head in `data`.

        Raises:
            CorruptBytes: truncated, altered, foreign, or of an unknown version.
        """
        reader = _opened(data, _HEAD, "cursor head")
        version, ledger, entry = reader.varint(MAX_VERSION + 1), reader.varint(MAX_LEDGER), reader.varint(MAX_ENTRY + 1)
        counts, blocks = Counts(*(reader.varint(_MAX) for _ in range(3))), reader.varint(_MAX)
        reader.end()
        if not entry and ledger:
            raise CorruptBytes(reader.part, "a highest ledger without an entry")
        return cls(version - 1, (ledger, entry - 1) if entry else None, counts, blocks)


def pack_block(number: int, ledgers: dict[int, Cells]) -> bytes:
    """A block with at least one cell as bytes. O(bytes).

    Raises:
        OutOfRange: more than 2^20 cells, or bitmaps of more than 2^28 bytes: about 10^8 scattered positions a ledger.
    """
    rows = [(ledger, cell) for ledger in sorted(ledgers) for cell in sorted(ledgers[ledger])]
    bitmaps = [pack_bitmap(ledgers[ledger][cell]) for ledger, cell in rows]
    size = sum(map(len, bitmaps))
    check_range("cells of a block", len(rows), 1, MAX_CELLS)
    check_range("bytes of the bitmaps of a block", size, 1, MAX_BITMAP_BYTES)
    columns = (
        [ledger - number * LEDGERS for ledger, _ in rows],
        *zip(*(cell for _, cell in rows), strict=True),
        [len(bitmap) for bitmap in bitmaps],
    )
    scalars = map(varint, (number, *counted(ledgers), len(rows), size))
    packed = (pack_column(np.array(column, np.int64)) for column in columns)
    return _sealed(_BLOCK, b"".join([*scalars, *packed, compress(b"".join(bitmaps))]))


def counted(ledgers: dict[int, Cells]) -> Counts:
    """How many positions cells hold. O(containers)."""
    counts = [0, 0, 0]
    for cells in ledgers.values():
        for cell, entries in cells.items():
            counts[cell.condition] += len(entries)
    return Counts(*counts)


def block_counts(data: bytes) -> tuple[int, Counts]:
    """Number and counts of a block, which is checked by its checksum and not decoded. O(bytes).

    Raises:
        CorruptBytes: truncated, altered, foreign, or of an unknown version.
    """
    return _block_scalars(_opened(data, _BLOCK, "cursor block"))


def _block_scalars(reader: Reader) -> tuple[int, Counts]:
    return reader.varint(MAX_LEDGER // LEDGERS), Counts(*(reader.varint(_MAX) for _ in range(3)))


def read_block(data: bytes) -> dict[int, Cells]:
    """The cells of a block by ledger. O(bytes).

    Raises:
        CorruptBytes: truncated, altered, foreign, of an unknown version, or not what a writer writes.
    """
    reader = _opened(data, _BLOCK, "cursor block")
    number, counts = _block_scalars(reader)
    size, nbytes = reader.varint(MAX_CELLS), reader.varint(MAX_BITMAP_BYTES)
    columns = [reader.column(size) for _ in range(5)]
    blob = decompress(reader.rest(), nbytes, reader.part)
    ledgers: dict[int, Cells] = {}
    for ledger, cell, data_of in _rows(number, columns, blob):
        entries = read_bitmap(data_of, reader.part)
        if not entries or entries.max() > MAX_ENTRY:
            raise CorruptBytes(reader.part, "a cell without entries, or with one above 2^31 - 1")
        ledgers.setdefault(ledger, {})[cell] = entries
    if not ledgers or counted(ledgers) != counts:
        raise CorruptBytes(reader.part, "cells hold other positions than the counts say")
    if any(_shared(cells) for cells in ledgers.values()):
        raise CorruptBytes(reader.part, "a position is outstanding or waiting twice")
    return ledgers


def _rows(number: int, columns: list[IntArray], blob: bytes) -> Iterator[tuple[int, Cell, bytes]]:
    """Ledger, cell and bitmap of each row of a block, in order."""
    _, conditions, rounds, counts, sizes = columns
    limits = (LEDGERS - 1, Condition.WITHDRAWN, MAX_ROUND, MAX_ROUND, len(blob))
    if any(len(column) and int(column.max()) > limit for column, limit in zip(columns, limits, strict=True)):
        raise CorruptBytes("cursor block", "a number outside its range")
    first_round = np.where(conditions == Condition.OUTSTANDING, 0, 1)
    # Of what is withdrawn a count that is the round is not told.
    highest = counts + (conditions == Condition.WITHDRAWN) * (counts > 0)
    if (rounds < np.maximum(highest, first_round)).any():
        raise CorruptBytes("cursor block", "a round or a redelivery count that no position can have")
    if int(sizes.sum()) != len(blob):
        raise CorruptBytes("cursor block", "bitmaps of another size")
    last, end = (-1,), 0
    for offset, condition, *numbers, nbytes in zip(*(column.tolist() for column in columns), strict=True):
        row = (offset, condition, *numbers)
        ledger, end = number * LEDGERS + offset, end + nbytes
        if row <= last or ledger > MAX_LEDGER:
            raise CorruptBytes("cursor block", "cells are out of order, or of a ledger above 2^62")
        last = row
        yield ledger, Cell(Condition(condition), *numbers), blob[end - nbytes : end]


def _shared(cells: Cells) -> bool:
    live = [entries for cell, entries in cells.items() if cell.condition != Condition.WITHDRAWN]
    return len(live) > 1 and len(BitMap.union(*live)) < sum(map(len, live))


def _sealed(kind: bytes, body: bytes) -> bytes:
    return _FRAME.pack(VERSION, kind, _checksum(kind, body)) + body


def _opened(data: bytes, kind: bytes, part: str) -> Reader:
    reader = Reader(bytes(data), part)
    version, found, checksum = _FRAME.unpack(reader.take(_FRAME.size))
    if version != VERSION or found != kind:
        raise CorruptBytes(part, f"version {version}, kind {found!r}; known: version {VERSION}, kind {kind!r}")
    if checksum != _checksum(kind, reader.data[_FRAME.size :]):
        raise CorruptBytes(part, "checksum does not fit")
    return reader


def _checksum(kind: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(bytes([VERSION]) + kind))
