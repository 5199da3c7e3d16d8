"""Slots: the shares into which the messages of a subscription are cut, so that several consumers can work on it.

The slot of a message is the CRC-32 of a few bytes, modulo the number of slots, which is fixed while a subscription
lives: where a message belongs never changes. `docs/format.md`, Slots, has the bytes; golden values are in the tests.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from enum import StrEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from state.buckets import IntArray, check_range
from state.errors import InvalidArgument

SLOTS = 64
"""Slots of a shared or key-shared subscription, unless its policy says otherwise."""
MAX_SLOTS = 1 << 12
_POSITION = struct.Struct("<qq")
_HANDED_OUT = struct.Struct("<qqq")


class SubscriptionType(StrEnum):
    """How the consumers of a subscription share it, by the reference's names."""

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"
    KEY_SHARED = "key_shared"

    @property
    def alone(self) -> bool:
        """True when one consumer has everything."""
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)

    def slots(self, wanted: int = SLOTS) -> int:
        """Slots of such a subscription whose policy asks for `wanted`: 1 when one consumer has everything.

        Raises:
            OutOfRange: `wanted` not in 1..4096.
        """
        check_range("slots", wanted, 1, MAX_SLOTS)
        return 1 if self.alone else wanted


def slot_of_key(key: str, slots: int) -> int:
    """Slot of a message of a key-shared subscription that has an ordering key, or else a key: of its UTF-8."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % slots


def slot_of_position(ledger_id: int, entry_id: int, slots: int) -> int:
    """Slot of a message of a key-shared subscription without any key: the same in every round."""
    return zlib.crc32(_POSITION.pack(ledger_id, entry_id)) % slots


def slot_of_round(ledger_id: int, entry_id: int, redelivery_round: int, slots: int) -> int:
    """Slot of a message of a shared subscription: another one in each round, so that a retry moves on."""
    return zlib.crc32(_HANDED_OUT.pack(ledger_id, entry_id, redelivery_round)) % slots


def slots_of_positions(ledger_ids: IntArray, entry_ids: IntArray, slots: int) -> IntArray:
    """`slot_of_position` of each, shape (n,). O(n).

    Raises:
        InvalidArgument: the arrays differ in length.
    """
    return _slots((ledger_ids, entry_ids), slots)


def slots_of_rounds(ledger_ids: IntArray, entry_ids: IntArray, rounds: IntArray, slots: int) -> IntArray:
    """`slot_of_round` of each, shape (n,). O(n).

    Raises:
        InvalidArgument: the arrays differ in length.
    """
    return _slots((ledger_ids, entry_ids, rounds), slots)


def slots_of_keys(keys: Sequence[str | None], ledger_ids: IntArray, entry_ids: IntArray, slots: int) -> IntArray:
    """Slots of messages of a key-shared subscription, shape (n,): by key, and by position where there is none. O(n).

    Args:
        keys: ordering key, or else key, or None; length n. An empty key is a key.
        ledger_ids: shape (n,).
        entry_ids: shape (n,).
        slots: how many there are.

    Raises:
        InvalidArgument: they differ in length.
    """
    if len(keys) != len(ledger_ids) or len(keys) != len(entry_ids):
        raise InvalidArgument("keys", len(keys), f"as many as ledger_ids, {len(ledger_ids)}, and entry_ids")
    slot = {key: slot_of_key(key, slots) for key in set(keys) if key is not None}
    found = np.fromiter((-1 if key is None else slot[key] for key in keys), np.int64, len(keys))
    without = np.flatnonzero(found < 0)
    found[without] = slots_of_positions(ledger_ids[without], entry_ids[without], slots)
    return found


@cache
def _tables(size: int) -> tuple[int, npt.NDArray[np.uint32]]:
    """CRC-32 of `size` zero bytes, and what it changes by for each value of each byte, shape (size, 256).

    A CRC of a fixed length is linear: the changes of the single bytes are combined by exclusive or.
    """
    zeros = zlib.crc32(bytes(size))
    changes = [
        [zlib.crc32(bytes(at) + bytes([value]) + bytes(size - at - 1)) ^ zeros for value in range(256)]
        for at in range(size)
    ]
    return zeros, np.array(changes, np.uint32)


def _slots(columns: tuple[IntArray, ...], slots: int) -> IntArray:
    """CRC-32 of each row of the columns, eight little-endian bytes each, modulo `slots`; byte by byte of all rows."""
    if len({len(column) for column in columns}) != 1:
        raise InvalidArgument("columns", [len(column) for column in columns], "arrays of one length")
    zeros, changes = _tables(8 * len(columns))
    checksums = np.full(len(columns[0]), zeros, np.uint32)
    for number, column in enumerate(columns):
        planes = np.ascontiguousarray(np.ascontiguousarray(column, dtype="<i8").view(np.uint8).reshape(-1, 8).T)
        for byte in range(8):
            if planes[byte].any():  # A byte that is 0 changes nothing, and most high bytes are.
                checksums ^= changes[8 * number + byte].take(planes[byte])
    return (checksums % np.uint32(slots)).astype(np.int64)
