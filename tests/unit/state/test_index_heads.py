"""TimeBucketIndex by example: the blocks that pops keep decoded, and what they may take."""

from __future__ import annotations

import numpy as np
import pytest

from state import TimeBucketIndex
from state.blocks import Block
from tests.support.index_examples import MakeIndex, batch, triples


def test_pops_that_follow_each_other_decode_a_block_once(
    make_index: MakeIndex, decoded: list[Block], small_blocks: int
) -> None:
    """A hundred pops of one message each of two chunks, twenty-five blocks of each: no block is decoded at each pop."""
    index = make_index(1)
    assert small_blocks == 4
    for ledger in (1, 2):
        index.add(*batch(ledger, range(0, 800, 2), range(1_000, 1_400)))
    decoded.clear()
    for now in range(1_000, 1_100):
        assert triples(index.pop_due(now)) == [(now, 1, 2 * (now - 1_000)), (now, 2, 2 * (now - 1_000))]
    assert 50 <= len(decoded) <= 54


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_a_limited_pop_goes_on_inside_a_run_of_a_decoded_block(
    make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch, small_blocks: int, limit: int
) -> None:
    """A few messages at a time, one run in ten of two, wherever a block was cut when it was decoded and since."""
    monkeypatch.setattr("state.index.HEADS_SHARE", 100)
    index = make_index(1)
    entries = [entry for entry in range(1_200) if entry % 2 or entry % 20 == 0]
    assert small_blocks == 4
    index.add(*batch(1, entries, 1_000))
    drained = [triples(index.pop_due(1_000, limit)) for _ in range(100)]
    assert drained == [[(1_000, 1, entry) for entry in entries[i * limit : (i + 1) * limit]] for i in range(100)]


def scattered(number: int) -> TimeBucketIndex:
    """An index of this many messages over a day in three chunks, each entry at a time of its own."""
    index, rng = TimeBucketIndex(1000), np.random.default_rng(7)
    for ledger in range(3):
        index.add(np.full(number // 3, ledger), np.arange(number // 3), rng.integers(0, 86_400_000, number // 3))
    return index


@pytest.mark.parametrize(("number", "keeps"), [(1_200_000, True), (90_000, False)])
def test_decoded_blocks_take_about_an_eighth_of_what_is_left_at_most(number: int, *, keeps: bool) -> None:
    """Until the index is empty; one for which a decoded block is too much keeps none."""
    index = scattered(number)
    ratios = []
    for now in range(10_000, 200_000, 10_000):
        index.pop_due(now)
        ratios.append(index.nbytes / TimeBucketIndex.from_bytes(index.to_bytes()).nbytes)
    for now in range(80_000_000, 86_200_000, 400_000):
        index.pop_due(now)
        ratios.append(index.nbytes / TimeBucketIndex.from_bytes(index.to_bytes()).nbytes)
    assert (max(ratios) > 1) == keeps
    assert max(ratios) <= 1.15


def test_the_first_pop_of_an_index_keeps_nothing_and_bytes_hold_no_decoded_block() -> None:
    """Who reads an index from bytes for each pop neither pays for decoded blocks nor writes them."""
    index = scattered(1_200_000)
    index.pop_due(10_000)
    index.pop_due(20_000)
    again = TimeBucketIndex.from_bytes(index.to_bytes())
    assert again.nbytes < index.nbytes
    before = again.nbytes
    again.pop_due(30_000)
    index.pop_due(30_000)
    assert again.nbytes <= before
    assert again.to_bytes() == index.to_bytes()
