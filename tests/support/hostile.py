"""Bytes that an attacker would write: damaged at random but sealed again with right checksums, or lying on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pyroaring import BitMap

from tests.support.forge import (
    BlockParts,
    ChunkParts,
    bitmaps_payload,
    body_of,
    column,
    columns_payload,
    constant,
    flat_table,
    index_of,
    ledger_table,
    seal_chunk,
    take_apart,
    varint,
    zstd,
)

TOP = 2**63 - 1
EDGES = (0, 1, 2, 9, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**49, 2**53, 2**62, TOP - 1, TOP)
Mutation = Callable[[random.Random, bytes], bytes]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, taken out or put in."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            out[at:at] = rng.randbytes(1)
        elif kind == 1 and len(out) > 1:
            del out[at : at + 1]
        elif at < len(out):
            out[at] = rng.choice((0, 255, rng.randrange(256), (out[at] + 1) % 256, (out[at] - 1) % 256))
    return bytes(out)


def header_damaged(rng: random.Random, data: bytes) -> bytes:
    """A chunk with a damaged header body."""
    body, payloads = body_of(data)
    return seal_chunk(damaged(rng, body), [payloads], data[2], data[3])


def payload_damaged(rng: random.Random, data: bytes) -> bytes:
    """A chunk with a damaged payload."""
    parts = take_apart(data)
    at = rng.randrange(len(parts.blocks))
    block = replace(parts.blocks[at], payload=damaged(rng, parts.blocks[at].payload))
    return replace(parts, blocks=(*parts.blocks[:at], block, *parts.blocks[at + 1 :])).seal()


def field_replaced(rng: random.Random, data: bytes) -> bytes:
    """A chunk in which one number is another one."""
    parts = take_apart(data)
    at = rng.randrange(len(parts.blocks))
    name = rng.choice(("skip", "first_key", "bits", "kind", "step", "span", "rows", "count"))
    holder = parts if name in {"skip", "first_key", "bits"} else parts.blocks[at]
    old = getattr(holder, name)
    high = 255 if name == "bits" else TOP
    value = min(high, max(0, rng.choice((*EDGES, old - 1, old + 1, old // 2, old * 2))))
    new: Any = {name: value}
    if holder is parts:
        return replace(parts, **new).seal()
    block = replace(parts.blocks[at], **new)
    return replace(parts, blocks=(*parts.blocks[:at], block, *parts.blocks[at + 1 :])).seal()


def near_valid(rng: random.Random, _data: bytes) -> bytes:
    """A small chunk of columns, made of numbers that are right, or at an edge."""

    def number(*usual: int) -> int:
        return rng.choice(EDGES) if rng.random() < 0.06 else rng.choice(usual)

    rows = rng.randrange(1, 5)
    steps = [0, *(number(0, 0, 1, 3) for _ in range(rows - 1))]
    lengths = [number(0, 0, 1, 4) for _ in range(rows)]
    opens = 1 + sum(step > 0 for step in steps[1:])
    gaps, openings = [number(0, 1, 2, 5) for _ in range(rows - opens)], [number(0, 2, 4, 11) for _ in range(opens)]
    payload = columns_payload(steps, lengths, gaps, openings, number(0, 0, 0, 1, 1) & 0xFF)
    count = sum(length + 1 for length in lengths)
    span, top = min(TOP, sum(steps)), min(TOP, count)
    table = ledger_table((0, 0, 9), (number(1, 4), 3, 30)) if rng.random() < 0.7 else ledger_table((2, 5, 40))
    block = BlockParts(payload, 0, 0, rng.choice((span, sum(steps) % 2**64 % 2**63)), rows, top)
    skip = rng.choice((0, 0, 0, 1, count - 1)) if count < 99 else 0
    return ChunkParts((block,), table, bits=rng.choice((0, 0, 9, 41)), skip=skip).seal()


def near_valid_bitmaps(rng: random.Random, _data: bytes) -> bytes:
    """A small chunk of bitmaps that are right, or damaged a little."""
    cells = rng.randrange(1, 4)
    bitmaps, found = [], []
    for _ in range(cells):
        bitmap = BitMap(rng.sample(range(3, rng.choice((10, 40, 70_000))), 4))
        if rng.random() < 0.5:
            bitmap.run_optimize()
        found.append(sorted(bitmap))
        data: bytes = bitmap.serialize()
        bitmaps.append(damaged(rng, data) if rng.random() < 0.2 else data)
    steps = [0, *(rng.choice((0, 1, 1, 2)) for _ in range(cells - 1))]
    tables = sorted(rng.randrange(3) for _ in range(cells)) if rng.random() < 0.8 else [rng.choice(EDGES)] * cells
    rows = sum(entry - 1 not in entries for entries in found for entry in entries)
    block = BlockParts(bitmaps_payload(steps, tables, bitmaps), 1, 0, sum(steps), rows, 4 * cells)
    last = rng.choice((9, 39, 69_999))
    return ChunkParts((block,), ledger_table((0, 3, 69_999), (1, 0, 69_999), (9, 3, last))).seal()


MUTATIONS: tuple[Mutation, ...] = (header_damaged, payload_damaged, field_replaced, near_valid, near_valid_bitmaps)


def bitmap_chunk(*cells: tuple[int, int, bytes], rows: int, count: int, span: int = 0) -> bytes:
    """A chunk of one block of bitmaps from (step, row of the ledger table, bitmap); two ledgers of entries 0..9."""
    steps, tables, bitmaps = zip(*cells, strict=True)
    payload = bitmaps_payload(steps, tables, bitmaps)
    return ChunkParts((BlockParts(payload, 1, 0, span, rows, count),), ledger_table((0, 0, 9), (1, 0, 9))).seal()


def columns_chunk(
    steps: list[int], lengths: list[int], openings: list[int], *, relative: int = 0, first: int = 0, bits: int = 0
) -> bytes:
    """A chunk of one block of columns without gaps; two ledgers of entries 0..9."""
    count, span = sum(lengths) + len(lengths), sum(steps) % 2**64 % 2**63
    payload = columns_payload(steps, lengths, [], openings, relative)
    block = BlockParts(payload, 0, first, span, len(steps), count)  # the first step is the first key
    return ChunkParts((block,), ledger_table((0, 0, 9), (1, 0, 9)), bits=bits, first_key=first).seal()


def cell(*entries: int) -> bytes:
    """A bitmap."""
    data: bytes = BitMap(entries).serialize()
    return data


def liars() -> Iterator[tuple[str, bytes]]:
    """Chunks with right checksums, each with one sentence of the document broken, by name."""
    yield "a key after the year 9999", columns_chunk([0], [0], [0], first=2**48, bits=41)
    yield "a last key after the year 9999", columns_chunk([0, 2**48], [0, 0], [0, 0], bits=41)
    yield "keys that go round 2^64", columns_chunk([0, TOP, TOP, 2], [0] * 4, [0] * 4)
    yield "keys that go round 2^64 and on", columns_chunk([0, TOP, TOP, 7], [0] * 4, [0] * 4)
    yield "a position that goes round 2^63", columns_chunk([0], [0], [TOP])
    yield "a row across two ledgers", columns_chunk([0], [14], [0])
    yield "a row on the number between two ledgers", columns_chunk([0], [0], [10])
    yield "a row on the number behind the last ledger", columns_chunk([0], [0], [21])
    yield "openings that are neither relative nor absolute", columns_chunk([0], [0], [0], relative=2)
    yield "a position below zero", columns_chunk([0], [0], [1], relative=1)
    wide = column([0]) * 2 + b"\x01\x00\x00" + b"\x00" + column([0])
    yield "a plane of no values", ChunkParts((BlockParts(wide),)).seal()
    sound = BlockParts(columns_payload([0], [0], [], [0]))
    for low, high in (((0, 1), (0, 9)), ((0, 0), (0, 8)), ((0, 0), (1, 9)), ((1, 0), (1, 9))):
        table = replace(ledger_table((0, 0, 9)), low=low, high=high)
        yield f"a table from {low} to {high}", ChunkParts((sound,), table).seal()
    yield (
        "a first key that is not the first",
        ChunkParts((BlockParts(columns_payload([0, 5], [0, 0], [], [0, 0]), 0, 0, 5, 2, 2),), first_key=5).seal(),
    )
    late, early = (BlockParts(columns_payload([0], [0], [], [entry])) for entry in (5, 3))
    yield "blocks in another order", ChunkParts((late, early), ledger_table((0, 0, 9))).seal()
    yield "the same message in two blocks", ChunkParts((late, late), ledger_table((0, 0, 9))).seal()
    yield "a cell twice", bitmap_chunk((0, 0, cell(1)), (0, 0, cell(3)), rows=2, count=2)
    yield "cells in another order", bitmap_chunk((0, 1, cell(1)), (0, 0, cell(3)), rows=2, count=2)
    yield "an entry outside its ledger", bitmap_chunk((0, 0, cell(1, 12)), rows=2, count=2)
    yield "bytes behind a bitmap", bitmap_chunk((0, 0, cell(1, 3) + b"x"), rows=2, count=2)
    yield "a bitmap without bytes", bitmap_chunk((0, 0, cell(1, 3)), (0, 1, b""), rows=2, count=2)
    yield "an empty bitmap", bitmap_chunk((0, 0, cell(1, 3)), (0, 1, cell()), rows=2, count=2)
    yield "cells whose keys go round 2^64", bitmap_chunk(*((s, 0, cell(1)) for s in (0, TOP, TOP, 2)), rows=4, count=4)
    yield "a ledger outside the table", bitmap_chunk((0, 2, cell(1)), rows=1, count=1)


def bombs(huge: int = 2**24) -> Iterator[tuple[str, bytes, int]]:
    """(name, chunk, bytes that the document allows): small chunks with right checksums that claim to be huge.

    A reader that is not careful allocates about 40 times `huge` bytes for the last: 2^31 only where memory is limited.
    """
    one = BlockParts(columns_payload([0], [0], [], [0]))
    yield "a table of 2^22 ledgers", ChunkParts((one,), flat_table(2**22)).seal(), 128 * 2**22
    yield "a table of more ledgers", ChunkParts((one,), flat_table(2**22 + 1)).seal(), 0
    yield "a table of 2^63 - 1 ledgers", ChunkParts((one,), flat_table(TOP)).seal(), 0
    for blocks, number in ((1, TOP), (4_000, 4_000), (4_000, 4_001)):
        parts = (replace(one, payload=bytes(5)),) * blocks
        yield f"{number} blocks", ChunkParts(parts, number=number).seal(), 1024 * blocks
    flat = constant(0) * 2 + constant(1) + b"\x00" + constant(0)
    for rows, allowed in ((2**16, 200 * 2**16), (2**16 + 1, 0), (TOP, 0)):
        block = BlockParts(flat, rows=rows, count=min(rows, 2**53))
        yield f"{rows} rows", ChunkParts((block,), ledger_table((0, 0, 2**31 - 1))).seal(), allowed
    for size in (2**20, 2**26):
        frame = zstd(bytes(size))
        blob = varint(1) + varint(2**20) + column([0]) * 2 + column([2**20]) + frame
        yield f"{size} zeros for bitmaps", ChunkParts((BlockParts(blob, 1),)).seal(), 2**20
        plane = b"\x01\x02" + varint(len(frame)) + frame
        block = BlockParts(plane * 2 + constant(0) * 2, rows=2**16, count=2**16)
        yield f"{size} zeros for a plane", ChunkParts((block,)).seal(), 200 * 2**16
    for positions, count, allowed in (
        (2**22, 2**22, 64 * 2**22),
        (2**22 + 1, 2**22 + 1, 0),
        (huge, huge, 0),
        (huge, 1, 0),
    ):
        bitmap = BitMap()
        bitmap.add_range(0, positions)
        bitmap.run_optimize()
        block = BlockParts(bitmaps_payload([0], [0], [bitmap.serialize()]), 1, count=count)
        yield (
            f"a bitmap of {positions} for {count}",
            ChunkParts((block,), ledger_table((0, 0, 2**31 - 1))).seal(),
            allowed,
        )


def index_for(data: bytes) -> bytes:
    """An index that holds this chunk and takes it as it is."""
    return index_of(data, tick_ms=1 << min(data[3], 41), strict=data[2] & 1)
