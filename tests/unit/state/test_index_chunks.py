"""TimeBucketIndex by example: chunks, compaction, coarser and foreign ones."""

from __future__ import annotations

import numpy as np
import pytest

from state import (
    IncompatibleChunk,
    OutOfRange,
    TimeBucketIndex,
    encode_chunk,
)
from tests.support.index_examples import FOREVER, MakeIndex, batch, quads, triples

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
