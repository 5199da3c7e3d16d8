"""A second reader of `docs/format.md`, written from that page alone: it shares no code with `state`.

Plain Python: integers and lists instead of arrays, its own reading of roaring bitmaps; only Zstandard is borrowed.
It is strict, slow, and keeps runs as runs, so a hostile claim of 2^31 messages costs it one tuple.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pyarrow as pa

from tests.support.roaring_reader import FormatError, Run, need, roaring_runs

Message = tuple[int, int, int]
"""(due ms, ledger, entry)."""
MessageRun = tuple[int, int, int, int]
"""(due ms, ledger, first entry, last entry)."""
Row = tuple[int, int, int]
"""(key, position, length)."""

VERSION, CHUNK, INDEX, GROUP = 1, 0x43, 0x49, 0x47
LATEST = 253_402_300_799_999
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def unzstd(frame: bytes, size: int) -> bytes:
    """The `size` bytes of a zstd frame."""
    need(frame[:4] == ZSTD_MAGIC, "not a zstd frame")
    try:
        data = pa.Codec("zstd").decompress(frame, decompressed_size=size, asbytes=True)
    except (OSError, ValueError) as error:
        raise FormatError("zstd") from error
    need(len(data) == size, "zstd frame of another size")
    return bytes(data)


class Cursor:
    """Reads the fields of "Conventions" one after the other."""

    def __init__(self, data: bytes) -> None:
        """Start at the front."""
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        need(size <= self.left, "bytes are missing")
        self.at += size
        return self.data[self.at - size : self.at]

    def end(self) -> None:
        """Nothing may be left over."""
        need(self.left == 0, "bytes are left over")

    def u8(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def u32(self) -> int:
        """Four bytes, the lowest first."""
        return int.from_bytes(self.take(4), "little")

    def varint(self) -> int:
        """LEB128 of at most nine bytes."""
        value = 0
        for shift in range(0, 63, 7):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise FormatError("varint of more than nine bytes")

    def plane(self, size: int) -> bytes:
        """One byte of each of `size` values."""
        mode = self.u8()
        need(mode <= 2, "unknown mode of a plane")
        if mode == 0:
            return self.take(1) * size
        return self.take(size) if mode == 1 else unzstd(self.take(self.varint()), size)

    def column(self, size: int) -> list[int]:
        """`[x; size]`."""
        width = self.u8()
        need(width <= 8 and (size > 0 or width == 0), "width of a column")
        values = [0] * size
        for i in range(width):
            plane = self.plane(size)
            values = [value | byte << 8 * i for value, byte in zip(values, plane, strict=True)]
        need(all(value < 2**63 for value in values), "value above 2^63 - 1")
        return values


@dataclass(frozen=True)
class Ledgers:
    """The ledger table: rows of (id, first entry, last entry), and where each begins on the line."""

    rows: list[tuple[int, int, int]]
    bases: list[int]

    def find(self, position: int, length: int) -> tuple[int, int, int]:
        """(ledger id, first entry, last entry) of a stretch of the line, which lies in one ledger."""
        low, high = 0, len(self.bases)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.bases[middle] <= position else (low, middle)
        ledger, first, last = self.rows[low]
        entry = first + position - self.bases[low]
        need(first <= entry and entry + length - 1 <= last, "row outside its ledger")
        return ledger, entry, entry + length - 1


def read_ledgers(cursor: Cursor) -> Ledgers:
    """The ledger table at the cursor."""
    number = cursor.varint()
    need(1 <= number <= 2**22, "number of ledgers")
    steps, firsts, spans = (cursor.column(number) for _ in range(3))
    ids = list(accumulate(steps))
    need(all(steps[1:]) and ids[-1] <= 2**62, "ledger ids")
    need(all(first + span < 2**31 for first, span in zip(firsts, spans, strict=True)), "entries of a ledger")
    bases = list(accumulate((span + 2 for span in spans[:-1]), initial=0))
    rows = [(ledger, first, first + span) for ledger, first, span in zip(ids, firsts, spans, strict=True)]
    return Ledgers(rows, bases)


@dataclass(frozen=True)
class Block:
    """One line of the directory."""

    kind: int
    first: int
    span: int
    rows: int
    count: int
    size: int
    checksum: int


def read_directory(cursor: Cursor, number: int) -> list[Block]:
    """The lines of the directory."""
    blocks: list[Block] = []
    last = 0
    for _ in range(number):
        kind, step, span, rows, count, size = (cursor.varint() for _ in range(6))
        block = Block(kind, last + step, span, rows, count, size, cursor.u32())
        need(block.kind <= 1, "unknown container")
        need(1 <= block.rows <= 2**16, "rows of a block")
        need(block.rows <= block.count <= 2**53, "messages of a block")
        need(block.kind == 0 or block.count <= 2**22, "messages of a block of bitmaps")
        last += step + span
        blocks.append(block)
    return blocks


def unzigzag(code: int) -> int:
    """The signed number behind a zigzag code."""
    return code >> 1 if code % 2 == 0 else -(code + 1) // 2


def column_rows(payload: bytes, block: Block) -> list[Row]:
    """Rows of a block of columns; keys still count from the block's first."""
    cursor = Cursor(payload)
    steps, lengths = cursor.column(block.rows), cursor.column(block.rows)
    opens = [i == 0 or step > 0 for i, step in enumerate(steps)]
    gaps = iter(cursor.column(opens.count(False)))
    relative = cursor.u8()
    need(relative <= 1 and steps[0] == 0, "payload of columns")
    openings = iter(cursor.column(opens.count(True)))
    cursor.end()
    rows: list[Row] = []
    key = end = 0
    for step, length, opening in zip(steps, lengths, opens, strict=True):
        key += step
        code = next(openings) if opening else next(gaps)
        position = code if opening and not relative else end + (unzigzag(code) if opening else code)
        end = position + length + 1
        rows.append((key, position, length + 1))
    return rows


def bitmap_rows(payload: bytes, block: Block, ledgers: Ledgers) -> list[Row]:
    """Rows of a block of bitmaps; keys still count from the block's first."""
    cursor = Cursor(payload)
    number, size = cursor.varint(), cursor.varint()
    need(1 <= number <= block.rows and size <= 2**20, "cells")
    steps, tables, sizes = (cursor.column(number) for _ in range(3))
    need(steps[0] == 0 and max(tables) < len(ledgers.rows) and sum(sizes) == size, "cells")
    bitmaps = Cursor(unzstd(cursor.take(cursor.left), size))
    keys = list(accumulate(steps))
    need(all(a < b for a, b in pairwise(zip(keys, tables, strict=True))), "order of cells")
    rows: list[Row] = []
    for key, table, length in zip(keys, tables, sizes, strict=True):
        _, low, high = ledgers.rows[table]
        runs = roaring_runs(bitmaps.take(length))
        need(bool(runs) and low <= runs[0][0] and runs[-1][1] <= high, "bitmap outside its ledger")
        shift = ledgers.bases[table] - low
        rows.extend((key, first + shift, last - first + 1) for first, last in runs)
    return rows


def block_rows(payload: bytes, block: Block, ledgers: Ledgers) -> list[Row]:
    """Rows of a block, as its line of the directory says."""
    need(zlib.crc32(payload) == block.checksum, "checksum of a block")
    rows = bitmap_rows(payload, block, ledgers) if block.kind else column_rows(payload, block)
    need(len(rows) == block.rows, "rows of a block")
    need(sum(length for _, _, length in rows) == block.count, "messages of a block")
    need(rows[-1][0] == block.span, "last key of a block")
    return [(key + block.first, position, length) for key, position, length in rows]


@dataclass(frozen=True)
class Chunk:
    """A decoded chunk: its metadata, and what is left in it as runs in the order of the chunk."""

    strict: bool
    bits: int
    skip: int
    blocks: list[Block]
    ledgers: Ledgers
    runs: list[MessageRun]

    @property
    def count(self) -> int:
        """Messages left."""
        return sum(block.count for block in self.blocks) - self.skip

    @property
    def kinds(self) -> list[int]:
        """Containers of the blocks."""
        return [block.kind for block in self.blocks]


def without(rows: list[Row], skip: int) -> Iterator[Row]:
    """The rows behind the first `skip` messages."""
    for key, position, length in rows:
        taken = min(skip, length)
        skip -= taken
        if length > taken:
            yield key, position + taken, length - taken


def read_chunk(data: bytes) -> Chunk:
    """Decode a chunk.

    Raises:
        FormatError: the bytes are not a chunk as the document describes it.
    """
    cursor = Cursor(data)
    need(cursor.u8() == VERSION and cursor.u8() == CHUNK, "not a chunk of version 1")
    strict, bits, length, checksum = cursor.u8(), cursor.u8(), cursor.u32(), cursor.u32()
    body = cursor.take(length)
    need(zlib.crc32(bytes((VERSION, strict, bits)) + body) == checksum, "checksum of the header")
    need(strict <= 1 and bits <= 41, "rounding")
    if length == 0:
        cursor.end()
        return Chunk(bool(strict), bits, 0, [], Ledgers([], []), [])
    header = Cursor(body)
    number, skip, first_key = header.varint(), header.varint(), header.varint()
    need(1 <= number <= len(data), "number of blocks")
    lowest, highest = ((header.varint(), header.varint()) for _ in range(2))
    blocks = read_directory(header, number)
    ledgers = read_ledgers(header)
    header.end()
    need(lowest == ledgers.rows[0][:2] and highest == ledgers.rows[-1][::2], "lowest and highest")
    need(skip < blocks[0].count, "skip")
    rows = [row for block in blocks for row in block_rows(cursor.take(block.size), block, ledgers)]
    cursor.end()
    need(all(a[0] < b[0] or a[1] + a[2] <= b[1] for a, b in pairwise(rows)), "order of rows")
    for _, position, length in rows:
        ledgers.find(position, length)  # the rows that are taken out too
    need(rows[-1][0] << bits < LATEST + 2**41, "key after the year 9999")
    left = list(without(rows, skip))
    need(left[0][0] == first_key, "first key")
    runs = [(key << bits, *ledgers.find(position, length)) for key, position, length in left]
    return Chunk(bool(strict), bits, skip, blocks, ledgers, runs)


@dataclass(frozen=True)
class Index:
    """A decoded index; the runs are sorted by bucket, ledger and entry, neighbours joined."""

    strict: bool
    tick_ms: int
    max_chunks: int
    chunks: list[Chunk]
    runs: list[MessageRun]

    @property
    def count(self) -> int:
        """Messages pending."""
        return sum(chunk.count for chunk in self.chunks)


def joined(runs: list[MessageRun]) -> list[MessageRun]:
    """The runs in the order in which they are popped, neighbours joined; no message may be in two of them."""
    out: list[MessageRun] = []
    for due, ledger, first, last in sorted(runs):
        if out and out[-1][:2] == (due, ledger):
            need(out[-1][3] < first, "position twice in a bucket")
            if out[-1][3] + 1 == first:
                out[-1] = (due, ledger, out[-1][2], last)
                continue
        out.append((due, ledger, first, last))
    return out


def messages(runs: list[MessageRun]) -> list[Message]:
    """Every message of the runs, sorted."""
    return sorted((due, ledger, entry) for due, ledger, low, high in runs for entry in range(low, high + 1))


def read_index(data: bytes) -> Index:
    """Decode an index.

    Raises:
        FormatError: the bytes are not an index as the document describes it.
    """
    cursor = Cursor(data)
    need(cursor.u8() == VERSION and cursor.u8() == INDEX, "not an index of version 1")
    strict, length, checksum = cursor.u8(), cursor.u32(), cursor.u32()
    body = cursor.take(length)
    need(zlib.crc32(bytes((VERSION, strict)) + body) == checksum, "checksum of the header")
    header = Cursor(body)
    tick, max_chunks, number = header.varint(), header.varint(), header.varint()
    need(strict <= 1 and 1 <= tick <= 2**41 and 1 <= max_chunks <= 2**20, "settings")
    need(number <= max_chunks, "number of chunks")
    sizes = [header.varint() for _ in range(number)]
    header.end()
    chunks = [read_chunk(cursor.take(size)) for size in sizes]
    cursor.end()
    bits = tick.bit_length() - 1
    need(all(chunk.strict == bool(strict) for chunk in chunks), "rounding of a chunk")
    need(bool(strict) or all(chunk.bits == bits for chunk in chunks), "bits of a tolerant chunk")
    need(all(chunk.blocks for chunk in chunks), "an empty chunk in an index")
    width = 2**bits
    runs = [(-(-due // width) * width, *rest) for chunk in chunks for due, *rest in chunk.runs]
    return Index(bool(strict), tick, max_chunks, chunks, joined(runs))


@dataclass
class Member:
    """An owner of a group, as its directory has it."""

    tick: int
    due: int
    count: int
    index: Index


def read_group(data: bytes) -> dict[bytes, Member]:
    """Decode a group with all its indexes.

    Raises:
        FormatError: the bytes are not a group as the document describes it.
    """
    cursor = Cursor(data)
    need(cursor.u8() == VERSION and cursor.u8() == GROUP, "not a group of version 1")
    length, checksum = cursor.u32(), cursor.u32()
    body = cursor.take(length)
    need(zlib.crc32(bytes((VERSION,)) + body) == checksum, "checksum of the directory")
    directory = Cursor(body)
    number = directory.varint()
    lengths, ticks, dues, counts, sizes = (directory.column(number) for _ in range(5))
    names = [directory.take(length) for length in lengths]
    directory.end()
    need(names == sorted(set(names)), "names out of order")
    indexes = [read_index(cursor.take(size)) for size in sizes]
    cursor.end()
    need(all(index.count == count for index, count in zip(indexes, counts, strict=True)), "counts")
    members = (Member(*fields) for fields in zip(ticks, dues, counts, indexes, strict=True))
    return dict(zip(names, members, strict=True))


__all__ = ["Chunk", "FormatError", "Index", "Run", "joined", "messages", "read_chunk", "read_group", "read_index"]
