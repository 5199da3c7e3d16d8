"""Bytes of integers: varints, and columns split into byte planes, each plane constant, raw or zstd.

A column of n unsigned integers is cut into planes, one per significant byte, lowest first. Bytes of one weight are
alike, so an entropy coder gets close to the floor on the high ones and leaves the low ones, which are noise, alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from state.buckets import IntArray
from state.errors import CorruptBytes

CONSTANT, RAW, ZSTD = 0, 1, 2
_MIN_ZSTD = 48
"""A zstd frame costs about 13 bytes before it saves any; shorter planes stay raw."""
_ZSTD = pa.Codec("zstd", compression_level=1)
"""Level 1: on planes of this kind level 3 was both larger (3.95 against 3.66 bits at entropy 3.61) and 4x slower."""


def varint(value: int) -> bytes:
    """LEB128: seven bits a byte, lowest first, the high bit set on all but the last."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compress(plane: bytes) -> bytes:
    """One zstd frame of `plane`."""
    frame: bytes = _ZSTD.compress(plane, asbytes=True)
    return frame


def decompress(frame: bytes, size: int, part: str) -> bytes:
    """The `size` bytes in a zstd frame; never allocates more than `size`.

    Raises:
        CorruptBytes: when the frame is damaged or holds another number of bytes.
    """
    try:
        plane: bytes = _ZSTD.decompress(frame, decompressed_size=size, asbytes=True)
    except (OSError, ValueError) as error:
        raise CorruptBytes(part, f"zstd frame does not hold {size} bytes") from error
    if len(plane) != size:
        raise CorruptBytes(part, f"zstd frame holds {len(plane)} bytes, not {size}")
    return plane


def pack_column(values: IntArray) -> bytes:
    """Encode non-negative int64 values, shape (n,); n itself is not stored. O(n)."""
    top = int(values.max()) if len(values) else 0
    width = (top.bit_length() + 7) // 8
    planes = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8)
    return bytes([width]) + b"".join(_pack_plane(np.ascontiguousarray(planes[:, i])) for i in range(width))


def _pack_plane(plane: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bytes:
    if plane.min() == plane.max():
        return bytes([CONSTANT, int(plane[0])])
    raw = plane.tobytes()
    if len(raw) >= _MIN_ZSTD:
        frame = compress(raw)
        if len(frame) + 3 < len(raw):
            return bytes([ZSTD]) + varint(len(frame)) + frame
    return bytes([RAW]) + raw


@dataclass(slots=True)
class Reader:
    """Reads bytes in order and refuses to read past their end; `part` names them in errors."""

    data: bytes
    part: str
    at: int = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size > len(self.data) - self.at:
            raise CorruptBytes(self.part, f"ends at byte {len(self.data)}, {size} more were expected at {self.at}")
        self.at += size
        return self.data[self.at - size : self.at]

    def byte(self) -> int:
        """The next byte."""
        if self.at == len(self.data):
            raise CorruptBytes(self.part, f"ends at byte {self.at}, one more was expected")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self, high: int) -> int:
        """The next varint, refused when it exceeds `high`."""
        value = shift = 0
        while (byte := self.byte()) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 56:
                raise CorruptBytes(self.part, "varint of more than nine bytes")
        value |= byte << shift
        if value > high:
            raise CorruptBytes(self.part, f"{value} where at most {high} is allowed")
        return value

    def column(self, size: int, first: int | None = None) -> IntArray:
        """The next column of `size` values, or its `first` ones; allocates no more than 16 bytes a value."""
        kept = size if first is None else first
        width = self.byte()
        if width > 8 or (width and not size):
            raise CorruptBytes(self.part, f"column of {size} values in {width} planes")
        planes = np.zeros((kept, 8), dtype=np.uint8)
        for i in range(width):
            self._plane(planes, i, size)
        values = planes.reshape(-1).view("<i8").astype(np.int64, copy=False)
        if width == 8 and kept and int(values.min()) < 0:
            raise CorruptBytes(self.part, "column value above 2^63 - 1")
        return values

    def _plane(self, planes: np.ndarray[tuple[int, int], np.dtype[np.uint8]], i: int, size: int) -> None:
        mode = self.byte()
        if mode == CONSTANT:
            planes[:, i] = self.byte()
        elif mode == RAW:
            planes[:, i] = np.frombuffer(self.take(size), dtype=np.uint8)[: len(planes)]
        elif mode == ZSTD:
            frame = self.take(self.varint(len(self.data)))
            planes[:, i] = np.frombuffer(decompress(frame, size, self.part), dtype=np.uint8)[: len(planes)]
        else:
            raise CorruptBytes(self.part, f"plane mode {mode}")

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self.data) - self.at)

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if self.at != len(self.data):
            raise CorruptBytes(self.part, f"{len(self.data) - self.at} bytes left over")
