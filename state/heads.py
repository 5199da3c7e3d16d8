"""The last block that a pop has read of a chunk, decoded, for the next pop."""

from __future__ import annotations

from dataclasses import dataclass
from sys import getsizeof
from typing import Self

import numpy as np

from state.buckets import IntArray
from state.runs import Packing, Runs

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
