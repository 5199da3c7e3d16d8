"""Chunks: immutable, encoded sets of positions by due time, readable by their directory without being decoded.

A chunk is what a batch appends to an index, what travels in a `segments` row, and what compaction writes. Its bytes
are specified in `docs/format.md`. Taking messages out of a chunk slices whole blocks off its front and counts how
many messages of the first remaining block are gone; nothing that stays is encoded again.

Four messages of two ledgers in buckets of 512 ms (`bits` is 9), keys rounded up. The bytes say what is in them:

    >>> due = np.array([1_000, 1_030, 1_100, 9_000])
    >>> data = encode_chunk(np.array([7, 7, 7, 8]), np.array([0, 1, 5, 0]), due, tick_ms=1_000)
    >>> header = describe_chunk(data)
    >>> header.bits, header.count, header.first_due, header.last_due, header.ledger_ids
    (9, 4, 1024, 9216, (7, 8))
    >>> chunk = Chunk.from_bytes(data)
    >>> runs = chunk.runs()
    >>> runs.due.tolist(), runs.first_entries.tolist(), runs.last_entries.tolist()
    ([1024, 1536, 1536, 9216], [0, 1, 5, 0], [0, 1, 5, 0])
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from sys import getsizeof

import numpy as np
import numpy.typing as npt

from state.blocks import BITMAP, MAX_ROWS, Block, Rows, decode_block, encode_blocks, join_rows
from state.buckets import MAX_BITS, MAX_TIME, DueRule, IntArray
from state.columns import Reader, varint
from state.errors import CorruptBytes
from state.heads import Head
from state.ledgers import LedgerTable
from state.runs import MAX_ENTRY, MAX_LEDGER, Runs, check_arrays

VERSION = 1
_MAGIC = b"C"
_HEAD = struct.Struct("<B1sBBII")
"""version, magic, strict, bits, length of the header body, CRC-32 of the other head fields and the body."""
_MAX_BLOCK_COUNT = 1 << 53
_MAX_COUNT = 1 << 62
_LATEST = MAX_TIME << 1
"""Above every key: the latest time, rounded up to the widest bucket."""


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """What a chunk says of itself without being decoded.

    Attributes:
        bits: the buckets are `2^bits` ms wide.
        strict: keys are rounded up (never early), not down.
        count: messages in it.
        first_due: earliest bucket key, ms UTC; None in an empty chunk.
        last_due: latest bucket key, ms UTC; None in an empty chunk.
        ledger_ids: the ledgers it was made from, ascending.
        first_entries: lowest entry of each ledger.
        last_entries: highest entry of each ledger.
        nbytes: bytes it takes.
    """

    bits: int
    strict: bool
    count: int
    first_due: int | None
    last_due: int | None
    ledger_ids: tuple[int, ...]
    first_entries: tuple[int, ...]
    last_entries: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A decoded header over encoded blocks.

    Attributes:
        bits: bucket width is `2^bits` ms; keys in blocks count such widths.
        strict: keys were rounded up.
        table: the packed ledger table; live it is several times as large, and mostly only its range is asked for.
        low: lowest (ledger id, entry id) in the table.
        high: highest (ledger id, entry id) in the table.
        blocks: what is left, ordered; none in an empty chunk, which an index does not hold.
        skip: messages of the first block that are gone.
        first_key: key of the first message that is left, in widths.
        count: messages that are left.
        head: the first block decoded, where pops that read only a part of it have kept it; never in bytes.
    """

    bits: int
    strict: bool
    table: bytes
    low: tuple[int, int]
    high: tuple[int, int]
    blocks: tuple[Block, ...]
    skip: int
    first_key: int
    count: int
    head: Head | None = None

    @classmethod
    def empty(cls, bits: int, *, strict: bool) -> Chunk:
        """A chunk without messages."""
        return cls(bits, strict, b"", (0, 0), (0, 0), (), 0, 0, 0)

    @property
    def first_due(self) -> int:
        """Earliest bucket key that is left, ms. O(1)."""
        return self.first_key << self.bits

    @property
    def last_due(self) -> int:
        """Latest bucket key, ms. O(1)."""
        return self.blocks[-1].last_key << self.bits

    @property
    def nbytes(self) -> int:
        """Live bytes: payloads, ledger table, directory objects, the decoded head. O(blocks)."""
        own = (self, self.table, self.blocks, self.skip, self.first_key, self.count, self.low, self.high)
        parts = [(b, b.payload, b.first_key, b.last_key, b.rows, b.count) for b in self.blocks]
        return sum(map(getsizeof, chain(own, self.low, self.high, *parts))) + (self.head.nbytes if self.head else 0)

    def ledgers(self) -> LedgerTable:
        """The ledger table, unpacked. O(ledgers).

        Raises:
            CorruptBytes: it is none, or not the one that the header speaks of.
        """
        ledgers = LedgerTable.unpack(self.table)
        if ledgers.bounds != (self.low, self.high):
            raise CorruptBytes("ledger table", "lowest or highest position differs from the header")
        return ledgers

    def shares_positions(self, other: Chunk) -> bool:
        """True when a position may be in both, judged by ledger and entry ranges. O(ledgers), mostly O(1)."""
        if self.low > other.high or other.low > self.high:
            return False
        return self.ledgers().overlaps(other.ledgers())

    def may_hold(self, ledger_id: int, entry_id: int) -> bool:
        """True when the position lies in the ledger and entry ranges. O(ledgers), mostly O(1)."""
        return self.low <= (ledger_id, entry_id) <= self.high and self.ledgers().holds(ledger_id, entry_id)

    def pending(self) -> Iterator[tuple[Block, int]]:
        """Each block with how many of its messages are gone."""
        yield self.blocks[0], self.skip
        for block in self.blocks[1:]:
            yield block, 0

    def decode(self, block: Block, skip: int, ledgers: LedgerTable, last_key: int | None = None) -> tuple[Runs, int]:
        """The runs of a block less its first `skip` messages, up to `last_key`, and the key after them. O(rows)."""
        rows, next_key = decode_block(block, ledgers, last_key)
        ledger_ids, first_entries = ledgers.resolve(rows.positions, rows.lengths)
        last_entries = first_entries if block.single else first_entries + (rows.lengths - 1)
        runs = Runs(rows.keys << self.bits, ledger_ids, first_entries, last_entries)
        return (runs.split(skip)[1] if skip else runs), next_key

    def runs(self, first_due: int = 0, last_due: int = _LATEST) -> Runs:
        """What is left in the blocks that meet the bucket keys `first_due..last_due` (ms). O(rows decoded)."""
        low, high = first_due >> self.bits, last_due >> self.bits
        ledgers = self.ledgers()
        meeting = [(b, skip) for b, skip in self.pending() if b.first_key <= high and low <= b.last_key]
        parts = [self.decode(block, skip, ledgers)[0] for block, skip in meeting]
        check_seams(parts)
        return Runs.concat(parts)

    def check_invariants(self) -> None:
        """Decode everything and check it against the directory. O(rows).

        Raises:
            CorruptBytes: it differs.
        """
        runs = self.runs()
        if not runs.in_order() or runs.messages != self.count:
            raise CorruptBytes("chunk", "runs are out of order, overlap, or are not as many as the header says")
        if int(runs.due[0]) != self.first_due or int(runs.due[-1]) != self.last_due:
            raise CorruptBytes("chunk", "first or last due differs from the header")

    def to_bytes(self) -> bytes:
        """The chunk as bytes (`docs/format.md`, Chunk). O(bytes)."""
        blocks = self.blocks
        if not blocks:
            return _HEAD.pack(VERSION, _MAGIC, self.strict, self.bits, 0, _checksum(self.strict, self.bits, b""))
        scalars = (len(blocks), self.skip, self.first_key, *self.low, *self.high)
        before = [0, *(block.last_key for block in blocks)]
        directory = [_directory_entry(block, last) for block, last in zip(blocks, before, strict=False)]
        body = b"".join([*map(varint, scalars), *directory, self.table])
        checksum = _checksum(self.strict, self.bits, body)
        head = _HEAD.pack(VERSION, _MAGIC, self.strict, self.bits, len(body), checksum)
        return b"".join([head, body, *(b.payload for b in blocks)])

    @classmethod
    def from_bytes(cls, data: bytes) -> Chunk:
        """The chunk in `data`; every checksum is verified, nothing is decoded. O(bytes).

        Raises:
            CorruptBytes: truncated, altered, foreign, or of an unknown version.
        """
        reader = Reader(bytes(data), "chunk")
        version, magic, strict, bits, length, checksum = _HEAD.unpack(reader.take(_HEAD.size))
        if version != VERSION or magic != _MAGIC:
            raise CorruptBytes("chunk", f"version {version}, kind {magic!r}; known: version {VERSION}, kind {_MAGIC!r}")
        header = Reader(reader.take(length), "chunk header")
        if checksum != _checksum(strict, bits, header.data) or strict > 1 or bits > MAX_BITS:
            raise CorruptBytes("chunk header", "checksum or settings do not fit")
        if length == 0:
            reader.end()
            return cls.empty(bits, strict=bool(strict))
        size, skip, first_key = header.varint(len(data)), header.varint(_MAX_COUNT), header.varint(_LATEST)
        low = header.varint(MAX_LEDGER), header.varint(MAX_ENTRY)
        high = header.varint(MAX_LEDGER), header.varint(MAX_ENTRY)
        blocks = tuple(_read_blocks(header, reader, size))
        table = header.rest()
        reader.end()
        if not (blocks and skip < blocks[0].count and blocks[0].first_key <= first_key <= blocks[0].last_key):
            raise CorruptBytes("chunk header", "the first block does not hold what is left of it")
        if blocks[-1].last_key << bits >= MAX_TIME + (1 << MAX_BITS):
            raise CorruptBytes("chunk header", "keys after the year 9999")
        count = sum(b.count for b in blocks) - skip
        return cls(bits, bool(strict), table, low, high, blocks, skip, first_key, count)


def check_seams(parts: list[Runs]) -> None:
    """Where two blocks meet inside a key, the second goes on behind the first. O(blocks)."""
    for a, b in pairwise(part for part in parts if len(part)):
        if (a.due[-1], a.ledger_ids[-1], a.last_entries[-1]) >= (b.due[0], b.ledger_ids[0], b.first_entries[0]):
            raise CorruptBytes("chunk", "blocks are out of order")


def _checksum(strict: int, bits: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(bytes([VERSION, strict, bits])))


def _directory_entry(block: Block, last_key: int) -> bytes:
    numbers = (block.kind, block.first_key - last_key, block.last_key - block.first_key, block.rows, block.count)
    return b"".join(map(varint, numbers)) + varint(len(block.payload)) + block.checksum.to_bytes(4, "little")


def _read_blocks(header: Reader, payloads: Reader, size: int) -> Iterator[Block]:
    """The blocks of a directory; keys are stored as steps, so they cannot go back."""
    key = 0
    for _ in range(size):
        kind, first_key = header.varint(BITMAP), key + header.varint(_LATEST)
        key = first_key + header.varint(_LATEST)
        rows, count = header.varint(MAX_ROWS), header.varint(_MAX_BLOCK_COUNT)
        payload = payloads.take(header.varint(len(payloads.data)))
        block = Block(kind, first_key, key, rows, count, payload)
        if block.checksum != int.from_bytes(header.take(4), "little") or not 1 <= rows <= count or key > _LATEST:
            raise CorruptBytes("block", "checksum, rows or keys do not fit the directory")
        yield block


def chunk_of_arrays(ledger_ids: IntArray, entry_ids: IntArray, keys: IntArray, bits: int, *, strict: bool) -> Chunk:
    """A chunk of single messages, `keys` in bucket widths; int64 arrays of shape (n,), n > 0. O(n log n).

    Messages that arrive as runs (entry after entry, due together) are sorted as runs.
    """
    follows = entry_ids[1:] == entry_ids[:-1] + 1
    follows &= keys[1:] == keys[:-1]
    follows &= ledger_ids[1:] == ledger_ids[:-1]
    if np.count_nonzero(follows) > len(keys) // 2:
        heads = np.concatenate(([0], np.flatnonzero(~follows) + 1))
        lasts = entry_ids[np.append(heads[1:], len(keys)) - 1]
        return chunk_of_runs(Runs(keys[heads] << bits, ledger_ids[heads], entry_ids[heads], lasts), bits, strict=strict)
    ledgers, positions = LedgerTable.build(ledger_ids, entry_ids, entry_ids)
    return _chunk(join_rows(*_sorted(keys, positions)), ledgers, bits, strict=strict)


def chunk_of_runs(runs: Runs, bits: int, *, strict: bool) -> Chunk:
    """A chunk of runs, at least one, in any order; what they share counts once. O(n log n)."""
    ordered = runs.united()
    ledgers, positions = LedgerTable.build(ordered.ledger_ids, ordered.first_entries, ordered.last_entries)
    return _chunk(Rows(ordered.due >> bits, positions, ordered.counts), ledgers, bits, strict=strict)


def _chunk(rows: Rows, ledgers: LedgerTable, bits: int, *, strict: bool) -> Chunk:
    blocks = encode_blocks(rows, ledgers)
    count = sum(block.count for block in blocks)
    return Chunk(bits, strict, ledgers.pack(), *ledgers.bounds, blocks, 0, blocks[0].first_key, count)


def _sorted(keys: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
    """Both in the order key, position: one packed int64 is sorted where the two ranges fit, rows elsewhere."""
    low = int(keys.min())
    bits = int(positions.max()).bit_length()
    if (int(keys.max()) - low).bit_length() + bits > 63:
        order = np.lexsort((positions, keys))
        return keys[order], positions[order]
    packed = ((keys - low) << bits) | positions
    if (packed[1:] >= packed[:-1]).all():
        return keys, positions
    packed.sort()
    return (packed >> bits) + low, packed & ((1 << bits) - 1)


def encode_chunk(
    ledger_ids: npt.ArrayLike,
    entry_ids: npt.ArrayLike,
    deliver_ats: npt.ArrayLike,
    tick_ms: int = 1000,
    strict: bool = True,  # noqa: FBT001, FBT002 - the same signature as TimeBucketIndex
) -> bytes:
    """Encode positions by due time into a chunk, for `TimeBucketIndex.append_chunk`. O(n log n), one packed sort.

    Args:
        ledger_ids: 0..2^62, shape (n,), any order.
        entry_ids: 0..2^31-1, shape (n,).
        deliver_ats: ms since the epoch, UTC, 1970..9999, shape (n,).
        tick_ms: precision, ms: bucket width is the largest power of two not above it.
        strict: round up (never early) or down.

    Returns:
        The bytes of one chunk, an empty one when n is 0. A position that comes twice in a bucket counts once.

    Raises:
        InvalidArgument: arrays that are not integers or not of one length.
        OutOfRange: a value outside its range.
    """
    rule = DueRule(tick_ms, strict)
    ledgers, entries, times = check_arrays(ledger_ids, entry_ids, deliver_ats)
    if len(times) == 0:
        return Chunk.empty(rule.bits, strict=strict).to_bytes()
    return chunk_of_arrays(ledgers, entries, rule.key(times) >> rule.bits, rule.bits, strict=strict).to_bytes()


def describe_chunk(data: bytes) -> ChunkInfo:
    """The metadata of an encoded chunk: checked, not decoded. O(bytes).

    Raises:
        CorruptBytes: truncated, altered, foreign, or of an unknown version.
    """
    chunk = Chunk.from_bytes(data)
    if not chunk.blocks:
        return ChunkInfo(chunk.bits, chunk.strict, 0, None, None, (), (), (), len(data))
    table = chunk.ledgers()
    return ChunkInfo(
        bits=chunk.bits,
        strict=chunk.strict,
        count=chunk.count,
        first_due=chunk.first_due,
        last_due=chunk.last_due,
        ledger_ids=tuple(table.ids.tolist()),
        first_entries=tuple(table.firsts.tolist()),
        last_entries=tuple((table.firsts + table.spans).tolist()),
        nbytes=len(data),
    )
