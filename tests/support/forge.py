"""Chunks and indexes with right checksums and any content: what an attacker could write, and no bit rot ever would.

`take_apart` opens real bytes, `dataclasses.replace` changes them, `seal` closes them again. Nothing is checked here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from tests.support.format_reader import CHUNK, INDEX, VERSION, Block, Cursor, read_directory


def varint(value: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def zstd(data: bytes) -> bytes:
    """One frame."""
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def constant(value: int) -> bytes:
    """A column in which each of any number of values is `value`."""
    width = (value.bit_length() + 7) // 8
    return bytes([width]) + b"".join(bytes((0, byte)) for byte in value.to_bytes(width, "little"))


def column(values: Sequence[int]) -> bytes:
    """A column of raw planes."""
    width = (max(values, default=0).bit_length() + 7) // 8
    planes = (bytes(value >> 8 * i & 0xFF for value in values) for i in range(width))
    return bytes([width]) + b"".join(b"\x01" + plane for plane in planes)


@dataclass(frozen=True)
class Table:
    """An encoded ledger table, and the lowest and the highest (ledger, entry) that the header gives for it."""

    data: bytes
    low: tuple[int, int]
    high: tuple[int, int]


def ledger_table(*rows: tuple[int, int, int]) -> Table:
    """A ledger table of (id, first entry, last entry)."""
    ids = [0, *(ledger for ledger, _, _ in rows)]
    steps = column([after - before for before, after in pairwise(ids)])
    firsts, spans = column([first for _, first, _ in rows]), column([last - first for _, first, last in rows])
    return Table(varint(len(rows)) + steps + firsts + spans, rows[0][:2], rows[-1][::2])


ONE_ENTRY = ledger_table((0, 0, 0))


def flat_table(number: int) -> Table:
    """A table that claims this number of ledgers, from 1 on, each with entry 0 alone."""
    return Table(varint(number) + constant(1) + constant(0) * 2, (1, 0), (min(number, 2**62), 0))


def columns_payload(
    steps: Sequence[int], lengths: Sequence[int], gaps: Sequence[int], openings: Sequence[int], relative: int = 0
) -> bytes:
    """Payload of a block of columns."""
    return column(steps) + column(lengths) + column(gaps) + bytes([relative]) + column(openings)


def bitmaps_payload(steps: Sequence[int], tables: Sequence[int], bitmaps: Sequence[bytes]) -> bytes:
    """Payload of a block of bitmaps."""
    sizes = [len(bitmap) for bitmap in bitmaps]
    front = varint(len(bitmaps)) + varint(sum(sizes)) + column(steps) + column(tables) + column(sizes)
    return front + zstd(b"".join(bitmaps))


@dataclass(frozen=True)
class BlockParts:
    """A block and what the directory says of it; the checksum comes with the seal."""

    payload: bytes
    kind: int = 0
    step: int = 0
    span: int = 0
    rows: int = 1
    count: int = 1

    def line(self) -> bytes:
        """The block in the directory."""
        numbers = (self.kind, self.step, self.span, self.rows, self.count, len(self.payload))
        return b"".join(map(varint, numbers)) + crc(self.payload).to_bytes(4, "little")


@dataclass(frozen=True)
class ChunkParts:
    """A chunk in parts; `number` is that of the blocks, where it is to be another."""

    blocks: tuple[BlockParts, ...]
    table: Table = ONE_ENTRY
    strict: int = 1
    bits: int = 0
    skip: int = 0
    first_key: int = 0
    number: int | None = None

    def seal(self) -> bytes:
        """The bytes of the chunk, all checksums right."""
        number = len(self.blocks) if self.number is None else self.number
        front = (number, self.skip, self.first_key, *self.table.low, *self.table.high)
        body = b"".join([*map(varint, front), *(block.line() for block in self.blocks), self.table.data])
        return seal_chunk(body, [block.payload for block in self.blocks], self.strict, self.bits)


def crc(data: bytes) -> int:
    """CRC-32."""
    return zlib.crc32(data)


def seal_chunk(body: bytes, payloads: Sequence[bytes], strict: int = 1, bits: int = 0, version: int = VERSION) -> bytes:
    """A chunk with this header body, its checksum right."""
    checksum = crc(bytes((version, strict, bits)) + body)
    head = bytes((version, CHUNK, strict, bits)) + len(body).to_bytes(4, "little") + checksum.to_bytes(4, "little")
    return head + body + b"".join(payloads)


def seal_index(body: bytes, chunks: Sequence[bytes], strict: int = 1, version: int = VERSION) -> bytes:
    """An index with this header body, its checksum right."""
    checksum = crc(bytes((version, strict)) + body)
    head = bytes((version, INDEX, strict)) + len(body).to_bytes(4, "little") + checksum.to_bytes(4, "little")
    return head + body + b"".join(chunks)


def index_of(*chunks: bytes, tick_ms: int = 1, strict: int = 1, max_chunks: int = 2**20) -> bytes:
    """An index of these chunks."""
    numbers = (tick_ms, max_chunks, len(chunks), *(len(chunk) for chunk in chunks))
    return seal_index(b"".join(map(varint, numbers)), chunks, strict)


def take_apart(data: bytes) -> ChunkParts:
    """The parts of a chunk that is sound."""
    strict, bits, body = data[2], data[3], int.from_bytes(data[4:8], "little")
    header, payloads = Cursor(data[12 : 12 + body]), Cursor(data[12 + body :])
    number, skip, first_key = header.varint(), header.varint(), header.varint()
    low, high = ((header.varint(), header.varint()) for _ in range(2))
    blocks = read_directory(header, number)
    before = [0, *(block.first + block.span for block in blocks)]

    def part(block: Block, last: int) -> BlockParts:
        payload = payloads.take(block.size)
        return BlockParts(payload, block.kind, block.first - last, block.span, block.rows, block.count)

    parts = tuple(part(block, last) for block, last in zip(blocks, before, strict=False))
    return ChunkParts(parts, Table(header.take(header.left), low, high), strict, bits, skip, first_key)


def body_of(data: bytes) -> tuple[bytes, bytes]:
    """The header body of a chunk, and what follows it."""
    end = 12 + int.from_bytes(data[4:8], "little")
    return data[12:end], data[end:]
