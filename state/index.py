"""The TimeBucket index: pending positions by due time."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from sys import getsizeof

import numpy as np
import numpy.typing as npt

from state.buckets import MAX_TICK, MAX_TIME, DueRule, check_range
from state.chunk import Chunk, chunk_of_arrays, chunk_of_runs
from state.columns import Reader, varint
from state.errors import CorruptBytes, IncompatibleChunk, OutOfRange
from state.prefix import Prefix
from state.runs import MAX_ENTRY, MAX_LEDGER, Due, Runs, check_arrays

VERSION = 1
_MAGIC = b"I"
_HEAD = struct.Struct("<B1sBII")
"""version, magic, strict, length of the header body, CRC-32 of strict and body."""
MAX_CHUNKS = 32
"""Chunks an index keeps by default: a pop opens each that is due, an append merges when there are more."""
SEAL_AT = 16_384
"""Single messages that are collected before they become a chunk."""
_MAX_SMALL = 8
"""Chunks of a single block that are kept apart: a pop opens each, and merging them costs about as much as one pop."""
_OPEN_BYTES = 72 + 3 * 32
"""A tuple of three ints in the set of single messages."""
HEADS_SHARE = 1 / 8
"""What blocks that pops keep decoded may take of the bytes of an index: each takes three to five times its own."""
_NEVER = MAX_TIME << 1
"""Above every key: the latest time, rounded up to the widest bucket."""


class TimeBucketIndex:
    """Positions (ledger, entry) under the bucket in which they become due, kept as immutable encoded chunks.

    A position is identified by its bucket and itself: twice in one bucket counts once while it is pending, in two
    buckets it is pending twice. Chunks of finer or coarser ticks may be appended: they are read at multiples of this
    index's own width without being encoded again, because rounding up nests. What is pending in
    one index lies in at most 2^22 ledgers: merging more raises `OutOfRange` and changes nothing. Complexities below
    count rows r (runs of neighbouring entries in one bucket) and chunks c.

    Attributes:
        rule: the tick and whether it is strict.
        max_chunks: when more chunks than this are held, the smallest half is merged.
    """

    def __init__(self, tick_ms: int = 1000, strict: bool = True, max_chunks: int = MAX_CHUNKS) -> None:  # noqa: FBT001, FBT002 - the published signature
        """An empty index.

        Raises:
            OutOfRange: `tick_ms` not in 1..2^41, or `max_chunks` not in 1..2^20.
        """
        self.rule = DueRule(tick_ms, strict)
        self.max_chunks = check_range("max_chunks", max_chunks, 1, 1 << 20)
        self._chunks: list[Chunk] = []
        self._open: set[tuple[int, int, int]] = set()
        self._open_first = _NEVER
        self._popped = False

    # ---- adding

    def add(self, ledger_ids: npt.ArrayLike, entry_ids: npt.ArrayLike, deliver_ats: npt.ArrayLike) -> int:
        """Add messages; return how many were new. O(n log n), plus the blocks of older chunks whose ranges overlap.

        Args:
            ledger_ids: 0..2^62, shape (n,), any order.
            entry_ids: 0..2^31-1, shape (n,).
            deliver_ats: ms since the epoch, UTC, 1970..9999, shape (n,).

        Raises:
            InvalidArgument: arrays that are not integers or not of one length; nothing was added.
            OutOfRange: a value outside its range; nothing was added.
        """
        ledgers, entries, times = check_arrays(ledger_ids, entry_ids, deliver_ats)
        if len(times) == 0:
            return 0
        self.seal()
        bits = self.rule.bits
        keys = self.rule.key(times) >> bits
        return self._append(chunk_of_arrays(ledgers, entries, keys, bits, strict=self.rule.strict))

    def add_one(self, ledger_id: int, entry_id: int, deliver_at: int) -> bool:
        """Add one message; False when it was pending already. O(c) while entries grow, else a block is decoded.

        Raises:
            OutOfRange: a value outside its range; nothing was added.
        """
        key = self.rule.key(check_range("deliver_at", deliver_at, 0, MAX_TIME))
        ledger = check_range("ledger_id", ledger_id, 0, MAX_LEDGER)
        entry = check_range("entry_id", entry_id, 0, MAX_ENTRY)
        position = (key, ledger, entry)
        if position in self._open or any(self._holds(chunk, *position) for chunk in self._chunks):
            return False
        if len(self._open) >= SEAL_AT:
            self.seal()
        self._open.add(position)
        self._open_first = min(self._open_first, key)
        return True

    def append_chunk(self, data: bytes) -> int:
        """Add an encoded chunk; return how many of its messages were new.

        O(bytes of this chunk) while its ranges of time, ledgers and entries overlap no other chunk's. Else the
        overlapping blocks are decoded to know; so is a chunk of a finer tick, where two buckets may be one here.

        Raises:
            CorruptBytes: `data` is not a whole chunk; nothing was added.
            IncompatibleChunk: it was rounded the other way, or, in a tolerant index, at another tick.
        """
        chunk = Chunk.from_bytes(data)
        if chunk.strict != self.rule.strict:
            raise IncompatibleChunk("strict", chunk.strict, self.rule.strict)
        if not chunk.strict and chunk.bits != self.rule.bits:
            raise IncompatibleChunk("bits", chunk.bits, self.rule.bits)
        if chunk.count == 0:
            return 0
        self.seal()
        return self._append(chunk)

    def seal(self) -> None:
        """Turn the messages that came one by one into a chunk. O(n log n) of those."""
        if not self._open:
            return
        keys, ledgers, entries = np.asarray(list(self._open), dtype=np.int64).T.copy()
        bits = self.rule.bits
        self._place([*self._chunks, chunk_of_arrays(ledgers, entries, keys >> bits, bits, strict=self.rule.strict)])
        self._open, self._open_first = set(), _NEVER

    def compact(self, max_chunks: int = 1) -> None:
        """Merge the smallest chunks until at most `max_chunks` are left. O(r log r) of what is merged.

        Raises:
            OutOfRange: `max_chunks` is not positive.
        """
        check_range("max_chunks", max_chunks, 1, 1 << 20)
        self.seal()
        self._chunks = self._merged(self._chunks, len(self._chunks) - max_chunks + 1)

    def _append(self, chunk: Chunk) -> int:
        chunk_or_less = self._without_known(chunk)
        if chunk_or_less is None:
            return 0
        self._place([*self._chunks, chunk_or_less])
        return chunk_or_less.count

    def _without_known(self, chunk: Chunk) -> Chunk | None:
        """The chunk less what is pending already; the same object when that is nothing."""
        first, last = self.rule.key(chunk.first_due), self.rule.key(chunk.last_due)
        others = [old for old in self._chunks if self._meets(old, first, last) and old.shares_positions(chunk)]
        if not others and chunk.bits >= self.rule.bits:
            return chunk
        new = self._read(chunk, first, last).united()
        for old in others:
            new = new.without(self._read(old, first, last))
        if new.messages == chunk.count:
            return chunk
        return chunk_of_runs(new, self.rule.bits, strict=chunk.strict) if len(new) else None

    def _meets(self, chunk: Chunk, first: int, last: int) -> bool:
        """True when the chunk has blocks in the buckets `first..last` of this index."""
        return self.rule.key(chunk.first_due) <= last and first <= self.rule.key(chunk.last_due)

    def _read(self, chunk: Chunk, first: int = 0, last: int = _NEVER) -> Runs:
        """The chunk's runs under this index's own keys, from the blocks that meet the buckets `first..last`."""
        runs = chunk.runs(first - (1 << self.rule.bits) + 1, last)
        return self._keyed(chunk, runs)

    def _keyed(self, chunk: Chunk, runs: Runs) -> Runs:
        if chunk.bits >= self.rule.bits:
            return runs
        return replace(runs, due=self.rule.key(runs.due))

    def _holds(self, chunk: Chunk, key: int, ledger: int, entry: int) -> bool:
        if not (self._meets(chunk, key, key) and chunk.may_hold(ledger, entry)):
            return False
        runs = self._read(chunk, key, key)
        cell = (runs.due == key) & (runs.ledger_ids == ledger)
        return bool((cell & (runs.first_entries <= entry) & (entry <= runs.last_entries)).any())

    def _place(self, chunks: list[Chunk]) -> None:
        """Hold these chunks. Too many small ones become one; too many in all, and the smallest half becomes one.

        So a message is merged O(log n) times once its chunk has more than one block.
        """
        small = sum(len(chunk.blocks) == 1 for chunk in chunks)
        if small > min(_MAX_SMALL, self.max_chunks):
            chunks = self._merged(chunks, small)
        while len(chunks) > self.max_chunks:
            chunks = self._merged(chunks, max(2, (self.max_chunks + 1) // 2 + 1))
        self._chunks = chunks

    def _merged(self, chunks: list[Chunk], number: int) -> list[Chunk]:
        """The chunks with the `number` smallest made one."""
        if number < 2:
            return chunks
        by_size = sorted(chunks, key=lambda chunk: (len(chunk.blocks), chunk.nbytes))
        runs = Runs.concat([self._read(chunk) for chunk in by_size[:number]])
        bits = max(self.rule.bits, min(chunk.bits for chunk in by_size[:number]))
        return [*by_size[number:], chunk_of_runs(runs, bits, strict=self.rule.strict)]

    # ---- taking out

    def pop_due(self, now: int, limit: int | None = None) -> Due:
        """Take out everything with a bucket key <= now (strict), or its first `limit` messages.

        O(r log r) of the rows taken, plus at most one block of each chunk that is due; what stays is not read. From
        the second pop on, blocks that are taken in part stay decoded while that costs an eighth of the bytes at most.

        Raises:
            OutOfRange: a negative `limit`.
        """
        if limit is not None:
            check_range("limit", limit, 0, MAX_LEDGER)
        return self._pop(now, limit, loose=True).expanded()

    def pop_due_runs(self, now: int) -> Runs:
        """The same as `pop_due` as runs, neighbours joined. O(r log r) of the rows taken."""
        return self._pop(now, None, loose=False).joined()

    def _pop(self, now: int, limit: int | None, *, loose: bool) -> Runs:
        """What is due, in order; `loose`: scattered messages may come as a run each, also where two stand together."""
        horizon = self.rule.horizon(now)
        if self._open_first <= horizon:
            self.seal()
        if limit is not None:
            self._coarsen(horizon)
        due = [i for i, chunk in enumerate(self._chunks) if chunk.first_due <= horizon]
        # Nothing at the first pop: who reads an index from bytes for each pop has no use for decoded blocks.
        room = self._room() / max(1, len(due)) if self._popped else 0
        prefixes = [Prefix.of(self._chunks[i], horizon, limit, loose=loose, room=room) for i in due]
        runs = self._together(prefixes)
        taken = [prefix.messages for prefix in prefixes]
        if limit is not None and limit < sum(taken):
            runs, _ = runs.split(limit)
            taken = [prefix.until(runs) for prefix in prefixes]
        chunks: list[Chunk | None] = list(self._chunks)
        for i, prefix, number in zip(due, prefixes, taken, strict=True):
            chunks[i] = prefix.rest(number)
        self._chunks, self._popped = [chunk for chunk in chunks if chunk is not None], True
        if self._room() < 0:
            self._chunks = [replace(chunk, head=None) for chunk in self._chunks]
        return runs

    def _room(self) -> float:
        """What more decoded blocks may take, in bytes of a block each; below 0 when they take more than their share."""
        taken = sum(chunk.head.nbytes / len(chunk.blocks[0].payload) for chunk in self._chunks if chunk.head)
        return HEADS_SHARE * sum(len(chunk.blocks) for chunk in self._chunks) - taken

    def _together(self, prefixes: list[Prefix]) -> Runs:
        """What is due of some chunks, in the order of this index."""
        parts = [self._keyed(prefix.chunk, part) for prefix in prefixes for part in prefix.parts]
        if len(prefixes) == 1 and prefixes[0].chunk.bits >= self.rule.bits:
            return Runs.concat(parts)
        return Runs.merged(parts)

    def _coarsen(self, horizon: int) -> None:
        """Encode what is due of finer chunks at this index's width, so that a part of it is a prefix in its order."""
        finer = [c for c in self._chunks if c.bits < self.rule.bits and c.first_due <= horizon]
        if not finer:
            return
        chunks = [chunk for chunk in self._chunks if chunk not in finer]
        for chunk in finer:
            prefix = Prefix.of(chunk, horizon)
            rest = prefix.rest(prefix.messages)
            coarse = chunk_of_runs(self._together([prefix]), self.rule.bits, strict=True)
            chunks += [coarse] if rest is None else [coarse, rest]
        self._place(chunks)

    def clear(self) -> None:
        """Forget everything. O(1)."""
        self._chunks, self._open, self._open_first = [], set(), _NEVER

    # ---- looking

    @property
    def next_due(self) -> int | None:
        """The first instant (ms) at which a pop would return something; None when nothing is pending. O(c)."""
        key = min([chunk.first_due for chunk in self._chunks] + [self._open_first])
        return None if key == _NEVER else self.rule.deadline(key)

    def __len__(self) -> int:
        """Messages pending. O(c)."""
        return sum(chunk.count for chunk in self._chunks) + len(self._open)

    def counts(self, width_ms: int) -> dict[int, int]:
        """Histogram of what is pending: start of the bar (ms, a multiple of `width_ms`) -> messages, ascending.

        A message falls into the bar of its bucket key. O(blocks), and O(rows) of the blocks that meet several bars.

        Raises:
            OutOfRange: `width_ms` is not positive.
        """
        check_range("width_ms", width_ms, 1, MAX_TIME)
        self.seal()
        bars: dict[int, int] = {}
        for chunk in self._chunks:
            ledgers = chunk.ledgers()
            for block, skip in chunk.pending():
                first = self.rule.key(block.first_key << chunk.bits) // width_ms
                if first == self.rule.key(block.last_key << chunk.bits) // width_ms:
                    bars[first] = bars.get(first, 0) + block.count - skip
                else:
                    _count(bars, self._keyed(chunk, chunk.decode(block, skip, ledgers)[0]), width_ms)
        return {bar * width_ms: bars[bar] for bar in sorted(bars)}

    @property
    def nbytes(self) -> int:
        """Live bytes: encoded blocks, their directories, and the messages that came one by one. O(blocks)."""
        objects = getsizeof(self._chunks) + getsizeof(self._open) + len(self._open) * _OPEN_BYTES
        return objects + sum(chunk.nbytes for chunk in self._chunks)

    @property
    def chunks(self) -> int:
        """Number of chunks held, without the messages that came one by one. O(1)."""
        return len(self._chunks)

    # ---- keeping

    def to_bytes(self) -> bytes:
        """The whole index as bytes (`docs/format.md`, Index). O(bytes): blocks are copied, not encoded again."""
        self.seal()
        chunks = [chunk.to_bytes() for chunk in self._chunks]
        numbers = [self.rule.tick_ms, self.max_chunks, len(chunks), *(len(chunk) for chunk in chunks)]
        body = b"".join(varint(number) for number in numbers)
        head = _HEAD.pack(VERSION, _MAGIC, self.rule.strict, len(body), _checksum(self.rule.strict, body))
        return b"".join([head, body, *chunks])

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeBucketIndex:
        """The index in `data`; every checksum is verified, nothing is decoded. O(bytes).

        Raises:
            CorruptBytes: truncated, altered, foreign, or of an unknown version.
        """
        reader = Reader(bytes(data), "index")
        version, magic, strict, length, checksum = _HEAD.unpack(reader.take(_HEAD.size))
        if version != VERSION or magic != _MAGIC:
            raise CorruptBytes("index", f"version {version}, kind {magic!r}; known: version {VERSION}, kind {_MAGIC!r}")
        body = Reader(reader.take(length), "index header")
        if checksum != _checksum(strict, body.data) or strict > 1:
            raise CorruptBytes("index header", "checksum or settings do not fit")
        try:
            index = cls(body.varint(MAX_TICK), bool(strict), body.varint(1 << 20))
        except OutOfRange as error:
            raise CorruptBytes("index header", str(error)) from error
        sizes = [body.varint(len(data)) for _ in range(body.varint(len(data)))]
        body.end()
        index._chunks = [Chunk.from_bytes(reader.take(size)) for size in sizes]
        reader.end()
        index._check_settings()
        return index

    def check_invariants(self) -> None:
        """Decode everything and check what must always hold. O(r log r). For tests and for suspicion.

        Raises:
            CorruptBytes: a chunk is not what its directory says, or a position is held twice in a bucket.
        """
        self._check_settings()
        for chunk in self._chunks:
            chunk.check_invariants()
        runs = Runs.concat([self._read(chunk) for chunk in self._chunks]).sorted()
        if runs.overlap() or runs.messages + len(self._open) != len(self):
            raise CorruptBytes("index", "a position is pending twice in one bucket, or the count is off")
        if min((key for key, _, _ in self._open), default=_NEVER) != self._open_first:
            raise CorruptBytes("index", "the earliest of the open messages is off")

    def _check_settings(self) -> None:
        if len(self._chunks) > self.max_chunks:
            raise CorruptBytes("index", f"{len(self._chunks)} chunks where {self.max_chunks} are allowed")
        for chunk in self._chunks:
            if chunk.strict != self.rule.strict or not (chunk.strict or chunk.bits == self.rule.bits):
                raise CorruptBytes("index", "a chunk follows another due rule")
            if not chunk.blocks:
                raise CorruptBytes("index", "a chunk is empty")


def _checksum(strict: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(bytes([VERSION, strict])))


def _count(bars: dict[int, int], runs: Runs, width_ms: int) -> None:
    """Add the messages of ordered runs to their bars."""
    numbers, heads = np.unique(runs.due // width_ms, return_index=True)
    for bar, count in zip(numbers.tolist(), np.add.reduceat(runs.counts, heads).tolist(), strict=True):
        bars[bar] = bars.get(bar, 0) + count
