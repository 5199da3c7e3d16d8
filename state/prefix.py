"""What a pop reads of a chunk: the runs of its first blocks, and the last of these decoded, for the next pop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import getsizeof
from typing import TYPE_CHECKING, Self

import numpy as np

from state.buckets import IntArray
from state.runs import Packing, Runs

if TYPE_CHECKING:
    from state.chunk import Chunk

HEAD_BYTES = 8
"""Bytes that a message of a head takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A block that is taken in part, decoded: pops that follow each other closely need not decode it again.

    Attributes:
        skip: messages of the block that are not in `packed`, because they were gone before.
        packing: how its messages are packed.
        packed: its messages from there on, ordered, shape (n,).
    """

    skip: int
    packing: Packing
    packed: IntArray

    @classmethod
    def of(cls, messages: Runs, skip: int) -> Self | None:
        """The head of these messages of a block, a run each; None where they cannot be packed. O(n)."""
        packing = Packing.of([messages]) if len(messages) else None
        if packing is None:
            return None
        packed = np.empty(len(messages), dtype=np.int64)
        packing.pack(messages, packed)
        return cls(skip, packing, packed)

    @property
    def nbytes(self) -> int:
        """Live bytes, about."""
        return getsizeof(self) + self.packed.nbytes

    def until(self, skip: int, due: int, limit: int) -> tuple[Runs, int | None]:
        """Up to `limit` messages behind the first `skip` of the block, `due` until then, and the time of the next one.

        O(messages that it gives).
        """
        first = skip - self.skip
        last = max(first, min(self.packing.rows_until(self.packed, due), first + limit))
        after = None if last == len(self.packed) else self.packing.due(int(self.packed[last]))
        return self.packing.unpack(self.packed[first:last].copy()), after


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The decoded front of a chunk.

    Attributes:
        chunk: the chunk.
        parts: the due runs of its first blocks.
        next_key: the key that follows, where the last of these blocks is not due to its end.
        head: the last of these blocks, where it is kept decoded.
    """

    chunk: Chunk
    parts: tuple[Runs, ...]
    next_key: int
    head: Head | None = None

    @property
    def messages(self) -> int:
        """Messages that are due. O(rows)."""
        return sum(part.messages for part in self.parts)

    def until(self, head: Runs) -> int:
        """Messages that are due and not behind the last one of `head`, the beginning of an order. O(rows)."""
        if len(head) == 0:
            return 0
        last = int(head.due[-1]), int(head.ledger_ids[-1]), int(head.last_entries[-1])
        return sum(part.until(*last) for part in self.parts)

    def rest(self, taken: int) -> Chunk | None:
        """The chunk without its first `taken` messages, all in `parts`; None when nothing is left. O(blocks)."""
        chunk, gone, skip = self.chunk, taken, self.chunk.skip
        if taken == 0:
            return chunk
        for i, runs in enumerate(self.parts):
            if gone < (messages := chunk.blocks[i].count - skip):
                key = runs.due_at(gone)
                first_key = self.next_key if key is None else key >> chunk.bits
                skip, left = skip + gone, chunk.count - taken
                head = self.head if i == len(self.parts) - 1 else None
                blocks = chunk.blocks[i:]
                return replace(chunk, blocks=blocks, skip=skip, first_key=first_key, count=left, head=head)
            gone, skip = gone - messages, 0
        blocks = chunk.blocks[len(self.parts) :]
        if not blocks:
            return None
        left = chunk.count - taken
        return replace(chunk, blocks=blocks, skip=0, first_key=blocks[0].first_key, count=left, head=None)
