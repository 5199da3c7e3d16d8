"""The index by example: what goes in, what comes out, in which order, and how much work that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from state import (
    CorruptBytes,
    Due,
    IncompatibleChunk,
    InvalidArgument,
    OutOfRange,
    Runs,
    TimeBucketIndex,
    bucket_width,
    describe_chunk,
    encode_chunk,
)
from state.blocks import BITMAP, COLUMNS, Block, decode_block
from state.ledgers import LedgerTable

MakeIndex = Callable[..., TimeBucketIndex]
Triple = tuple[int, int, int]

FOREVER = 10**15
LAST_MS = 253_402_300_799_999
LAST_LEDGER, LAST_ENTRY = 2**62, 2**31 - 1


def triples(due: Due) -> list[Triple]:
    """A drain as (due, ledger, entry)."""
    return list(zip(due.due.tolist(), due.ledger_ids.tolist(), due.entry_ids.tolist(), strict=True))


def quads(runs: Runs) -> list[tuple[int, int, int, int]]:
    """A drain in runs as (due, ledger, first, last)."""
    columns = (runs.due, runs.ledger_ids, runs.first_entries, runs.last_entries)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def batch(ledger: int, entries: Sequence[int], at: int | Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The three columns of messages of one ledger, all at one time or each at its own."""
    return [ledger] * len(entries), list(entries), [at] * len(entries) if isinstance(at, int) else list(at)


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


# ---- idempotent adds, and how little is read to know


def test_a_position_that_comes_twice_in_one_call_counts_once(make_index: MakeIndex) -> None:
    """Two times of one bucket are the same; two buckets are two messages."""
    index = make_index(1000)
    assert index.add([1, 1, 1, 1], [7, 7, 7, 8], [600, 1024, 1025, 600]) == 3
    assert triples(index.pop_due(FOREVER)) == [(1024, 1, 7), (1024, 1, 8), (1536, 1, 7)]


@pytest.mark.parametrize("first", ["add", "add_one", "append_chunk"])
@pytest.mark.parametrize("second", ["add", "add_one", "append_chunk"])
def test_a_position_that_comes_again_by_any_door_counts_once(make_index: MakeIndex, first: str, second: str) -> None:
    """Three messages, then four of which two are known: two are new."""
    index = make_index(1000)

    def put(door: str, entries: Sequence[int]) -> int:
        if door == "add":
            return index.add(*batch(1, entries, 600))
        if door == "add_one":
            return sum(index.add_one(1, entry, 600) for entry in entries)
        return index.append_chunk(encode_chunk(*batch(1, entries, 600)))

    assert put(first, [1, 2, 3]) == 3
    assert put(second, [0, 2, 3, 4]) == 2
    assert put(first, [4, 0]) == 0
    assert quads(index.pop_due_runs(1024)) == [(1024, 1, 0, 4)]


def test_a_position_that_was_popped_is_new_again(make_index: MakeIndex) -> None:
    """Counting once holds while a message is pending, exactly: also inside a block that is partly gone."""
    index = make_index(1)
    index.add(*batch(1, [1, 2, 3, 5], 10))
    index.pop_due(10, 2)
    assert index.add(*batch(1, [1, 2, 3, 4, 5], 10)) == 3
    assert [index.add_one(1, entry, 10) for entry in (1, 6)] == [False, True]
    assert quads(index.pop_due_runs(10)) == [(10, 1, 1, 6)]


def test_a_chunk_that_is_known_whole_adds_nothing(make_index: MakeIndex) -> None:
    """A replayed append is a no-op to the byte."""
    index = make_index()
    chunk = encode_chunk(*batch(3, range(100), range(1_000, 101_000, 1_000)))
    assert index.append_chunk(chunk) == 100
    before = index.to_bytes()
    assert index.append_chunk(chunk) == 0
    assert index.to_bytes() == before


@pytest.mark.parametrize(
    ("ledger", "entries", "at"), [(1, range(50), 90_000), (2, range(50), 5_000), (1, range(50, 99), 5_000)]
)
def test_a_chunk_apart_in_time_ledger_or_entries_is_appended_without_decoding_any_other(
    make_index: MakeIndex, decoded: list[Block], ledger: int, entries: range, at: int
) -> None:
    """One range that does not overlap is enough; the new chunk is not decoded either."""
    index = make_index()
    index.append_chunk(encode_chunk(*batch(1, range(50), 5_000)))
    index.append_chunk(encode_chunk(*batch(ledger, entries, at)))
    assert decoded == []
    assert len(index) == 50 + len(entries)


def test_an_array_apart_from_the_rest_is_added_without_decoding(make_index: MakeIndex, decoded: list[Block]) -> None:
    """A publisher's next entries cost nothing of what is there; so do single ones."""
    index = make_index()
    for start in range(0, 500, 100):
        index.add(*batch(1, range(start, start + 100), 5_000))
    for entry in range(500, 600):
        index.add_one(1, entry, 5_000)
    assert decoded == []


def test_only_blocks_whose_ranges_overlap_are_decoded(
    make_index: MakeIndex, decoded: list[Block], small_blocks: int
) -> None:
    """Ten blocks apart in time, one of them in the way of a repeated message: that one is read, and the new one."""
    index = make_index(1)
    times = [100 * i for i in range(10) for _ in range(small_blocks)]
    index.add([1] * 40, [2 * i for i in range(40)], times)
    index.add([2] * 40, [2 * i for i in range(40)], times)
    assert decoded == []
    assert index.add([1, 1], [24, 25], [300, 300]) == 1
    assert {(block.first_key, block.last_key) for block in decoded} == {(300, 300)}
    assert len(decoded) == 2
    decoded.clear()
    assert not index.add_one(1, 24, 300)
    assert index.add_one(1, 1_000, 300)
    assert [(block.first_key, block.last_key) for block in decoded] == [(300, 300)]
    index.pop_due(FOREVER)


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


# ---- chunks and compaction


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_compaction_to_a_limit_keeps_every_chunk(make_index: MakeIndex, limit: int) -> None:
    """Seven chunks of very different sizes become at most `limit`, and every message is still there."""
    index = make_index()
    for ledger in range(7):
        index.add(*batch(ledger, range(0, 40 * 3**ledger % 500 + 2, 2), 5_000 + ledger))
    before = len(index)
    assert index.chunks == 7
    whole = TimeBucketIndex.from_bytes(index.to_bytes())
    index.compact(limit)
    assert index.chunks == limit
    assert len(index) == before
    index.check_invariants()
    assert triples(index.pop_due(FOREVER)) == triples(whole.pop_due(FOREVER))


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_an_index_of_few_chunks_keeps_every_batch(make_index: MakeIndex, small_blocks: int, limit: int) -> None:
    """Twenty batches under a limit of 1, 2, 3: the limit holds after each call, the first batch is there at the end."""
    index = make_index(1000, max_chunks=limit)
    assert small_blocks == 4
    for ledger in range(20):
        assert index.add(*batch(ledger, range(0, 20, 2), 5_000 + 100 * ledger)) == 10
        assert index.chunks <= limit
        assert len(index) == 10 * (ledger + 1)
    popped = index.pop_due(FOREVER)
    assert np.unique(popped.ledger_ids).tolist() == list(range(20))
    assert len(popped) == 200


def test_a_limited_pop_of_finer_chunks_keeps_the_limit_of_chunks(small_blocks: int) -> None:
    """Each finer chunk is cut in two by a limited pop; the limit holds all the same."""
    assert small_blocks == 4
    for limit in (1, 2, 3, 4, 8):
        index = TimeBucketIndex(1000, strict=True, max_chunks=limit)
        for ledger in range(limit):
            index.append_chunk(encode_chunk(*batch(ledger, range(0, 20, 2), range(3, 10_003, 1_000)), 10))
        assert len(index.pop_due(4_000, 1)) == 1
        assert index.chunks <= limit
        assert len(index) == 10 * limit - 1
        index.check_invariants()


def test_compaction_includes_single_messages_and_does_nothing_when_there_is_nothing(make_index: MakeIndex) -> None:
    """Messages that came one by one are part of the one chunk."""
    index = make_index()
    index.compact()
    assert index.chunks == 0
    index.add_one(1, 1, 5_000)
    index.add(*batch(2, [1], 6_000))
    index.add_one(3, 1, 7_000)
    index.compact()
    assert (index.chunks, len(index)) == (1, 3)


def test_compaction_of_a_partly_drained_index_brings_nothing_back(make_index: MakeIndex) -> None:
    """What was taken from the front of a block stays gone when the block is encoded again."""
    index = make_index(1)
    index.add(*batch(1, range(10), 5))
    index.add(*batch(2, range(10), 6))
    taken = triples(index.pop_due(6, 13))
    index.compact()
    assert taken[-1] == (6, 2, 2)
    assert quads(index.pop_due_runs(6)) == [(6, 2, 3, 9)]


def test_ledger_ids_may_come_out_of_order(make_index: MakeIndex) -> None:
    """Later calls with lower ledgers, and ledgers that jump about in one call, are all there, in order."""
    index = make_index(1)
    for ledgers in ([9, 9, 3, 9, 5], [4, 2**62, 0], [1]):
        index.add(ledgers, list(range(len(ledgers))), [10] * len(ledgers))
    index.append_chunk(encode_chunk([8, 6, 7], [0, 0, 0], [10, 10, 10], 1))
    popped = index.pop_due(10).ledger_ids.tolist()
    assert popped == sorted([9, 9, 3, 9, 5, 4, 2**62, 0, 1, 8, 6, 7])


def test_many_small_appends_stay_few_chunks(make_index: MakeIndex) -> None:
    """A stream of small batches does not pile up: the limit of chunks holds and the count is exact."""
    index = make_index()
    for ledger in range(100):
        index.append_chunk(encode_chunk(*batch(ledger, range(5), 5_000)))
        assert index.chunks <= index.max_chunks
    assert len(index.pop_due(FOREVER)) == 500


def test_small_chunks_are_merged_beside_large_ones_and_all_are_kept(make_index: MakeIndex, small_blocks: int) -> None:
    """Two chunks of several blocks and twenty of one: the small ones become few, and every message is there."""
    index = make_index(1000)
    for ledger in range(22):
        size = 5 * small_blocks if ledger in (0, 15) else 2
        index.add(*batch(ledger, range(0, 2 * size, 2), 5_000))
        assert len(index) == sum(5 * small_blocks if before in (0, 15) else 2 for before in range(ledger + 1))
    assert index.chunks < 22
    assert len(index.pop_due(FOREVER)) == 2 * 5 * small_blocks + 20 * 2


def test_a_limited_pop_of_a_finer_chunk_keeps_what_is_not_due(make_index: MakeIndex) -> None:
    """The part that is not due stays at its finer times, and is released in turn."""
    index = make_index(60_000)
    index.append_chunk(encode_chunk(*batch(1, range(4), [1_000, 2_000, 40_000, 70_000])))
    assert triples(index.pop_due(32_768, 1)) == [(32_768, 1, 0)]
    assert (len(index), index.next_due) == (3, 32_768)
    assert triples(index.pop_due(FOREVER)) == [(32_768, 1, 1), (65_536, 1, 2), (98_304, 1, 3)]


@pytest.mark.parametrize(("field", "value"), [("max_chunks", 0), ("max_chunks", 2**20 + 1)])
def test_a_limit_of_chunks_outside_its_range_names_field_value_and_range(
    make_index: MakeIndex, field: str, value: int
) -> None:
    """The constructor and the compaction refuse it alike."""
    for call in (lambda: TimeBucketIndex(1000, strict=True, max_chunks=value), lambda: make_index().compact(value)):
        with pytest.raises(OutOfRange) as caught:
            call()
        error = caught.value
        assert (error.field, error.value, error.low, error.high) == (field, value, 1, 2**20)


# ---- coarser readers


def fine_chunks() -> list[bytes]:
    """Two chunks at a tick of 1 s, with times over ten minutes."""
    times = range(1_000, 601_000, 1_000)
    return [encode_chunk(*batch(ledger, range(600), times)) for ledger in (1, 2)]


def test_a_coarser_reader_pops_at_multiples_of_its_own_width_without_encoding_again(
    make_index: MakeIndex, encoded: list[int]
) -> None:
    """Chunks of 1 s in an index of 1 min: due times are multiples of 32768, nothing is encoded on the way."""
    chunks = fine_chunks()
    index, own = make_index(60_000), make_index(60_000)
    for ledger in (1, 2):
        own.add(*batch(ledger, range(600), range(1_000, 601_000, 1_000)))
    encoded.clear()
    assert [index.append_chunk(chunk) for chunk in chunks] == [600, 600]
    assert index.next_due == 32_768
    assert len(index.pop_due(32_767)) == 0
    for now in range(32_768, 660_000, 30_000):
        mine = index.pop_due(now)
        assert set((mine.due % 32_768).tolist()) <= {0}
        assert (mine.due <= now).all()
        assert triples(mine) == triples(own.pop_due(now))
        assert (len(index), index.next_due) == (len(own), own.next_due)
    assert encoded == []
    assert len(index) == 0


def test_a_coarser_reader_is_drained_by_limits_in_its_own_order(make_index: MakeIndex) -> None:
    """Within one of its buckets the order is by position, though the chunk holds them by finer times."""
    index = make_index(60_000)
    index.append_chunk(encode_chunk(*batch(1, [3, 2, 1, 0], [1_000, 2_000, 3_000, 40_000])))
    index.append_chunk(encode_chunk(*batch(0, [9], [30_000])))
    drained = [triples(index.pop_due(70_000, limit)) for limit in (2, 0, 1, 5)]
    assert drained == [[(32_768, 0, 9), (32_768, 1, 1)], [], [(32_768, 1, 2)], [(32_768, 1, 3), (65_536, 1, 0)]]


def test_a_limited_pop_of_a_coarser_reader_encodes_only_what_is_due(make_index: MakeIndex, encoded: list[int]) -> None:
    """The 66 messages due at 66 s are encoded at the reader's width, the rest of the chunk is not."""
    index = make_index(60_000)
    index.append_chunk(fine_chunks()[0])
    encoded.clear()
    assert len(index.pop_due(66_000, 10)) == 10
    assert sum(encoded) <= 66


def test_a_position_in_two_finer_buckets_of_one_coarser_bucket_counts_once(make_index: MakeIndex) -> None:
    """The reader's own bucket identifies a message: within a chunk, across chunks and by every door."""
    index = make_index(60_000)
    assert index.append_chunk(encode_chunk([1, 1, 1], [5, 5, 6], [1_000, 2_000, 1_000])) == 2
    assert index.append_chunk(encode_chunk([1, 1], [5, 7], [30_000, 30_000])) == 1
    assert index.append_chunk(encode_chunk([1], [5], [9_000], 1)) == 0
    assert not index.add_one(1, 5, 20_000)
    assert index.add([1, 1], [5, 5], [32_768, 32_769]) == 1
    assert triples(index.pop_due(FOREVER)) == [(32_768, 1, 5), (32_768, 1, 6), (32_768, 1, 7), (65_536, 1, 5)]


def test_runs_that_share_their_last_and_first_entry_in_one_coarser_bucket_count_it_once(make_index: MakeIndex) -> None:
    """Entries 0 to 5 due at 1 s and 5 to 9 due at 2 s are ten messages of the reader's bucket."""
    index = make_index(60_000)
    assert index.append_chunk(encode_chunk(*batch(1, [*range(6), *range(5, 10)], [1_000] * 6 + [2_000] * 5))) == 10
    assert quads(index.pop_due_runs(32_768)) == [(32_768, 1, 0, 9)]


def test_a_chunk_of_a_coarser_tick_keeps_its_own_times(make_index: MakeIndex) -> None:
    """Rounded up once to a minute, a message is due then, also in an index of seconds."""
    index = make_index(1000)
    index.append_chunk(encode_chunk([1, 1], [1, 2], [1_000, 40_000], 60_000))
    assert index.add([1, 1], [1, 1], [32_768, 1_000]) == 1
    assert triples(index.pop_due(FOREVER)) == [(1_024, 1, 1), (32_768, 1, 1), (65_536, 1, 2)]


def test_chunks_of_three_ticks_survive_compaction_and_restart_together(make_index: MakeIndex) -> None:
    """A merge of finer, own and coarser chunks gives each message the time it had."""
    index = make_index(1000, max_chunks=8)
    for ledger, tick in ((1, 10), (2, 1_000), (3, 60_000)):
        index.append_chunk(encode_chunk(*batch(ledger, range(0, 20, 2), range(1_000, 91_000, 9_000)), tick))
    again = TimeBucketIndex.from_bytes(index.to_bytes())
    again.compact()
    again.check_invariants()
    assert again.chunks == 1
    assert triples(again.pop_due(FOREVER)) == triples(index.pop_due(FOREVER))


# ---- chunks that do not fit


def test_a_strict_index_refuses_a_tolerant_chunk_by_field(make_index: MakeIndex) -> None:
    """What was rounded down could come early."""
    with pytest.raises(IncompatibleChunk) as caught:
        make_index(1000).append_chunk(encode_chunk([1], [1], [5_000], 1000, strict=False))
    assert (caught.value.field, caught.value.value, caught.value.expected) == ("strict", False, True)


def test_a_tolerant_index_refuses_a_strict_chunk_by_field(make_index: MakeIndex) -> None:
    """What was rounded up is of another rule."""
    with pytest.raises(IncompatibleChunk) as caught:
        make_index(1000, strict=False).append_chunk(encode_chunk([1], [1], [5_000], 1000, strict=True))
    assert (caught.value.field, caught.value.value, caught.value.expected) == ("strict", True, False)


@pytest.mark.parametrize(("tick", "bits"), [(100, 6), (60_000, 15)])
def test_a_tolerant_index_refuses_chunks_of_other_bits_by_field(make_index: MakeIndex, tick: int, bits: int) -> None:
    """Rounding down does not nest with being at most one tick early."""
    with pytest.raises(IncompatibleChunk) as caught:
        make_index(1000, strict=False).append_chunk(encode_chunk([1], [1], [5_000], tick, strict=False))
    assert (caught.value.field, caught.value.value, caught.value.expected) == ("bits", bits, 9)


def test_a_tolerant_index_takes_chunks_of_its_own_bits(make_index: MakeIndex) -> None:
    """Ticks with the same bits give the same keys."""
    index = make_index(1000, strict=False)
    assert index.append_chunk(encode_chunk([1], [1], [60_400], 600, strict=False)) == 1
    assert index.add([1, 1], [1, 2], [60_400, 60_400]) == 1
    assert index.next_due == 59_415


# ---- looking


def test_next_due_of_a_strict_index_is_the_end_of_the_earliest_bucket(make_index: MakeIndex) -> None:
    """Over arrays, chunks and single messages, whichever is earliest; None when there is nothing."""
    index = make_index(1000)
    assert index.next_due is None
    index.add([1], [1], [61_000])
    assert index.next_due == 61_440
    index.add_one(1, 2, 60_400)
    assert index.next_due == 60_416
    index.append_chunk(encode_chunk([1], [3], [100]))
    assert index.next_due == 512
    assert len(index.pop_due(511)) == 0
    assert len(index.pop_due(512)) == 1
    assert index.next_due == 60_416


def test_next_due_of_a_tolerant_index_is_the_first_instant_at_which_a_pop_finds_something(
    make_index: MakeIndex,
) -> None:
    """60400 at a tick of 1000 is due from 59415."""
    index = make_index(1000, strict=False)
    index.add_one(1, 1, 60_400)
    assert index.next_due == 59_415
    assert len(index.pop_due(59_414)) == 0
    assert triples(index.pop_due(59_415)) == [(59_904, 1, 1)]


def test_counts_is_a_histogram_of_bucket_keys(make_index: MakeIndex) -> None:
    """Bars begin at multiples of the width, ascend, leave out what is empty, and sum to the length."""
    index = make_index(1000)
    index.add(*batch(1, range(6), [400, 512, 900, 1_500, 10_000, 10_200]))
    index.add_one(2, 1, 100)
    assert index.counts(1) == {512: 3, 1_024: 1, 1_536: 1, 10_240: 2}
    assert index.counts(1_000) == {0: 3, 1_000: 2, 10_000: 2}
    assert index.counts(700) == {0: 3, 700: 1, 1_400: 1, 9_800: 2}
    assert list(index.counts(1_000)) == [0, 1_000, 10_000]
    assert index.counts(LAST_MS) == {0: 7}
    assert index.counts(1_000) == {0: 3, 1_000: 2, 10_000: 2}
    assert len(index) == 7


def test_counts_follows_pops_through_the_middle_of_a_block(make_index: MakeIndex, small_blocks: int) -> None:
    """What is gone from the front is not counted, wherever the cut lies."""
    index = make_index(1)
    assert small_blocks == 4
    index.add(*batch(1, range(0, 40, 2), [100 * (i // 3) for i in range(20)]))
    for left in range(20, 0, -1):
        counts = index.counts(100)
        assert sum(counts.values()) == len(index) == left
        assert counts[600] == min(2, left) if left <= 2 else counts[600] == 2
        index.pop_due(FOREVER, 1)
    assert index.counts(100) == {}


def test_counts_of_a_bar_that_lost_its_first_messages_is_what_stays(make_index: MakeIndex) -> None:
    """A block inside one bar is counted from the directory, less what was taken from it."""
    index = make_index(1)
    index.add(*batch(1, range(0, 8, 2), 100))
    index.pop_due(100, 1)
    assert index.counts(1_000) == {0: 3}


def test_counts_of_a_coarser_reader_uses_its_own_keys(make_index: MakeIndex) -> None:
    """A finer chunk falls into the bars of the reader's buckets."""
    index = make_index(60_000)
    index.append_chunk(encode_chunk(*batch(1, range(3), [1_000, 32_768, 32_769])))
    assert index.counts(1) == {32_768: 2, 65_536: 1}


def test_counts_of_whole_bars_reads_directories_only(make_index: MakeIndex, decoded: list[Block]) -> None:
    """Blocks that lie in one bar are counted without being decoded."""
    index = make_index()
    index.add(*batch(1, range(100), 5_000))
    assert index.counts(60_000) == {0: 100}
    assert decoded == []


@pytest.mark.parametrize("width", [0, -1])
def test_counts_of_a_width_that_is_not_positive_names_field_value_and_range(make_index: MakeIndex, width: int) -> None:
    """A bar is at least 1 ms wide."""
    with pytest.raises(OutOfRange) as caught:
        make_index().counts(width)
    assert (caught.value.field, caught.value.value, caught.value.low) == ("width_ms", width, 1)


def test_nbytes_counts_chunks_and_single_messages(make_index: MakeIndex) -> None:
    """Each message that comes one by one costs some bytes, and a dense batch costs less than a byte each."""
    index = make_index()
    sizes = [index.nbytes]
    for entry in range(64):
        index.add_one(1, entry, 5_000)
    sizes.append(index.nbytes)
    index.add(*batch(2, range(10_000), 5_000))
    sizes.append(index.nbytes)
    assert 0 < sizes[0] < sizes[1]
    assert sizes[1] - sizes[0] > 64 * 50
    assert sizes[2] < sizes[0] + 5_000


def test_a_chunk_describes_itself_without_being_decoded(decoded: list[Block]) -> None:
    """Bits, rule, count, first and last due time, ledgers with their entries, bytes: all from the header."""
    data = encode_chunk([5, 2, 5, 2], [7, 1, 3, 1], [60_400, 61_000, 90_000, 61_001])
    info = describe_chunk(data)
    assert decoded == []
    assert (info.bits, info.strict, info.count, info.nbytes) == (9, True, 3, len(data))
    assert (info.first_due, info.last_due) == (60_416, 90_112)
    assert (info.ledger_ids, info.first_entries, info.last_entries) == ((2, 5), (1, 3), (1, 7))
    tolerant = describe_chunk(encode_chunk([1], [1], [60_400], 60_000, strict=False))
    assert (tolerant.bits, tolerant.strict, tolerant.first_due) == (15, False, 32_768)


# ---- what is taken as an array


def read_only(values: list[int]) -> npt.NDArray[np.int64]:
    """An array that must not be written to."""
    array = np.asarray(values, dtype=np.int64)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "convert",
    [
        list,
        tuple,
        lambda values: [np.int32(value) for value in values],
        lambda values: np.asarray(values, dtype=np.uint8),
        lambda values: np.asarray(values, dtype=np.int16),
        lambda values: np.asarray(values, dtype=np.uint32),
        lambda values: np.asarray(values, dtype=np.uint64),
        lambda values: np.asarray(values, dtype=">i8"),
        lambda values: np.repeat(np.asarray(values), 3)[::3],
        lambda values: np.asarray(values[::-1])[::-1],
        read_only,
    ],
    ids=["list", "tuple", "numpy ints", "u8", "i16", "u32", "u64", "big-endian", "strided", "reversed", "read-only"],
)
def test_integers_of_any_kind_are_taken(make_index: MakeIndex, convert: Callable[[list[int]], npt.ArrayLike]) -> None:
    """Lists, tuples, every integer type and layout give the same bytes and the same index."""
    columns = [[3, 1, 2], [10, 20, 30], [100, 120, 110]]
    index = make_index(1)
    assert index.add(*map(convert, columns)) == 3
    assert triples(index.pop_due(200)) == [(100, 3, 10), (110, 2, 30), (120, 1, 20)]
    first, second, third = map(convert, columns)
    assert encode_chunk(first, second, third, 1) == encode_chunk([3, 1, 2], [10, 20, 30], [100, 120, 110], 1)


def test_single_messages_may_be_numpy_ints(make_index: MakeIndex) -> None:
    """They are the same messages as plain ints, small types included."""
    index = make_index(1000)
    assert index.add_one(np.int64(3), np.uint8(4), np.int32(60_400))  # type: ignore[arg-type]
    assert not index.add_one(3, 4, 60_400)
    assert triples(index.pop_due(np.int64(60_416), np.int8(5))) == [(60_416, 3, 4)]  # type: ignore[arg-type]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tick", [1, 1000])
def test_arguments_are_not_changed_and_not_kept(make_index: MakeIndex, tick: int, *, strict: bool) -> None:
    """The caller's arrays read the same afterwards, and writing to them later changes nothing here."""
    arrays = [np.asarray(column, dtype=np.int64) for column in ([2, 1, 1], [9, 8, 8], [5_000, 4_000, 4_000])]
    copies = [array.copy() for array in arrays]
    index, other = make_index(tick, strict), make_index(tick, strict)
    index.add(*arrays)
    other.add(*copies)
    assert [array.tolist() for array in arrays] == [copy.tolist() for copy in copies]
    for array in arrays:
        array[:] = 0
    assert triples(index.pop_due(FOREVER)) == triples(other.pop_due(FOREVER))


@pytest.mark.parametrize("door", ["add", "encode_chunk"])
@pytest.mark.parametrize(
    ("place", "field", "bad"),
    [
        (0, "ledger_ids", [1.0, 2.0]),
        (1, "entry_ids", [1.5, 2.5]),
        (2, "deliver_ats", [float("nan"), 1.0]),
        (0, "ledger_ids", [[1, 2], [3, 4]]),
        (1, "entry_ids", 5),
        (2, "deliver_ats", ["1", "2"]),
        (2, "deliver_ats", [True, False]),
        (2, "deliver_ats", [None, 1]),
        (1, "entry_ids", np.asarray([1, 2], dtype="m8[ms]")),
    ],
    ids=["whole floats", "floats", "nan", "2-d", "0-d", "text", "bools", "None", "timedelta"],
)
def test_what_is_not_a_row_of_integers_is_refused_by_field(
    make_index: MakeIndex, door: str, place: int, field: str, bad: npt.ArrayLike
) -> None:
    """The error names the argument and what would have been accepted."""
    index = make_index()
    columns: list[npt.ArrayLike] = [[1, 2], [1, 2], [5_000, 5_000]]
    columns[place] = bad
    offer: Callable[..., object] = index.add if door == "add" else encode_chunk
    with pytest.raises(InvalidArgument) as caught:
        offer(*columns)
    assert caught.value.field == field
    assert "integers" in caught.value.allowed
    assert len(index) == 0


@pytest.mark.parametrize("lengths", [(1, 2, 2), (2, 1, 2), (2, 2, 0)])
def test_columns_of_different_lengths_are_refused_with_their_lengths(
    make_index: MakeIndex, lengths: tuple[int, int, int]
) -> None:
    """The error holds the three lengths; nothing is cut to the shortest."""
    with pytest.raises(InvalidArgument) as caught:
        make_index().add(*([1] * length for length in lengths))
    assert caught.value.value == list(lengths)


@pytest.mark.parametrize("door", ["add", "encode_chunk", "add_one"])
@pytest.mark.parametrize(
    ("place", "field", "value", "high"),
    [
        (0, "ledger_id", -1, LAST_LEDGER),
        (0, "ledger_id", LAST_LEDGER + 1, LAST_LEDGER),
        (1, "entry_id", -1, LAST_ENTRY),
        (1, "entry_id", LAST_ENTRY + 1, LAST_ENTRY),
        (2, "deliver_at", -1, LAST_MS),
        (2, "deliver_at", LAST_MS + 1, LAST_MS),
    ],
)
def test_values_outside_their_range_are_refused_with_field_value_and_range(
    make_index: MakeIndex, door: str, place: int, field: str, value: int, high: int
) -> None:
    """Every door refuses the same values, and one bad value refuses the whole call."""
    index = make_index()
    message = [1, 1, 5_000]
    message[place] = value
    columns = [[2, message[0]], [2, message[1]], [5_000, message[2]]]
    doors: dict[str, Callable[..., object]] = {"add": index.add, "encode_chunk": encode_chunk, "add_one": index.add_one}
    with pytest.raises(OutOfRange) as caught:
        doors[door](*(message if door == "add_one" else columns))
    error = caught.value
    name = field if door == "add_one" else field + "s"
    assert (error.field, error.value, error.low, error.high) == (name, value, 0, high)
    assert len(index) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_single_message_with_a_fraction_is_refused_by_field(make_index: MakeIndex, place: int) -> None:
    """A time that lost its fraction would be early, so it is refused and not cut."""
    message: list[float] = [1, 1, 60_400]
    message[place] += 0.5
    with pytest.raises(InvalidArgument) as caught:
        make_index().add_one(*message)  # type: ignore[arg-type]
    assert caught.value.field == ("ledger_id", "entry_id", "deliver_at")[place]


# ---- extremes, nothing, and both containers


def test_the_ends_of_all_ranges_go_in_and_come_out(make_index: MakeIndex) -> None:
    """Ledger 0 and 2^62, entry 0 and 2^31 - 1, time 0 and the last ms of 9999, in one call and one by one."""
    ends = [(at, ledger, entry) for at in (0, LAST_MS) for ledger in (0, LAST_LEDGER) for entry in (0, LAST_ENTRY)]
    times, ledgers, entries = zip(*ends, strict=True)
    index, single = make_index(1), make_index(1)
    assert index.add(ledgers, entries, times) == 8
    for at, ledger, entry in ends:
        assert single.add_one(ledger, entry, at)
    again = TimeBucketIndex.from_bytes(index.to_bytes())
    assert triples(again.pop_due(LAST_MS - 1)) == ends[:4]
    assert triples(index.pop_due(LAST_MS)) == triples(single.pop_due(LAST_MS)) == ends


@pytest.mark.parametrize("tick", [1000, 60_000, 2**41])
def test_the_last_instant_is_rounded_up_without_overflow(make_index: MakeIndex, tick: int) -> None:
    """Up to the widest bucket, and it is kept across a restart."""
    index = make_index(tick)
    index.add([1], [1], [LAST_MS])
    due = -(-LAST_MS // bucket_width(tick)) * bucket_width(tick)
    again = TimeBucketIndex.from_bytes(index.to_bytes())
    assert again.next_due == due
    assert len(again.pop_due(due - 1)) == 0
    assert triples(again.pop_due(due)) == [(due, 1, 1)]


def test_a_run_that_ends_at_the_last_entry_is_joined_and_split(make_index: MakeIndex) -> None:
    """No overflow at the end of the entries: joined over chunks, cut by a limit, known when it comes again."""
    index = make_index(1)
    index.add(*batch(LAST_LEDGER, range(LAST_ENTRY - 9, LAST_ENTRY - 4), 10))
    index.add(*batch(LAST_LEDGER, range(LAST_ENTRY - 6, LAST_ENTRY + 1), 10))
    assert len(index) == 10
    assert not index.add_one(LAST_LEDGER, LAST_ENTRY, 10)
    assert len(index.pop_due(10, 9)) == 9
    assert quads(index.pop_due_runs(10)) == [(10, LAST_LEDGER, LAST_ENTRY, LAST_ENTRY)]


def test_adding_nothing_is_allowed_by_every_door(make_index: MakeIndex) -> None:
    """Empty lists, empty arrays of any type and the empty chunk add nothing."""
    index = make_index()
    assert index.append_chunk(encode_chunk([], [], [])) == index.add([], [], []) == 0
    assert index.add(np.empty(0), np.empty(0, dtype=np.uint8), ()) == 0
    assert (len(index), index.chunks, index.next_due, index.counts(1)) == (0, 0, None, {})
    with pytest.raises(InvalidArgument):
        index.add(np.empty((0, 2)), [], [])


def test_an_empty_chunk_says_that_it_is_empty(make_index: MakeIndex) -> None:
    """It has bytes and a due rule as any other, so one that does not fit is refused, and so are no bytes at all."""
    data = encode_chunk([], [], [], 60_000, strict=False)
    info = describe_chunk(data)
    assert (info.bits, info.strict, info.count, info.nbytes) == (15, False, 0, len(data))
    assert (info.first_due, info.last_due) == (None, None)
    assert (info.ledger_ids, info.first_entries, info.last_entries) == ((), (), ())
    with pytest.raises(IncompatibleChunk):
        make_index(60_000).append_chunk(data)
    with pytest.raises(IncompatibleChunk):
        make_index(1_000, strict=False).append_chunk(data)
    with pytest.raises(CorruptBytes):
        make_index().append_chunk(b"")


def test_clear_forgets_everything(make_index: MakeIndex) -> None:
    """Afterwards the index is as a new one to the byte, and it can be used again."""
    index = make_index()
    index.add(*batch(1, range(100), 5_000))
    index.add_one(2, 2, 400)
    index.pop_due(5_120, 10)
    index.add_one(2, 2, 400)
    index.clear()
    assert (len(index), index.next_due, index.chunks) == (0, None, 0)
    assert index.to_bytes() == TimeBucketIndex().to_bytes()
    assert len(index.pop_due(FOREVER)) == 0
    assert index.add(*batch(1, range(100), 5_000)) == 100


def both_containers(make_index: MakeIndex) -> tuple[TimeBucketIndex, list[Triple]]:
    """An index with a dense, broken cell and scattered positions, and what it holds."""
    chance = np.random.default_rng(7)
    dense = np.flatnonzero(chance.random(12_000) < 0.5)
    scattered = chance.integers(0, LAST_ENTRY, 2_000)
    times = chance.integers(0, 200_000, 2_000)
    index = make_index(1)
    index.add(np.full(len(dense), 5), dense, np.full(len(dense), 100_000))
    index.add(np.arange(2_000) % 3 + 4, scattered, times)
    held = {(100_000, 5, entry) for entry in dense.tolist()}
    held |= {
        (at, 4 + i % 3, entry) for i, (at, entry) in enumerate(zip(times.tolist(), scattered.tolist(), strict=True))
    }
    return index, sorted(held)


def test_dense_cells_are_bitmaps_and_scattered_positions_are_columns_in_one_index(make_index: MakeIndex) -> None:
    """Each chunk takes the container that suits it, and one pop reads both."""
    index, held = both_containers(make_index)
    kinds = {block.kind for chunk in index._chunks for block in chunk.blocks}
    assert kinds == {COLUMNS, BITMAP}
    assert len(index) == len(held)
    assert triples(index.pop_due(200_000)) == held


def test_both_containers_are_drained_together_by_time_and_by_limit(make_index: MakeIndex) -> None:
    """Pops cut through the bitmap cell and the columns, with restarts in between; the order is one."""
    index, held = both_containers(make_index)
    drained: list[Triple] = []
    for now, limit in pairwise([50_000, 40_000, 99_999, 7, 100_000, 2_500, 100_000, 1, 150_000, 200_000, 10**6]):
        drained += triples(index.pop_due(min(now, 200_000), limit))
        index = TimeBucketIndex.from_bytes(index.to_bytes())
        index.check_invariants()
        assert len(index) == len(held) - len(drained)
    drained += triples(index.pop_due(200_000))
    assert drained == held


def test_a_bitmap_cell_knows_its_messages(make_index: MakeIndex) -> None:
    """Adding the dense cell again adds only the entries between its runs."""
    index, held = both_containers(make_index)
    known = sum(due == 100_000 and ledger == 5 and entry < 12_000 for due, ledger, entry in held)
    assert index.add(*batch(5, range(12_000), 100_000)) == 12_000 - known
    assert not index.add_one(5, 11_999, 100_000)


def test_two_interleaved_delays_come_out_as_they_went_in(make_index: MakeIndex) -> None:
    """Every entry of one ledger at one of two times, by chance: two broken cells, nothing lost between them."""
    late = np.random.default_rng(3).random(20_000) < 0.5
    index = make_index(1000)
    index.add(np.zeros(20_000, dtype=np.int64), np.arange(20_000), np.where(late, 120_000, 60_000))
    early = index.pop_due(60_416)
    assert early.entry_ids.tolist() == np.flatnonzero(~late).tolist()
    assert index.pop_due(FOREVER).entry_ids.tolist() == np.flatnonzero(late).tolist()


def test_single_messages_become_a_chunk_when_there_are_many(
    make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fifth message seals the ones before; count and order do not show it."""
    monkeypatch.setattr("state.index.SEAL_AT", 5)
    index = make_index(1)
    for entry in range(13):
        assert index.chunks == entry // 5
        assert index.add_one(1, entry, 100 - entry)
        assert (len(index), index.next_due) == (entry + 1, 100 - entry)
        assert not index.add_one(1, 0, 100)
    assert [entry for _, _, entry in triples(index.pop_due(100))] == list(range(12, -1, -1))
