"""Slots: where a message belongs never changes, and arrays say the same as single messages."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import (
    InvalidArgument,
    OutOfRange,
    SubscriptionType,
    slot_of_key,
    slot_of_position,
    slot_of_round,
    slots_of_keys,
    slots_of_positions,
    slots_of_rounds,
)

LEDGERS = st.integers(0, 2**62)
ENTRIES = st.integers(0, 2**31 - 1)
KEYS = st.one_of(st.none(), st.text(max_size=8))


@pytest.mark.parametrize(("key", "slot"), [("", 0), ("a", 3), ("order-1", 47), ("заказ", 52), ("\U0001f600", 4)])
def test_a_key_has_the_slot_that_it_always_had(key: str, slot: int) -> None:
    """Golden values: a consumer of another version finds the same messages in its slots."""
    assert slot_of_key(key, 64) == slot


@pytest.mark.parametrize(("position", "slot"), [((0, 0), 21), ((1, 2), 57), ((2**62, 2**31 - 1), 22)])
def test_a_position_has_the_slot_that_it_always_had(position: tuple[int, int], slot: int) -> None:
    """Golden values of messages without a key."""
    assert slot_of_position(*position, 64) == slot


@pytest.mark.parametrize(
    ("round_of", "slot"), [((0, 0, 0), 32), ((1, 2, 0), 36), ((1, 2, 1), 58), ((2**62, 2**31 - 1, 7), 48)]
)
def test_a_round_has_the_slot_that_it_always_had(round_of: tuple[int, int, int], slot: int) -> None:
    """Golden values of a shared subscription; the second round of a message is somebody else's work."""
    assert slot_of_round(*round_of, 64) == slot


def test_the_bytes_are_those_of_the_document() -> None:
    """UTF-8 of the key; ledger, entry and round as signed little-endian integers of eight bytes."""
    position = (258).to_bytes(8, "little") + (3).to_bytes(8, "little")
    assert slot_of_key("ключ", 4096) == zlib.crc32("ключ".encode()) % 4096
    assert slot_of_key("\ud800", 4096) == zlib.crc32(b"\xed\xa0\x80") % 4096, "half of a pair, as three bytes"
    assert slot_of_position(258, 3, 4096) == zlib.crc32(position) % 4096
    assert slot_of_round(258, 3, 5, 4096) == zlib.crc32(position + (5).to_bytes(8, "little")) % 4096


@given(
    st.lists(st.tuples(KEYS, LEDGERS, ENTRIES, st.integers(0, 1000)), max_size=20), st.sampled_from([1, 7, 64, 4096])
)
def test_arrays_give_the_slots_of_single_messages(messages: list[tuple[str | None, int, int, int]], slots: int) -> None:
    """Whatever is mixed: with a key, with an empty one, without any."""
    keys = [key for key, *_ in messages]
    ledgers, entries, rounds = (np.array([m[column] for m in messages], np.int64) for column in (1, 2, 3))
    by_position = [slot_of_position(ledger, entry, slots) for _, ledger, entry, _ in messages]
    by_key = [at if key is None else slot_of_key(key, slots) for key, at in zip(keys, by_position, strict=True)]
    assert slots_of_positions(ledgers, entries, slots).tolist() == by_position
    assert slots_of_keys(keys, ledgers, entries, slots).tolist() == by_key
    assert slots_of_rounds(ledgers, entries, rounds, slots).tolist() == [
        slot_of_round(ledger, entry, number, slots) for _, ledger, entry, number in messages
    ]


def test_messages_without_a_key_spread_over_all_slots() -> None:
    """No slot has a tenth more or less than its share of two ledgers that follow each other."""
    numbers = np.arange(100_000)
    counts = np.bincount(slots_of_positions(numbers // 50_000, numbers % 50_000, 64), minlength=64)
    assert 0.9 * 100_000 / 64 < counts.min() <= counts.max() < 1.1 * 100_000 / 64


def test_one_slot_for_who_works_alone_and_those_of_the_policy_for_others() -> None:
    """Exclusive and failover have one, whatever is asked for."""
    assert [kind.slots() for kind in SubscriptionType] == [1, 1, 64, 64]
    assert SubscriptionType("key_shared").slots(256) == 256


@pytest.mark.parametrize("slots", [0, -1, 4097])
def test_a_number_of_slots_outside_its_range_is_refused(slots: int) -> None:
    """1 to 4096, also for a type that has one only."""
    for kind in SubscriptionType:
        with pytest.raises(OutOfRange) as caught:
            kind.slots(slots)
        assert (caught.value.field, caught.value.value, caught.value.high) == ("slots", slots, 4096)


def test_arrays_of_different_lengths_are_refused() -> None:
    """A key too many would move all messages behind it."""
    two, three = np.arange(2), np.arange(3)
    with pytest.raises(InvalidArgument):
        slots_of_keys(["a"], two, two, 64)
    with pytest.raises(InvalidArgument):
        slots_of_keys(["a", "b"], two, three, 64)
    with pytest.raises(InvalidArgument):
        slots_of_positions(two, three, 64)
