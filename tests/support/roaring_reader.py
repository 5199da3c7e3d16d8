"""A reader of the portable roaring format (RoaringFormatSpec), for `format_reader`: plain Python, bitmaps as runs."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from itertools import pairwise

Run = tuple[int, int]
"""(first, last)."""

NO_RUNS, RUNS = 12346, 12347
ARRAY_LIMIT = 4096
OFFSETS_FROM = 4


class FormatError(ValueError):
    """The bytes are not what `docs/format.md` describes."""


def need(condition: bool, what: str) -> None:  # noqa: FBT001 - reads like the sentence of the document it checks
    """Refuse the bytes when a sentence of the document does not hold.

    Raises:
        FormatError: it does not.
    """
    if not condition:
        raise FormatError(what)


class Words:
    """Little-endian fields, one after the other."""

    def __init__(self, data: bytes) -> None:
        """Start at the front."""
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        need(self.at + size <= len(self.data), "bitmap is cut")
        self.at += size
        return self.data[self.at - size : self.at]

    def u16s(self, number: int) -> tuple[int, ...]:
        """The next 16-bit numbers."""
        return struct.unpack(f"<{number}H", self.take(2 * number))

    def u32s(self, number: int) -> tuple[int, ...]:
        """The next 32-bit numbers."""
        return struct.unpack(f"<{number}I", self.take(4 * number))


def array_runs(words: Words, cardinality: int) -> list[Run]:
    """A container of sorted 16-bit numbers."""
    values = words.u16s(cardinality)
    need(all(a < b for a, b in pairwise(values)), "array out of order")
    starts = [i for i, value in enumerate(values) if i == 0 or values[i - 1] + 1 != value]
    return [(values[a], values[b - 1]) for a, b in pairwise([*starts, len(values)])]


def bitset_runs(words: Words) -> list[Run]:
    """A container of 65536 bits."""
    bits = f"{int.from_bytes(words.take(8192), 'little'):065536b}"[::-1]
    return [(match.start(), match.end() - 1) for match in re.finditer("1+", bits)]


def run_runs(words: Words) -> list[Run]:
    """A container of runs: start, length - 1."""
    (number,) = words.u16s(1)
    pairs = words.u16s(2 * number)
    runs = [(start, start + more) for start, more in zip(pairs[::2], pairs[1::2], strict=True)]
    need(bool(runs) and runs[-1][1] < 2**16, "run outside its container")
    need(all(a[1] + 1 < b[0] for a, b in pairwise(runs)), "runs out of order")
    return runs


def container_runs(words: Words, cardinality: int, *, is_run: bool) -> list[Run]:
    """The runs of one container; what its descriptor says must fit."""
    if is_run:
        runs = run_runs(words)
    else:
        runs = array_runs(words, cardinality) if cardinality <= ARRAY_LIMIT else bitset_runs(words)
    need(sum(last - first + 1 for first, last in runs) == cardinality, "cardinality of a container")
    return runs


@dataclass(frozen=True)
class Header:
    """What stands before the containers; a flag of each says whether it is one of runs."""

    keys: tuple[int, ...]
    cardinalities: list[int]
    flags: int
    offsets: tuple[int, ...]

    @property
    def kinds(self) -> list[str]:
        """array, bitset or run, of each container."""
        plain = ["array" if cardinality <= ARRAY_LIMIT else "bitset" for cardinality in self.cardinalities]
        return ["run" if self.flags >> i & 1 else kind for i, kind in enumerate(plain)]


def read_header(words: Words) -> Header:
    """The cookie, the flags, the descriptors and the offsets."""
    (cookie,) = words.u32s(1)
    has_runs = cookie & 0xFFFF == RUNS
    need(has_runs or cookie == NO_RUNS, "cookie of a bitmap")
    number = (cookie >> 16) + 1 if has_runs else words.u32s(1)[0]
    need(number <= 2**16, "number of containers")
    flags = int.from_bytes(words.take((number + 7) // 8), "little") if has_runs else 0
    need(has_runs == bool(flags) and flags >> number == 0, "cookie of a bitmap")
    descriptors = words.u16s(2 * number)
    keys = descriptors[::2]
    need(all(a < b for a, b in pairwise(keys)), "containers out of order")
    offsets = words.u32s(number) if not has_runs or number >= OFFSETS_FROM else ()
    return Header(keys, [less + 1 for less in descriptors[1::2]], flags, offsets)


def container_kinds(data: bytes) -> list[str]:
    """array, bitset or run, of each container of a serialised bitmap."""
    return read_header(Words(data)).kinds


def roaring_runs(data: bytes) -> list[Run]:
    """Runs of a whole serialised bitmap, ascending, neighbours joined.

    Raises:
        FormatError: the bytes are not one bitmap in the portable format.
    """
    words = Words(data)
    header = read_header(words)
    out: list[Run] = []
    for i, (key, cardinality) in enumerate(zip(header.keys, header.cardinalities, strict=True)):
        need(not header.offsets or header.offsets[i] == words.at, "offset of a container")
        for first, last in container_runs(words, cardinality, is_run=bool(header.flags >> i & 1)):
            run = (key << 16 | first, key << 16 | last)
            if out and out[-1][1] + 1 == run[0]:
                run = (out.pop()[0], run[1])
            out.append(run)
    need(words.at == len(words.data), "bytes behind a bitmap")
    return out
