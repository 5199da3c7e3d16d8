"""TimeBucketIndex by example: what comes out, in which order, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from state import (
    CorruptBytes,
    IncompatibleChunk,
    InvalidArgument,
    OutOfRange,
    TimeBucketIndex,
    encode_chunk,
)
from state.blocks import Block, decode_block
from state.ledgers import LedgerTable
from tests.support.index_examples import FOREVER, LAST_ENTRY, MakeIndex, Triple, batch, quads, triples

# ---- order and runs


def test_a_pop_is_ordered_by_bucket_then_ledger_then_entry(make_index: MakeIndex) -> None:
    """Across calls and within them, whatever the order of arrival."""
    index = make_index(1)
    index.add([2, 1, 1], [5, 9, 3], [20, 20, 30])
    index.add([1, 7, 1], [2, 1, 4], [30, 10, 20])
    index.add_one(1, 1, 30)
    assert triples(index.pop_due(30)) == [
        (10, 7, 1),
        (20, 1, 4),
        (20, 1, 9),
        (20, 2, 5),
        (30, 1, 1),
        (30, 1, 2),
        (30, 1, 3),
    ]


def test_within_a_bucket_the_exact_time_does_not_matter(make_index: MakeIndex) -> None:
    """Times of one bucket are one due time, so the order is by position."""
    index = make_index(1000)
    index.add([1, 1, 1], [3, 2, 1], [600, 700, 800])
    assert triples(index.pop_due(1024)) == [(1024, 1, 1), (1024, 1, 2), (1024, 1, 3)]


@pytest.mark.parametrize("last_due", [10, 11, 12, 13])
def test_chunks_merge_in_order_where_due_ledger_and_entry_fill_one_sort_key(
    make_index: MakeIndex, last_due: int
) -> None:
    """Ledgers of 32 bits and entries of 31 leave no bit for time: with one time they fit 63, with more they do not."""
    index = make_index(1)
    index.add([0, 2**31], [LAST_ENTRY, 0], [last_due, last_due])
    index.add([2**31, 0], [LAST_ENTRY, 0], [10, 10])
    late = [(last_due, 0, LAST_ENTRY), (last_due, 2**31, 0)]
    assert triples(index.pop_due(20)) == sorted([*late, (10, 0, 0), (10, 2**31, LAST_ENTRY)])


def test_runs_are_joined_across_chunks(make_index: MakeIndex) -> None:
    """Entries that came by three doors and touch are one run; another ledger or bucket breaks it."""
    index = make_index(1)
    index.add(*batch(1, range(10), 5))
    index.append_chunk(encode_chunk(*batch(1, range(10, 20), 5), 1))
    index.add_one(1, 20, 5)
    index.add(*batch(1, range(21, 23), 6))
    index.add(*batch(2, range(23, 25), 6))
    index.add(*batch(2, [26], 6))
    assert quads(index.pop_due_runs(6)) == [(5, 1, 0, 20), (6, 1, 21, 22), (6, 2, 23, 24), (6, 2, 26, 26)]


def test_runs_count_their_messages(make_index: MakeIndex) -> None:
    """The number of messages is the sum over the runs, and expanding gives that many."""
    index = make_index(1)
    index.add(*batch(1, [1, 2, 3, 7], 5))
    runs = index.pop_due_runs(5)
    assert (len(runs), runs.messages, runs.counts.tolist(), len(runs.expanded())) == (2, 4, [3, 1], 4)


def test_a_pop_takes_what_is_due_and_leaves_the_rest(make_index: MakeIndex) -> None:
    """A bucket that is due at now is taken, the next one stays, and nothing comes twice."""
    index = make_index(1000)
    index.add(*batch(1, range(4), [400, 512, 513, 1025]))
    assert index.next_due == 512
    assert triples(index.pop_due(511)) == []
    assert triples(index.pop_due(512)) == [(512, 1, 0), (512, 1, 1)]
    assert triples(index.pop_due(1023)) == []
    assert (len(index), index.next_due) == (2, 1024)
    assert triples(index.pop_due(FOREVER)) == [(1024, 1, 2), (1536, 1, 3)]
    assert len(index) == 0
    assert index.next_due is None


def test_a_clock_that_steps_back_releases_nothing_twice(make_index: MakeIndex) -> None:
    """After a pop at 20, one at 10 finds only what came since."""
    index = make_index(1)
    index.add(*batch(1, [1, 2, 3], [10, 20, 30]))
    assert len(index.pop_due(20)) == 2
    assert len(index.pop_due(10)) == 0
    index.add_one(9, 9, 5)
    assert triples(index.pop_due(10)) == [(5, 9, 9)]
    assert triples(index.pop_due(30)) == [(30, 1, 3)]


@pytest.mark.parametrize("limits", [[0, 3, 0, 4, 100], [1] * 12, [5, 5, 5], [12], [100]])
def test_a_limited_pop_takes_the_first_ones_wherever_it_cuts(
    make_index: MakeIndex, small_blocks: int, limits: list[int]
) -> None:
    """Runs, blocks and chunks are cut through, and together the parts are the whole, in order."""
    index = make_index(1)
    index.add(*batch(1, [*range(6), 8, 10, 12, 14], [5] * 6 + [6, 6, 7, 8]))
    index.add(*batch(2, [1, 2], 6))
    whole = TimeBucketIndex.from_bytes(index.to_bytes())
    parts: list[Triple] = []
    for limit in limits:
        part = triples(index.pop_due(8, limit))
        assert len(part) == min(limit, 12 - len(parts))
        parts += part
        index.check_invariants()
        assert len(index) == 12 - len(parts)
    assert small_blocks == 4
    assert parts == triples(whole.pop_due(8))


def test_a_limited_pop_leaves_the_next_due_time_of_the_rest(make_index: MakeIndex) -> None:
    """After each message the index is armed for the next one."""
    index = make_index(1)
    index.add(*batch(1, range(4), [10, 10, 20, 30]))
    deadlines = []
    while len(index):
        deadlines.append(index.next_due)
        index.pop_due(100, 1)
    assert deadlines == [10, 10, 20, 30]


@pytest.mark.parametrize("now", [0, -5, -(2**70)])
def test_a_pop_before_the_first_bucket_takes_nothing(make_index: MakeIndex, now: int) -> None:
    """Also at times before 1970 and below any fixed width."""
    index = make_index(1000)
    index.add(*batch(1, range(10), 5_000))
    before = index.to_bytes()
    assert len(index.pop_due(now)) == len(index.pop_due(now, 5)) == len(index.pop_due_runs(now)) == 0
    assert index.to_bytes() == before


def test_a_pop_of_an_empty_index_is_empty_arrays(make_index: MakeIndex) -> None:
    """Every door answers with arrays of int64 that hold nothing."""
    index = make_index()
    for due in (index.pop_due(FOREVER), index.pop_due(FOREVER, 0), index.pop_due(FOREVER, 3)):
        assert [a.dtype for a in (due.due, due.ledger_ids, due.entry_ids)] == [np.int64] * 3
        assert len(due) == 0
    assert len(index.pop_due_runs(FOREVER)) == index.pop_due_runs(FOREVER).messages == 0


# ---- pops leave what stays alone


def test_a_pop_does_not_encode_what_stays(make_index: MakeIndex, encoded: list[int], small_blocks: int) -> None:
    """Whole pops, limited pops and runs take a prefix; nothing is encoded again, through a hundred of them."""
    index = make_index(1)
    assert small_blocks == 4
    index.add(*batch(1, range(0, 400, 2), range(1_000, 1_200)))
    index.add(*batch(2, range(0, 400, 2), range(1_000, 1_200)))
    encoded.clear()
    for now in range(1_000, 1_100, 3):
        index.pop_due(now, 3)
        index.pop_due_runs(now)
        index.pop_due(now + 1)
    assert (encoded, len(index)) == ([], 198)


def test_a_pop_decodes_at_most_one_block_in_vain(
    make_index: MakeIndex, decoded: list[Block], small_blocks: int
) -> None:
    """Fifty blocks of four, six messages due: two blocks are read."""
    index = make_index(1)
    assert small_blocks == 4
    index.add(*batch(1, range(0, 400, 2), range(1_000, 1_200)))
    assert len(index.pop_due(1_005)) == 6
    assert len(decoded) == 2
    decoded.clear()
    assert len(index.pop_due(FOREVER, 3)) == 3
    assert len(decoded) == 2
    decoded.clear()
    assert len(index.pop_due(1_005)) == 0
    assert decoded == []


def test_asking_decodes_nothing(make_index: MakeIndex, decoded: list[Block]) -> None:
    """Length, next due time and bytes are read from directories."""
    index = make_index()
    index.add(*batch(1, range(0, 400, 2), range(1_000, 201_000, 1_000)))
    index.pop_due(50_000)
    decoded.clear()
    assert len(index) > 0
    assert index.next_due is not None
    assert index.nbytes > 0
    assert len(TimeBucketIndex.from_bytes(index.to_bytes())) == len(index)
    assert decoded == []


# ---- restart


@pytest.mark.parametrize(("tick", "strict", "max_chunks"), [(1, True, 1), (1_000, True, 7), (60_000, False, 2**20)])
def test_a_restart_keeps_settings_single_messages_and_everything_else(
    make_index: MakeIndex, tick: int, *, strict: bool, max_chunks: int
) -> None:
    """Through bytes and back: the rule, the limit of chunks, what came one by one, what was drained in part."""
    index = make_index(tick, strict, max_chunks)
    index.add(*batch(1, range(10), 100_000))
    index.pop_due(FOREVER, 3)
    index.add_one(2, 2, 50_000)
    again = TimeBucketIndex.from_bytes(index.to_bytes())
    again.check_invariants()
    assert (again.rule, again.max_chunks) == (index.rule, max_chunks)
    assert (len(again), again.next_due, again.counts(1)) == (8, index.next_due, index.counts(1))
    assert triples(again.pop_due(FOREVER)) == triples(index.pop_due(FOREVER))


# ---- a failure changes nothing


def test_a_failed_append_leaves_count_and_bytes_exact(make_index: MakeIndex) -> None:
    """Damaged bytes, foreign rounding, wrong arrays and wrong values: each raises, none leaves a trace."""
    index = make_index(1000)
    index.add(*batch(1, range(10), 5_000))
    before = index.to_bytes()
    good = encode_chunk(*batch(2, range(10), 5_000))
    with pytest.raises(CorruptBytes):
        index.append_chunk(good[:-1])
    with pytest.raises(IncompatibleChunk):
        index.append_chunk(encode_chunk(*batch(2, range(10), 5_000), 1000, strict=False))
    with pytest.raises(InvalidArgument):
        index.add([1, 2], [1], [5_000])
    with pytest.raises(OutOfRange):
        index.add([1, 2], [1, -1], [5_000, 5_000])
    with pytest.raises(OutOfRange):
        index.add_one(1, 1, -1)
    with pytest.raises(OutOfRange):
        index.pop_due(FOREVER, -1)
    assert (len(index), index.to_bytes()) == (10, before)
    assert index.append_chunk(good) == 10


@pytest.mark.parametrize("step", ["decode_block", "encode_blocks"])
def test_a_failure_in_the_middle_of_an_append_leaves_count_and_bytes_exact(
    make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whether reading the overlap or encoding what is new fails, the index is as it was."""
    index = make_index(1000)
    index.add(*batch(1, range(0, 20, 2), 5_000))
    before = index.to_bytes()
    overlapping = encode_chunk(*batch(1, range(11), 5_000))

    def fail(*_: object) -> None:
        raise CorruptBytes("block", "planted")

    with monkeypatch.context() as patches:
        patches.setattr(f"state.chunk.{step}", fail)
        with pytest.raises(CorruptBytes):
            index.append_chunk(overlapping)
        assert (len(index), index.to_bytes()) == (10, before)
    assert index.append_chunk(overlapping) == 5


@pytest.mark.parametrize("step", ["decode_block", "encode_blocks"])
def test_a_failure_in_the_middle_of_a_merge_leaves_count_and_bytes_exact(
    make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """An append that has to merge, and a compaction, either happen or do not."""
    index = make_index(1000, max_chunks=2)
    index.add(*batch(1, range(10), 5_000))
    index.add(*batch(2, range(10), 6_000))
    third = encode_chunk(*batch(3, range(10), 7_000))
    before = index.to_bytes()

    def fail(*_: object) -> None:
        raise CorruptBytes("block", "planted")

    with monkeypatch.context() as patches:
        patches.setattr(f"state.chunk.{step}", fail)
        with pytest.raises(CorruptBytes):
            index.append_chunk(third)
        with pytest.raises(CorruptBytes):
            index.compact()
        assert (len(index), index.to_bytes()) == (20, before)
    assert index.append_chunk(third) == 10


@pytest.mark.parametrize("limit", [None, 15])
def test_a_failure_in_the_middle_of_a_pop_takes_nothing(
    make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """When the second of two chunks cannot be read, the first one keeps its messages too."""
    index = make_index(1000)
    index.add(*batch(1, range(10), 5_000))
    index.add(*batch(2, range(10), 5_000))
    before = index.to_bytes()
    calls: list[Block] = []

    def fail_second(block: Block, ledgers: LedgerTable, last_key: int | None = None) -> object:
        calls.append(block)
        if len(calls) == 2:
            raise CorruptBytes("block", "planted")
        return decode_block(block, ledgers, last_key)

    with monkeypatch.context() as patches:
        patches.setattr("state.chunk.decode_block", fail_second)
        with pytest.raises(CorruptBytes):
            index.pop_due(FOREVER, limit)
    assert (len(index), index.to_bytes()) == (20, before)
    assert len(index.pop_due(FOREVER)) == 20


def test_invariants_catch_a_position_that_is_held_twice(make_index: MakeIndex) -> None:
    """The check can fail: two chunks with the same messages, put in by force."""
    index = make_index()
    index.add(*batch(1, range(10), 5_000))
    index._chunks *= 2
    with pytest.raises(CorruptBytes):
        index.check_invariants()
    index.clear()


def test_invariants_catch_more_chunks_than_allowed_and_a_wrong_first_open_message(make_index: MakeIndex) -> None:
    """The check can fail: a limit that is passed, and an earliest single message that is not the earliest."""
    index = make_index(1000, max_chunks=1)
    index.add(*batch(1, range(10), 5_000))
    spare = TimeBucketIndex()
    spare.add(*batch(2, range(10), 5_000))
    index._chunks += spare._chunks
    with pytest.raises(CorruptBytes):
        index.check_invariants()
    index.clear()
    index.add_one(1, 1, 5_000)
    index._open_first += 512
    with pytest.raises(CorruptBytes):
        index.check_invariants()
    index.clear()


def test_invariants_catch_a_chunk_of_the_other_rounding(make_index: MakeIndex) -> None:
    """The check can fail: a tolerant chunk, put into a strict index by force, and one of other bits into a tolerant."""
    strict, tolerant = make_index(1000), make_index(1000, strict=False)
    tolerant.add(*batch(1, range(10), 5_000))
    strict._chunks = list(tolerant._chunks)
    with pytest.raises(CorruptBytes):
        strict.check_invariants()
    strict.clear()
    other = TimeBucketIndex(100, strict=False)
    other.add(*batch(2, range(10), 5_000))
    tolerant._chunks += other._chunks
    with pytest.raises(CorruptBytes):
        tolerant.check_invariants()
    tolerant.clear()
