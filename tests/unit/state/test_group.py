"""Indexes of many owners as one value: as if each had been kept by itself, and nobody is read who is not touched."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state import CorruptBytes, DelaylineError, IndexGroup, OutOfRange, Runs, TimeBucketIndex, encode_chunk
from tests.golden.make import GROUP, MEMBERS
from tests.support.format_reader import MessageRun, joined, read_group
from tests.support.golden import FOREVER, load

TICK = 8
Position = tuple[int, int, int]


def chunk(*positions: Position) -> bytes:
    """(ledger, entry, due), encoded."""
    ledgers, entries, due = (np.array(column, np.int64) for column in zip(*positions, strict=True))
    return encode_chunk(ledgers, entries, due, TICK)


def runs_in(runs: Runs) -> list[MessageRun]:
    """(due, ledger, first, last) of each run."""
    columns = (runs.due, runs.ledger_ids, runs.first_entries, runs.last_entries)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def popped(group: IndexGroup, now: int) -> dict[bytes, list[MessageRun]]:
    """All that is due, by owner."""
    return {owner: runs_in(group.pop_due_runs(owner, now)) for owner in group.due(now)}


OWNERS = st.sampled_from([b"", b"a", b"b", b'["t", "s", 1]', bytes(range(256))])
POSITIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 200)), min_size=1, max_size=6)
STEPS = st.lists(st.one_of(st.tuples(OWNERS, POSITIONS), st.integers(0, 260)), max_size=20)


@given(STEPS)
def test_each_owner_gets_what_an_index_of_its_own_would_give(steps: list[tuple[bytes, list[Position]] | int]) -> None:
    """Also when the group is written and read again between any two steps."""
    group, alone = IndexGroup(), dict[bytes, TimeBucketIndex]()
    for step in steps:
        if isinstance(step, int):
            wanted = {owner: runs_in(runs) for owner, index in alone.items() if len(runs := index.pop_due_runs(step))}
            assert popped(group, step) == wanted
        else:
            owner, positions = step
            data = chunk(*positions)
            index = alone.setdefault(owner, TimeBucketIndex(TICK))
            assert group.append_chunk(owner, TICK, data) == index.append_chunk(data)
        assert len(group) == sum(len(index) for index in alone.values())
        assert group.next_due == min((d for index in alone.values() if (d := index.next_due) is not None), default=None)
        written = group.to_bytes()
        read = read_group(written)
        assert {owner: (each.due, each.count) for owner, each in read.items()} == {
            owner: (index.next_due, len(index)) for owner, index in alone.items() if len(index)
        }
        group = IndexGroup.from_bytes(written)
        assert group.to_bytes() == written


def test_a_golden_group_is_read_as_it_was_written() -> None:
    """A restart after an upgrade finds what was pending for each owner; so does a reader written from the document."""
    golden, data = {each.name: each for each in load()}, GROUP.read_bytes()
    wanted = {owner: joined([run for name in names for run in golden[name].runs]) for owner, names in MEMBERS.items()}
    group = IndexGroup.from_bytes(data)
    found = popped(group, FOREVER)
    assert {owner: joined(runs) for owner, runs in found.items()} == wanted
    assert {owner: joined(member.index.runs) for owner, member in read_group(data).items()} == wanted


def test_an_owner_who_is_not_touched_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of owners in a value, what a batch costs is what it touches."""
    group = IndexGroup()
    for number in range(50):
        group.append_chunk(b"%d" % number, TICK, chunk((1, number, 8 * number)))
    data, read = group.to_bytes(), list[bytes]()
    inner = TimeBucketIndex.from_bytes

    def noted(data: bytes) -> TimeBucketIndex:
        read.append(data)
        return inner(data)

    monkeypatch.setattr(TimeBucketIndex, "from_bytes", noted)
    again = IndexGroup.from_bytes(data)
    assert again.to_bytes() == data
    assert read == []
    assert list(popped(again, 16)) == [b"0", b"1", b"2"]
    again.append_chunk(b"7", TICK, chunk((1, 1, 900)))
    assert len(read) == 4
    assert len(again) == 48


def test_the_coarsest_tick_of_an_owner_is_kept() -> None:
    """Messages of a bucket lie as far apart as the coarsest tick that any chunk of it was meant for."""
    group = IndexGroup()
    for tick in (8, 64, 16):
        group.append_chunk(b"a", tick, chunk((1, tick, 100)))
    assert IndexGroup.from_bytes(group.to_bytes()).tick_ms(b"a") == 64


@pytest.mark.parametrize(("tick", "data"), [(TICK, b"rotten"), (0, chunk((1, 1, 1)))])
def test_what_is_refused_changes_nothing(tick: int, data: bytes) -> None:
    """A new owner is not there afterwards, one who was there is as before."""
    group = IndexGroup()
    group.append_chunk(b"a", TICK, chunk((1, 1, 8)))
    before = group.to_bytes()
    for owner in (b"a", b"new"):
        with pytest.raises(DelaylineError):
            group.append_chunk(owner, tick, data)
    assert group.to_bytes() == before


def test_who_cannot_be_read_is_put_off_and_kept() -> None:
    """Its bytes stay as they are, its neighbours go on."""
    group = IndexGroup()
    group.append_chunk(b"a", TICK, chunk((1, 1, 8)))
    group.append_chunk(b"z", TICK, chunk((1, 2, 8)))
    data = group.to_bytes()
    rotten = IndexGroup.from_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))
    assert rotten.due(8) == [b"a", b"z"]
    rotten.pop_due_runs(b"a", 8)
    with pytest.raises(CorruptBytes):
        rotten.pop_due_runs(b"z", 8)
    rotten.put_off(b"z", 1_000)
    kept = IndexGroup.from_bytes(rotten.to_bytes())
    assert (kept.due(999), kept.due(1_000), kept.next_due, len(kept)) == ([], [b"z"], 1_000, 1)
    assert kept.to_bytes()[-8:] == data[-9:-1][1:] + bytes([data[-1] ^ 0xFF])


@pytest.mark.parametrize("until", [-1, 1 << 60])
def test_nobody_is_put_off_beyond_the_calendar(until: int) -> None:
    """The instant becomes an alarm of Spark's."""
    group = IndexGroup()
    group.append_chunk(b"a", TICK, chunk((1, 1, 8)))
    with pytest.raises(OutOfRange):
        group.put_off(b"a", until)


HARM: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: data[:0],
    "cut": lambda data: data[:-1],
    "more": lambda data: data + b"\0",
    "version": lambda data: b"\2" + data[1:],
    "kind": lambda data: data[:1] + b"I" + data[2:],
    "directory": lambda data: data[:12] + bytes([data[12] ^ 1]) + data[13:],
    "an index": lambda data: TimeBucketIndex(len(data)).to_bytes(),
}


@pytest.mark.parametrize("what", HARM)
def test_bytes_that_are_no_group_are_refused(what: str) -> None:
    """Nothing is read from them: a group that lost an owner would lose messages without a word."""
    group = IndexGroup()
    group.append_chunk(b"a", TICK, chunk((1, 1, 8), (1, 2, 80)))
    with pytest.raises(CorruptBytes):
        IndexGroup.from_bytes(HARM[what](group.to_bytes()))
