"""What a pop reads of a chunk: the runs of its first blocks, and the last of these decoded, for the next pop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Self

from state.chunk import Chunk, check_seams
from state.errors import CorruptBytes
from state.heads import HEAD_BYTES, Head
from state.runs import Runs


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

    @classmethod
    def of(cls, chunk: Chunk, horizon: int, limit: int | None = None, *, loose: bool = False, room: float = 0) -> Self:
        """What is due of a chunk at `horizon` (a bucket key, ms), up to `limit` messages or more. O(rows decoded).

        `loose`: of a block of scattered messages, each is a run of its own.
        `room`: such a block is kept decoded when it is taken in part, if that takes at most so often its own bytes.
        """
        parts: list[Runs] = []
        next_key, head = chunk.first_key, chunk.head
        kept: Head | None = None
        missing, high = chunk.count if limit is None else limit, horizon >> chunk.bits
        ledgers = cache(chunk.ledgers)
        for block, skip in chunk.pending():
            if missing <= 0 or block.first_key > high:
                break
            in_part = block.last_key > high or missing < block.count - skip
            if head is None and in_part and block.loose and HEAD_BYTES * block.count <= room * len(block.payload):
                head = Head.of(chunk.decode(block, skip, ledgers())[0].apart(), skip)
            if head is None:
                runs, next_key = chunk.decode(block, skip, ledgers(), high)
                runs = runs.apart() if loose and block.loose else runs
            else:
                runs, after = head.until(skip, horizon, missing)
                next_key = block.last_key + 1 if after is None else after >> chunk.bits
            if not parts and (len(runs) == 0 or int(runs.due[0]) != chunk.first_due):
                raise CorruptBytes("chunk header", "first_key is not the key of the first message")
            parts.append(runs)
            missing -= block.count - skip
            kept, head = head, None
        check_seams(parts)
        return cls(chunk, tuple(parts), next_key, kept)

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
