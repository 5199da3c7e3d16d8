"""TimeBucketIndex by example: looking without taking, extremes, both containers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from state import (
    CorruptBytes,
    IncompatibleChunk,
    InvalidArgument,
    OutOfRange,
    TimeBucketIndex,
    bucket_width,
    describe_chunk,
    encode_chunk,
)
from state.blocks import BITMAP, COLUMNS, Block
from tests.support.index_examples import (
    FOREVER,
    LAST_ENTRY,
    LAST_LEDGER,
    LAST_MS,
    MakeIndex,
    Triple,
    batch,
    quads,
    triples,
)

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
    """Every fifth message seals the five before it; count and order do not show it."""
    monkeypatch.setattr("state.index.SEAL_AT", 5)
    index = make_index(1)
    for entry in range(13):
        assert index.add_one(1, entry, 100 - entry)
        assert index.chunks == entry // 5
        assert (len(index), index.next_due) == (entry + 1, 100 - entry)
        assert not index.add_one(1, 0, 100)
    assert [entry for _, _, entry in triples(index.pop_due(100))] == list(range(12, -1, -1))
