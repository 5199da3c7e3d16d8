"""An index of many chunks that span the same time, popped again and again, against a plain dict of sets."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from state import TimeBucketIndex, encode_chunk
from tests.support.index_model import IndexModel, Message, Rule, columns_of, popped, popped_runs, run_count

SPAN = 60

MESSAGES = st.builds(Message, st.integers(0, 3), st.integers(0, 60), st.integers(0, SPAN))
CHUNKS = st.lists(st.lists(MESSAGES, min_size=5, max_size=30), min_size=1, max_size=12)


@given(
    chunks=CHUNKS,
    ticks=st.lists(st.sampled_from([1, 4]), min_size=12, max_size=12),
    steps=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, None, 2, 7]), st.integers(0, 9)), max_size=20),
    block_rows=st.sampled_from([3, 16, 8_192]),
    heads=st.sampled_from([1 / 8, 1e9]),
)
def test_many_pops_of_many_overlapping_chunks_give_what_is_due(
    chunks: list[list[Message]],
    ticks: list[int],
    steps: list[tuple[int, int | None, int]],
    block_rows: int,
    heads: float,
) -> None:
    """In small steps, whole or by limits, as messages or as runs, now and then from bytes, with chunks of two ticks."""
    with patch("state.blocks.BLOCK_ROWS", block_rows), patch("state.index.HEADS_SHARE", heads):
        index, model, now = TimeBucketIndex(4), IndexModel(Rule(4, strict=True)), 0
        for chunk, tick in zip(chunks, ticks, strict=False):
            assert index.append_chunk(encode_chunk(*columns_of(chunk), tick)) == model.add(chunk, tick)
        for step, limit, kind in [*steps, (SPAN + 4, None, 1)]:
            now += step
            if kind == 0:
                index = TimeBucketIndex.from_bytes(index.to_bytes())
            if limit is None and kind % 2:
                runs, expected = index.pop_due_runs(now), model.pop(now)
                assert (popped_runs(runs), len(runs)) == (expected, run_count(expected))
            else:
                assert popped(index.pop_due(now, limit)) == model.pop(now, limit)
            assert (len(index), index.next_due) == (len(model), model.next_due)
            if kind == 0:
                index.check_invariants()
        assert len(index) == 0
