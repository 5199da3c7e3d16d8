"""Indexes of many owners as one value: those that are not touched are carried along unread.

Whoever keeps an index for each of very many owners pays for each of them, however little is in it, where a value is
fetched and put back one by one. A group is one value; what is due of it is found in its directory.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np

from state.buckets import MAX_TICK, MAX_TIME, check_range
from state.columns import Reader, pack_column, varint
from state.errors import CorruptBytes
from state.index import TimeBucketIndex
from state.runs import Runs

VERSION = 1
_MAGIC = b"G"
_HEAD = struct.Struct("<B1sII")
"""version, magic, length of the directory, CRC-32 of version and directory."""


@dataclass(slots=True)
class _Member:
    """An owner's index, as bytes until somebody asks for it."""

    tick_ms: int
    due: int
    count: int
    data: bytes
    index: TimeBucketIndex | None = None

    def opened(self) -> TimeBucketIndex:
        if self.index is None:
            self.index = TimeBucketIndex.from_bytes(self.data)
        return self.index

    def note(self) -> bool:
        """Note in the directory what the index says; False when nothing is pending."""
        due = self.opened().next_due
        self.due, self.count = due or 0, len(self.opened())
        return due is not None

    def to_bytes(self) -> bytes:
        return self.data if self.index is None else self.index.to_bytes()


class IndexGroup:
    """Indexes (`TimeBucketIndex`) of owners. An owner is a name in bytes, and stays while anything of it is pending."""

    def __init__(self) -> None:
        self._members: dict[bytes, _Member] = {}

    def append_chunk(self, owner: bytes, tick_ms: int, data: bytes) -> int:
        """Add an encoded chunk to an owner's index; return how many of its messages were new.

        An index has the tick of its first chunk; `tick_ms` of the group is the coarsest one of all of them.

        Raises:
            CorruptBytes: `data` is not a whole chunk, or the owner's index cannot be read; nothing was added.
            IncompatibleChunk: it was rounded the other way; nothing was added.
            OutOfRange: `tick_ms` not in 1..2^41; nothing was added.
        """
        check_range("tick_ms", tick_ms, 1, MAX_TICK)
        member = self._members.get(owner)
        if member is None:
            member = _Member(tick_ms, 0, 0, b"", TimeBucketIndex(tick_ms))
        new = member.opened().append_chunk(data)
        member.tick_ms = max(member.tick_ms, tick_ms)
        if member.note():
            self._members[owner] = member
        return new

    def due(self, now: int) -> list[bytes]:
        """The owners of whom something is due at `now` (ms), or who were put off until then; in the order of names."""
        return sorted(owner for owner, member in self._members.items() if member.due <= now)

    def tick_ms(self, owner: bytes) -> int:
        """The coarsest tick of what an owner was given."""
        return self._members[owner].tick_ms

    def pop_due_runs(self, owner: bytes, now: int) -> Runs:
        """As `TimeBucketIndex.pop_due_runs`, of an owner's index.

        Raises:
            CorruptBytes: it cannot be read; nothing was taken.
        """
        member = self._members[owner]
        runs = member.opened().pop_due_runs(now)
        if not member.note():
            del self._members[owner]
        return runs

    def put_off(self, owner: bytes, until: int) -> None:
        """Take an owner for due at another instant (ms), whatever its index says: who cannot be read is kept so."""
        self._members[owner].due = check_range("until", until, 0, MAX_TIME)

    @property
    def next_due(self) -> int | None:
        """When `due` names somebody; None when the group is empty. O(owners)."""
        return min((member.due for member in self._members.values()), default=None)

    def __len__(self) -> int:
        """Messages pending, of all owners. O(owners)."""
        return sum(member.count for member in self._members.values())

    def to_bytes(self) -> bytes:
        """The group as bytes (`docs/format.md`, Group). O(bytes): what was not opened is copied."""
        owners = sorted(self._members)
        members = [self._members[owner] for owner in owners]
        indexes = [member.to_bytes() for member in members]
        columns = (
            [len(owner) for owner in owners],
            [member.tick_ms for member in members],
            [member.due for member in members],
            [member.count for member in members],
            [len(index) for index in indexes],
        )
        packed = (pack_column(np.array(column, np.int64)) for column in columns)
        directory = b"".join([varint(len(owners)), *packed, *owners])
        return b"".join([_HEAD.pack(VERSION, _MAGIC, len(directory), _checksum(directory)), directory, *indexes])

    @classmethod
    def from_bytes(cls, data: bytes) -> IndexGroup:
        """The group in `data`; the directory is checked, the indexes are when they are opened. O(bytes).

        Raises:
            CorruptBytes: truncated, altered, foreign, or of an unknown version.
        """
        reader = Reader(bytes(data), "group")
        version, magic, length, checksum = _HEAD.unpack(reader.take(_HEAD.size))
        if version != VERSION or magic != _MAGIC:
            raise CorruptBytes("group", f"version {version}, kind {magic!r}; known: version {VERSION}, kind {_MAGIC!r}")
        directory = Reader(reader.take(length), "group directory")
        if checksum != _checksum(directory.data):
            raise CorruptBytes("group directory", "checksum does not fit")
        count = directory.varint(length)
        names, ticks, dues, counts, sizes = (directory.column(count).tolist() for _ in range(5))
        owners = [directory.take(size) for size in names]
        directory.end()
        group = cls()
        for owner, tick, due, held, size in zip(owners, ticks, dues, counts, sizes, strict=True):
            group._members[owner] = _Member(tick, due, held, reader.take(size))
        reader.end()
        if len(group._members) != count:
            raise CorruptBytes("group directory", "an owner is named twice")
        return group


def _checksum(directory: bytes) -> int:
    return zlib.crc32(directory, zlib.crc32(bytes([VERSION])))
