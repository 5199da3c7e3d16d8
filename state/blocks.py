"""Blocks: up to 8 192 rows of a chunk, encoded on their own in one of two containers, the smaller one.

A row is a run: bucket key (in units of the bucket width), position (on the line of the ledger table), length.

- *columns*: what is left after prediction, as packed columns. Scattered positions cost their gaps, and long runs
  cost a few bits each.
- *bitmap*: one run-optimised roaring bitmap per cell (bucket, ledger). Wins where a cell is dense but broken, as two
  interleaved delays make it, and decodes faster there.

Five messages: entries 0 to 2 of ledger 7 in the bucket of key 20, entry 9 there, and entry 3 in that of key 21. On the
line of the ledger table an entry is its own position here, since the first entry is 0. So there are three rows:

    >>> ledgers = LedgerTable(np.array([7]), np.array([0]), np.array([9]))
    >>> rows = Rows(np.array([20, 20, 21]), np.array([0, 9, 3]), np.array([3, 1, 1]))
    >>> (block,) = encode_blocks(rows, ledgers)
    >>> block.kind == COLUMNS, block.first_key, block.last_key, block.rows, block.count
    (True, 20, 21, 3, 5)
    >>> again, next_key = decode_block(block, ledgers, last_key=20)
    >>> again.positions.tolist(), again.lengths.tolist(), next_key
    ([0, 9], [3, 1], 21)
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from state.bitmaps import bitmap_of_entries, entries_of, pack_bitmap, read_bitmap
from state.buckets import IntArray
from state.columns import Reader, compress, decompress, pack_column, varint
from state.errors import CorruptBytes
from state.ledgers import LedgerTable

COLUMNS, BITMAP = 0, 1
BLOCK_ROWS = 8_192
"""Rows that the encoder puts in a block. A pop may decode one in vain, and each has entropy tables of its own: 4 096
cost 0.03 B a row more, 16 384 drained 10 % slower (10 million, uniform over a day, ten chunks)."""
MAX_ROWS = 65_536
MAX_BITMAP_BYTES = 1 << 20
MAX_BITMAP_COUNT = 1 << 22
_RUNS_PER_CELL = 64
"""Below this many runs a cell, a bitmap's header and 16-bit containers cannot win."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a block, ordered by key, position: int64 arrays of shape (n,)."""

    keys: IntArray
    positions: IntArray
    lengths: IntArray

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.keys)

    def __getitem__(self, where: slice) -> Rows:
        """The rows of a slice."""
        return Rows(self.keys[where], self.positions[where], self.lengths[where])


@dataclass(frozen=True, slots=True)
class Block:
    """An encoded block and what its chunk's directory says of it.

    Attributes:
        kind: COLUMNS or BITMAP.
        first_key: key of the first row, in bucket widths.
        last_key: key of the last row, in bucket widths.
        rows: number of runs.
        count: number of messages.
        payload: the encoded rows.
    """

    kind: int
    first_key: int
    last_key: int
    rows: int
    count: int
    payload: bytes

    @property
    def single(self) -> bool:
        """True when every row is one message."""
        return self.rows == self.count

    @property
    def loose(self) -> bool:
        """True when its messages are scattered: at most an eighth more than rows."""
        return 8 * self.count <= 9 * self.rows

    @property
    def checksum(self) -> int:
        """CRC-32 of the payload."""
        return zlib.crc32(self.payload)


def encode_blocks(rows: Rows, ledgers: LedgerTable) -> tuple[Block, ...]:
    """All rows, cut into blocks. O(n)."""
    return tuple(_encode(rows[at : at + BLOCK_ROWS], ledgers) for at in range(0, len(rows), BLOCK_ROWS))


def _encode(rows: Rows, ledgers: LedgerTable) -> Block:
    kind, payload = COLUMNS, _pack_columns(rows)
    count = int(rows.lengths.sum())
    bitmaps = _pack_bitmaps(rows, ledgers, count)
    if bitmaps is not None and len(bitmaps) <= len(payload):
        kind, payload = BITMAP, bitmaps
    return Block(kind, int(rows.keys[0]), int(rows.keys[-1]), len(rows), count, payload)


def decode_block(block: Block, ledgers: LedgerTable, last_key: int | None = None) -> tuple[Rows, int]:
    """The rows of a block with keys up to `last_key` (or all), and the key after them, past the last at the end.

    O(rows) for columns, O(messages) for bitmaps, of the rows that are returned; their keys are all read.

    Raises:
        CorruptBytes: when they are not what the directory says.
    """
    reader = Reader(block.payload, "block")
    last = block.last_key if last_key is None else last_key
    read = _read_columns if block.kind == COLUMNS else _read_bitmaps
    rows, next_key = read(reader, block, ledgers, last)
    reader.end()
    _check(rows, next_key, block, ledgers)
    return rows, next_key


def _check(rows: Rows, next_key: int, block: Block, ledgers: LedgerTable) -> None:
    """Whatever the bytes were, what leaves here is ordered, in range, and what the directory promised."""
    longest = int(rows.lengths.max())
    whole = len(rows) == block.rows and int(rows.lengths.sum()) == block.count
    if (not whole and next_key > block.last_key) or (block.single and longest > 1):
        raise CorruptBytes("block", "rows or count differ from the directory")
    ends = rows.positions + rows.lengths
    overlap = (rows.keys[1:] == rows.keys[:-1]) & (rows.positions[1:] < ends[:-1])
    # Positions are sums that may go round 2^64: each has to lie in the table by itself, not only its end.
    inside = int(rows.positions.min()) >= 0 and int(rows.positions.max()) < ledgers.size > int(ends.max())
    if overlap.any() or not (inside and 0 < int(rows.lengths.min()) <= longest < ledgers.size):
        raise CorruptBytes("block", "rows are out of order or leave the ledger table")


def _gaps(rows: Rows) -> tuple[IntArray, np.ndarray[tuple[int], np.dtype[np.bool_]], IntArray]:
    """Key steps, which rows open a new key, and the distance of each row from the end of the row before."""
    steps = np.diff(rows.keys, prepend=rows.keys[0])
    opens = steps != 0
    opens[0] = True
    ends = rows.positions + rows.lengths
    gaps = rows.positions - np.concatenate(([0], ends[:-1]))
    return steps, opens, gaps


def _pack_columns(rows: Rows) -> bytes:
    """Columns: key steps, lengths - 1, gaps inside a key, and where each key opens: absolute, or relative as zigzag."""
    steps, opens, gaps = _gaps(rows)
    relative = gaps[opens]
    relative = (relative << 1) ^ (relative >> 63)
    absolute = rows.positions[opens]
    is_relative = float(relative.sum(dtype=np.float64)) < float(absolute.sum(dtype=np.float64))
    return (
        pack_column(steps)
        + pack_column(rows.lengths - 1)
        + pack_column(gaps[~opens])
        + bytes([is_relative])
        + pack_column(relative if is_relative else absolute)
    )


def _read_columns(reader: Reader, block: Block, _ledgers: LedgerTable, last_key: int) -> tuple[Rows, int]:
    steps = reader.column(block.rows)
    keys, rows, next_key = _cut(steps, block, last_key)
    opening_rows = 1 + int(np.count_nonzero(steps[1:]))
    opens = steps[:rows] != 0
    opens[0] = True
    heads = np.flatnonzero(opens)
    lengths = reader.column(block.rows, rows) + 1
    gaps = np.zeros(rows, dtype=np.int64)
    gaps[~opens] = reader.column(block.rows - opening_rows, rows - len(heads))
    is_relative = reader.byte()
    opening = reader.column(opening_rows, len(heads))
    if is_relative > 1:
        raise CorruptBytes("block", f"openings of kind {is_relative}")
    if is_relative:
        gaps[heads] = (opening >> 1) ^ -(opening & 1)
        positions = np.cumsum(gaps + lengths) - lengths
    else:
        ends = np.cumsum(gaps + lengths)
        offsets = opening - (ends - lengths)[heads]
        positions = ends - lengths + np.repeat(offsets, np.diff(heads, append=rows))
    return Rows(keys, positions, lengths), next_key


def _cut(steps: IntArray, block: Block, last_key: int) -> tuple[IntArray, int, int]:
    """The keys up to `last_key` (at least the first), how many they are, and the key that follows."""
    keys = np.cumsum(steps) + block.first_key
    # Steps are not negative, but their sum may go round 2^64: it did not where no key leaves the block's range.
    if int(steps[0]) or int(keys.min()) < block.first_key or not int(keys.max()) == int(keys[-1]) == block.last_key:
        raise CorruptBytes("block", "keys differ from the directory")
    if int(keys[-1]) <= last_key:
        return keys, len(keys), int(keys[-1]) + 1
    size = max(1, int(np.searchsorted(keys, last_key, side="right")))
    return keys[:size], size, int(keys[size])


def _pack_bitmaps(rows: Rows, ledgers: LedgerTable, count: int) -> bytes | None:
    """Bitmaps of the cells, or None where they cannot be smaller: too few runs a cell, or long runs."""
    if count > MAX_BITMAP_COUNT or count > 64 * len(rows) or len(rows) < _RUNS_PER_CELL:
        return None
    if len(rows) < _RUNS_PER_CELL * np.count_nonzero(np.diff(rows.keys, prepend=-1)):
        return None
    ledger = ledgers.index_of(rows.positions)
    heads = np.flatnonzero((np.diff(rows.keys, prepend=-1) != 0) | (np.diff(ledger, prepend=-1) != 0))
    span = np.add.reduceat(np.diff(rows.positions, append=rows.positions[-1]), heads).sum()
    if len(rows) < _RUNS_PER_CELL * len(heads) or span > 64 * count:
        return None
    entries = _entries(rows, ledgers, ledger)
    cuts = (np.cumsum(rows.lengths) - rows.lengths)[heads]
    bitmaps = [pack_bitmap(bitmap_of_entries(cell)) for cell in np.split(entries, cuts[1:])]
    blob = b"".join(bitmaps)
    if len(blob) > MAX_BITMAP_BYTES:
        return None
    return (
        varint(len(heads))
        + varint(len(blob))
        + pack_column(np.diff(rows.keys[heads], prepend=rows.keys[0]))
        + pack_column(ledger[heads])
        + pack_column(np.asarray([len(b) for b in bitmaps], dtype=np.int64))
        + compress(blob)
    )


def _entries(rows: Rows, ledgers: LedgerTable, ledger: IntArray) -> IntArray:
    """Entry ids of all messages of the rows, shape (messages,)."""
    return entries_of(rows.positions + (ledgers.firsts - ledgers.bases[:-1])[ledger], rows.lengths)


def _read_bitmaps(reader: Reader, block: Block, ledgers: LedgerTable, last_key: int) -> tuple[Rows, int]:
    cells, blob_size = reader.varint(block.rows), reader.varint(MAX_BITMAP_BYTES)
    if cells == 0 or block.count > MAX_BITMAP_COUNT:
        raise CorruptBytes("block", f"{cells} cells with {block.count} messages in bitmaps")
    keys, kept, next_key = _cut(reader.column(cells), block, last_key)
    ledger, sizes = reader.column(cells, kept), reader.column(cells)
    blob = decompress(reader.rest(), blob_size, "block")
    if int(ledger.max()) >= len(ledgers.ids) or int(sizes.max()) > blob_size or int(sizes.sum()) != blob_size:
        raise CorruptBytes("block", "cells point outside the ledger table or the bitmaps")
    ends = np.cumsum(sizes)[:kept]
    spans = zip((ends - sizes[:kept]).tolist(), ends.tolist(), strict=True)
    bitmaps = [read_bitmap(blob[start:end], "block") for start, end in spans]
    counts = np.asarray([len(b) for b in bitmaps], dtype=np.int64)
    if int(counts.sum()) > block.count or int(counts.min()) == 0:
        raise CorruptBytes("block", "bitmaps hold another number of messages than the directory says")
    if ((np.diff(keys) == 0) & (np.diff(ledger) <= 0)).any():
        raise CorruptBytes("block", "cells are out of order")
    lows, highs = np.asarray([b.min() for b in bitmaps]), np.asarray([b.max() for b in bitmaps])
    if ((lows < ledgers.firsts[ledger]) | (highs > (ledgers.firsts + ledgers.spans)[ledger])).any():
        raise CorruptBytes("block", "entries outside the range of their ledger")
    entries = np.concatenate([np.frombuffer(b.to_array(), dtype=np.uint32) for b in bitmaps]).astype(np.int64)
    shifts = (ledgers.bases[:-1] - ledgers.firsts)[ledger]
    return join_rows(np.repeat(keys, counts), entries + np.repeat(shifts, counts)), next_key


def join_rows(keys: IntArray, positions: IntArray) -> Rows:
    """Rows from single messages in order: neighbours become one row, a message that comes twice counts once. O(n)."""
    heads = np.empty(len(keys), dtype=np.bool_)
    heads[:1] = True
    steps = np.diff(positions)
    same_key = keys[1:] == keys[:-1]
    if (again := same_key & (steps == 0)).any():
        keep = np.concatenate(([True], ~again))
        return join_rows(keys[keep], positions[keep])
    np.not_equal(steps, 1, out=heads[1:])
    heads[1:] |= ~same_key
    at = np.flatnonzero(heads)
    if len(at) == len(keys):
        return Rows(keys, positions, np.ones(len(keys), dtype=np.int64))
    return Rows(keys[at], positions[at], np.diff(at, append=len(keys)))
