"""A second reader of the section "Cursor" of `docs/format.md`, from that page alone: it shares no code with `state`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import pairwise

from tests.support.format_reader import Cursor, unzstd
from tests.support.roaring_reader import need, roaring_runs

Held = dict[tuple[int, int], list[tuple[int, int, int]]]
"""(ledger, entry) -> (condition, round, redelivery count), more than one only where one of them is withdrawn."""


def body_of(data: bytes, kind: str) -> Cursor:
    """What follows the checksum."""
    cursor = Cursor(data)
    need(cursor.u8() == 1, "version")
    need(cursor.u8() == ord(kind), "kind")
    need(cursor.u32() == zlib.crc32(data[:2] + data[6:]), "checksum")
    return cursor


def read_cursor(head: bytes, blocks: Mapping[int, bytes]) -> Held:
    """What a head and its blocks say of each position."""
    cursor = body_of(head, "H")
    version, ledger, entry, *counts, number = (cursor.varint() for _ in range(7))
    cursor.end()
    need(version < 2**62 and ledger <= 2**62 and entry <= 2**31 and (entry > 0 or ledger == 0), "head")
    held: Held = {}
    found = [0, 0, 0]
    for name, data in blocks.items():
        own = read_block(name, data, held)
        found = [a + b for a, b in zip(found, own, strict=True)]
    need((found, len(blocks)) == (counts, number), "blocks are not those of the head")
    return held


def read_block(name: int, data: bytes, held: Held) -> list[int]:
    """Add what a block says; give its counts."""
    cursor = body_of(data, "O")
    number, *counts, cells, size = (cursor.varint() for _ in range(6))
    need(number == name and 1 <= cells <= 2**20 and 1 <= size <= 2**28, "block")
    columns = [cursor.column(cells) for _ in range(5)]
    bitmaps = Cursor(unzstd(cursor.take(cursor.left), size))
    rows = list(zip(*columns, strict=True))
    need(all(a[:4] < b[:4] for a, b in pairwise(rows)), "order of the cells")
    found = [0, 0, 0]
    for offset, condition, around, count, nbytes in rows:
        ledger = 16 * number + offset
        need(offset < 16 and condition <= 2 and ledger <= 2**62, "cell")
        need(
            count <= around < 2**31 and (around > 0 or condition == 0) and (condition < 2 or count < around), "numbers"
        )
        runs = roaring_runs(bitmaps.take(nbytes))
        need(bool(runs), "a cell without entries")
        for first, last in runs:
            need(last < 2**31, "entry")
            found[condition] += last - first + 1
            for entry in range(first, last + 1):
                held.setdefault((ledger, entry), []).append((condition, around, count))
    bitmaps.end()
    need(found == counts and all(counts[i] >= 0 for i in range(3)), "counts")
    need(all(sum(condition < 2 for condition, _, _ in each) < 2 for each in held.values()), "held twice")
    return found
