"""Writes the golden files of the current format version: `python -m tests.golden.make`.

Run once for a new version, or after adding a shape below; a file that exists is never written again, nor is its
entry in `expected.json`. What is expected comes from the plain lists that went in, not from any reader.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from state import Cell, Condition, IndexGroup, TimeBucketIndex, encode_chunk
from state.bitmaps import bitmap_of_runs
from state.cells import Cells
from state.cursor_bytes import Head, counted, pack_block
from tests.support.format_reader import read_chunk, read_index

FOLDER = Path(__file__).parent / "v1"
GROUP = Path(__file__).parent / "group" / "v1.bin"
CURSOR = Path(__file__).parent / "cursor" / "v1"
START = 53_497_314 << 15
"""A time in July 2025 at which buckets of any width up to 2^15 ms begin, so that a cell is not cut in two."""
LATEST = 253_402_300_799_999
Message = tuple[int, int, int]
"""(ledger, entry, deliver at in ms)."""


def rounded(at: int, tick_ms: int, *, strict: bool) -> int:
    """The bucket of a time."""
    width = 1 << (tick_ms.bit_length() - 1)
    return (at + width - 1 if strict else at) // width * width


def cells(due: Iterable[Message]) -> Iterator[tuple[int, int, int, list[int]]]:
    """(due ms, ledger, first entry, lengths of the run, the hole, the run, ...) of (due ms, ledger, entry)."""
    for (at, ledger), group in groupby(sorted(set(due)), lambda m: m[:2]):
        entries = [entry for _, _, entry in group]
        lengths, last = [0], entries[0] - 1
        for entry in entries:
            if entry != last + 1:
                lengths += [entry - last - 1, 0]
            lengths[-1] += 1
            last = entry
        yield at, ledger, entries[0], lengths


@dataclass(frozen=True)
class Shape:
    """A chunk to be."""

    messages: list[Message]
    tick_ms: int = 1000
    strict: bool = True

    def due(self, tick_ms: int = 1) -> list[Message]:
        """(due ms, ledger, entry), read at a tick that may be coarser."""
        coarser = max(tick_ms, self.tick_ms)
        return [(rounded(at, coarser, strict=self.strict), ledger, entry) for ledger, entry, at in self.messages]

    def encode(self) -> bytes:
        """The bytes of the chunk."""
        ledgers, entries, times = ([message[i] for message in self.messages] for i in range(3))
        return encode_chunk(ledgers, entries, times, self.tick_ms, self.strict)


def two_delays(rng: random.Random, entries: Iterable[int], at: int) -> list[Message]:
    """Entries of one ledger, one a ms, each with one of two delays that lie eleven minutes apart."""
    return [(7, entry, at + 1 + i + rng.choice((0, 20 << 15))) for i, entry in enumerate(entries)]


def scattered(rng: random.Random, number: int, ledgers: int, at: int) -> list[Message]:
    """Entries in publish order over a few ledgers, each with a delay of its own of up to an hour."""
    return [(100 + i % ledgers, 40 + i // ledgers, at + rng.randrange(3_600_000)) for i in range(number)]


def extremes(rng: random.Random) -> list[Message]:
    """The first and the last of everything, and ledgers far apart."""
    corners = list(product((0, 2**62), (0, 2**31 - 1), (0, LATEST)))
    return corners + [(rng.randrange(2**62), rng.randrange(2**31), rng.randrange(LATEST)) for _ in range(40)]


def bitmap(rng: random.Random) -> list[Message]:
    """Broken and dense, across an edge of 2^16 entries, then long runs, then single ones: all roaring containers."""
    runs = [(7, 131_072 + 50 * i + j, START + 9_000) for i in range(8) for j in range(20)]
    singles = [(7, 196_608 + 37 * i, START + 9_000) for i in range(60)]
    return two_delays(rng, range(56_700, 65_656), START) + runs + singles


def chunks() -> dict[str, Shape]:
    """The chunks, by name of their file."""
    rng = random.Random(1)  # noqa: S311 - test data, the same on each machine
    mixed = two_delays(rng, range(16_600), START) + scattered(rng, 500, 5, START + 86_400_000)
    return {
        "empty_chunk": Shape([]),
        "one_message": Shape([(5, 7, START + 123)]),
        "sequential": Shape([(3, 1_000 + i, START + i) for i in range(20_000)], 1_024),
        "scattered": Shape(scattered(rng, 600, 1, START)),
        "bitmap": Shape(bitmap(rng), 32_768),
        "mixed": Shape(mixed, 32_768),
        "extremes": Shape(extremes(rng), 1),
        "tolerant": Shape(scattered(rng, 150, 3, START), 1_500, strict=False),
    }


def write_chunk(name: str, shape: Shape) -> dict[str, object]:
    """Write a chunk and say what is in it."""
    data = shape.encode()
    (FOLDER / f"{name}.bin").write_bytes(data)
    bits = shape.tick_ms.bit_length() - 1
    found = {"kinds": read_chunk(data).kinds}
    return {"what": "chunk", "strict": shape.strict, "bits": bits, **found, "cells": list(cells(shape.due()))}


@dataclass(frozen=True)
class IndexShape:
    """An index to be: chunks of several ticks, popped up to some time."""

    shapes: list[Shape]
    tick_ms: int = 1000
    strict: bool = True
    max_chunks: int = 8
    popped_at: int = 0

    def left(self) -> list[Message]:
        """(due ms, ledger, entry) of what stays."""
        width = 1 << (self.tick_ms.bit_length() - 1)
        horizon = self.popped_at + (0 if self.strict else self.tick_ms - width + 1)
        return [due for shape in self.shapes for due in shape.due(self.tick_ms) if due[0] > horizon]


def indexes() -> dict[str, IndexShape]:
    """The indexes, by name of their file."""
    rng = random.Random(2)  # noqa: S311 - as above
    ticks = (1, 1_000, 60_000)
    parts = [
        Shape([(100 * tick + ledger, entry, at) for ledger, entry, at in scattered(rng, 150, 2, START)], tick)
        for tick in ticks
    ]
    loose = [Shape(scattered(rng, 80, 1, START + i * 10**7), 1_500, strict=False) for i in range(2)]
    return {
        "empty_index": IndexShape([]),
        "drained_index": IndexShape(parts, popped_at=START + 1_300_000),
        "tolerant_index": IndexShape(loose, 1_500, strict=False, max_chunks=2, popped_at=START + 1_000_000),
    }


def write_index(name: str, shape: IndexShape) -> dict[str, object]:
    """Write an index and say what is in it."""
    index = TimeBucketIndex(shape.tick_ms, shape.strict, shape.max_chunks)
    for part in shape.shapes:
        index.append_chunk(part.encode())
    index.pop_due_runs(shape.popped_at)
    data = index.to_bytes()
    (FOLDER / f"{name}.bin").write_bytes(data)
    settings = {"what": "index", "strict": shape.strict, "tick_ms": shape.tick_ms, "max_chunks": shape.max_chunks}
    found = {"skips": [chunk.skip for chunk in read_index(data).chunks]}
    return {**settings, **found, "cells": list(cells(shape.left()))}


MEMBERS = {
    b'["t", "s", 1]': ["scattered", "one_message"],
    b'["t", "s", 2]': ["bitmap"],
    bytes(range(256)): ["extremes"],
}
"""The owners of the group, with the names of their chunks."""


def write_group() -> None:
    """Write a group whose indexes have golden chunks, and of which something was popped."""
    group = IndexGroup()
    for owner, names in MEMBERS.items():
        for name in names:
            tick_ms = 1 << (chunks()[name].tick_ms.bit_length() - 1)
            group.append_chunk(owner, tick_ms, (FOLDER / f"{name}.bin").read_bytes())
    group.append_chunk(b"gone", 1, Shape([(1, 1, 5)], 1).encode())
    group.pop_due_runs(b"gone", 5)
    GROUP.parent.mkdir(exist_ok=True)
    GROUP.write_bytes(group.to_bytes())


CURSOR_CELLS = {
    (0, 0, 0, 0): [(0, 0), (5, 5), (2**31 - 1, 2**31 - 1)],
    (3, 0, 0, 0): [(1_000, 50_999)],
    (3, 1, 1, 1): [(3, 9), (70_000, 70_000)],
    (3, 1, 7, 2): [(11, 11)],
    (3, 2, 2, 0): [(12, 14), (70_001, 70_001)],
    (15, 0, 4, 4): [(i, i) for i in range(0, 50_000, 3)],
    (16, 0, 2**31 - 1, 2**31 - 1): [(7, 7)],
    (2**62, 2, 1, 0): [(8, 8)],
}
"""(ledger, condition, round, redelivery count) -> runs of entries."""
CURSOR_HEAD: dict[str, Any] = {"version": 77, "highest": (2**62, 8), "blocks": 3}


def write_cursor() -> None:
    """Write a head, and its blocks by number."""
    ledgers: dict[int, Cells] = {}
    for (ledger, condition, *numbers), runs in CURSOR_CELLS.items():
        columns = (np.array(column, np.int64) for column in zip(*runs, strict=True))
        ledgers.setdefault(ledger, {})[Cell(Condition(condition), *numbers)] = bitmap_of_runs(*columns)
    CURSOR.mkdir(parents=True)
    for number in {ledger // 16 for ledger in ledgers}:
        data = pack_block(number, {ledger: cells for ledger, cells in ledgers.items() if ledger // 16 == number})
        (CURSOR / f"{number}.bin").write_bytes(data)
    (CURSOR / "head.bin").write_bytes(Head(counts=counted(ledgers), **CURSOR_HEAD).to_bytes())


def main() -> None:
    """Write what is missing."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    new_chunks = {name: shape for name, shape in chunks().items() if name not in expected}
    new_indexes = {name: shape for name, shape in indexes().items() if name not in expected}
    expected |= {name: write_chunk(name, shape) for name, shape in new_chunks.items()}
    expected |= {name: write_index(name, shape) for name, shape in new_indexes.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(what, separators=(',', ':'))}" for name, what in expected.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    if not GROUP.exists():
        write_group()
    if not CURSOR.exists():
        write_cursor()


if __name__ == "__main__":
    main()
