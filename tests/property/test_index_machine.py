"""The index against a plain dict of sets, compared after every step of random programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from state import TimeBucketIndex, encode_chunk
from state.blocks import BITMAP, COLUMNS, Block, Rows, _pack_bitmaps, _pack_columns
from state.ledgers import LedgerTable
from tests.support.index_model import (
    IndexModel,
    Message,
    Rule,
    batches,
    columns_of,
    popped,
    popped_runs,
    run_count,
)

TICKS = (1, 100, 1_000, 60_000)


def encode_mixed(rows: Rows, ledgers: LedgerTable) -> Block:
    """A block in the bitmap container where that is possible and its first position is even, whatever is smaller."""
    count = int(rows.lengths.sum())
    bitmaps = None if int(rows.positions[0]) % 2 else _pack_bitmaps(rows, ledgers, count)
    kind, payload = (COLUMNS, _pack_columns(rows)) if bitmaps is None else (BITMAP, bitmaps)
    return Block(kind, int(rows.keys[0]), int(rows.keys[-1]), len(rows), count, payload)


class IndexMachine(RuleBasedStateMachine):
    """Everything one can do to an index, done to the model too."""

    def __init__(self, tick: int, max_chunks: int, *, strict: bool) -> None:
        """An empty index and an empty model."""
        super().__init__()
        self.patches = ExitStack()
        self.index = TimeBucketIndex(tick, strict, max_chunks)
        self.model = IndexModel(Rule(tick, strict))

    @initialize(
        block_rows=st.sampled_from([2, 5, 8_192]),
        bitmaps=st.booleans(),
        seal_at=st.sampled_from([3, 16_384]),
        start=st.sampled_from([0, 1_700_000_000_000]),
        widths=st.sampled_from([300, 10, 1, 10**6]),
        heads=st.sampled_from([1 / 8, 1e9]),
    )
    def begin(self, block_rows: int, *, bitmaps: bool, seal_at: int, start: int, widths: int, heads: float) -> None:
        """Small blocks let a handful of messages cross what thousands cross in earnest."""
        self.patches.enter_context(patch("state.blocks.BLOCK_ROWS", block_rows))
        self.patches.enter_context(patch("state.index.SEAL_AT", seal_at))
        self.patches.enter_context(patch("state.index.HEADS_SHARE", heads))
        if bitmaps:
            self.patches.enter_context(patch("state.blocks._RUNS_PER_CELL", 0))
            self.patches.enter_context(patch("state.blocks._encode", encode_mixed))
        self.start, self.span = start, min(widths * self.model.rule.tick, 10**11)

    def teardown(self) -> None:
        """Put the sizes back."""
        self.patches.close()

    def draw_now(self, data: st.DataObject) -> int:
        """Mostly the edge of a bucket that is pending, an early one more often, so that something stays."""
        keys = sorted(self.model.buckets)
        if not keys or data.draw(st.integers(0, 9)) == 0:
            return data.draw(st.integers(self.start - 100, self.start + 2 * self.span + 100), label="now")
        key = keys[data.draw(st.sampled_from([0, 1, 2, 3, 5, 8, 15])) * len(keys) // 16]
        return self.model.rule.deadline(key) + data.draw(st.sampled_from([-1, 0, 1]))

    def draw_batch(self, data: st.DataObject) -> list[Message]:
        """The messages of one call."""
        return data.draw(batches(self.start, self.span), label="messages")

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        """Arrays through the front door."""
        messages = self.draw_batch(data)
        assert self.index.add(*columns_of(messages)) == self.model.add(messages)

    @rule(data=st.data())
    def add_singly(self, data: st.DataObject) -> None:
        """One by one."""
        for message in self.draw_batch(data)[:12]:
            assert self.index.add_one(*message) == bool(self.model.add([message]))

    @rule(data=st.data())
    def append_own(self, data: st.DataObject) -> None:
        """A chunk of the index's own tick."""
        messages = self.draw_batch(data)
        chunk = encode_chunk(*columns_of(messages), self.model.rule.tick, self.model.rule.strict)
        assert self.index.append_chunk(chunk) == self.model.add(messages)

    @precondition(lambda self: self.model.rule.strict and self.model.rule.tick > 1)
    @rule(data=st.data(), parts=st.sampled_from([2, 1, 3]))
    def append_finer(self, data: st.DataObject, parts: int) -> None:
        """Chunks of a finer tick, one or a few that share ranges."""
        tick = data.draw(st.sampled_from([tick for tick in TICKS if tick < self.model.rule.tick]), label="tick")
        messages = self.draw_batch(data)
        for part in (messages[i::parts] for i in range(parts)):
            new = self.model.add(part, tick)
            assert self.index.append_chunk(encode_chunk(*columns_of(part), tick)) == new

    @precondition(lambda self: self.model.rule.strict)
    @rule(data=st.data())
    def append_coarser(self, data: st.DataObject) -> None:
        """A chunk of a coarser tick, which keeps its own times."""
        messages, tick = self.draw_batch(data), self.model.rule.tick * data.draw(st.sampled_from([2, 7, 60]))
        new = self.model.add(messages, tick)
        assert self.index.append_chunk(encode_chunk(*columns_of(messages), tick)) == new

    @rule(data=st.data())
    def append_part(self, data: st.DataObject) -> None:
        """The chunks of an index that was drained in part: their first blocks are cut."""
        messages, limit = self.draw_batch(data), data.draw(st.integers(0, 20), label="limit")
        source = TimeBucketIndex(self.model.rule.tick, self.model.rule.strict)
        source.add(*columns_of(messages))
        gone = popped(source.pop_due(self.start + 2 * self.span + 200_000, limit))
        left = [m for m in messages if (self.model.rule.key(m.deliver_at), m.ledger_id, m.entry_id) not in set(gone)]
        new = self.model.add(left)
        assert sum(self.index.append_chunk(chunk.to_bytes()) for chunk in source._chunks) == new

    @rule(data=st.data())
    def pop(self, data: st.DataObject) -> None:
        """All that is due."""
        now = self.draw_now(data)
        assert popped(self.index.pop_due(now)) == self.model.pop(now)

    @rule(data=st.data(), limit=st.one_of(st.integers(0, 12), st.sampled_from([100, 1_000])))
    def pop_some(self, data: st.DataObject, limit: int) -> None:
        """The first of what is due."""
        now = self.draw_now(data)
        assert popped(self.index.pop_due(now, limit)) == self.model.pop(now, limit)

    @rule(data=st.data())
    def pop_runs(self, data: st.DataObject) -> None:
        """All that is due, in the fewest runs."""
        now = self.draw_now(data)
        runs, expected = self.index.pop_due_runs(now), self.model.pop(now)
        assert popped_runs(runs) == expected
        assert len(runs) == run_count(expected)

    @rule(pops=st.lists(st.sampled_from([None, None, 1, 3]), min_size=2, max_size=8))
    def pop_one_by_one(self, pops: list[int | None]) -> None:
        """Bucket by bucket, or a few messages of one, with nothing in between."""
        for limit in pops:
            if (now := self.model.next_due) is not None:
                assert popped(self.index.pop_due(now, limit)) == self.model.pop(now, limit)

    @rule()
    def restart(self) -> None:
        """Through bytes, which come out the same a second time."""
        data = self.index.to_bytes()
        self.index = TimeBucketIndex.from_bytes(data)
        assert self.index.to_bytes() == data
        assert (self.index.rule.tick_ms, self.index.rule.strict) == (self.model.rule.tick, self.model.rule.strict)

    @rule(limit=st.sampled_from([1, 2, 3]))
    def compact(self, limit: int) -> None:
        """Fewer chunks, the same messages."""
        self.index.compact(limit)
        assert self.index.chunks <= limit

    @rule(width=st.sampled_from([1, 1_000, 60_000, 77_777]))
    def count(self, width: int) -> None:
        """The histogram changes nothing."""
        assert self.index.counts(width) == self.model.counts(width)

    @rule()
    def clear(self) -> None:
        """Forget everything."""
        self.index.clear()
        self.model.clear()

    @invariant()
    def agrees(self) -> None:
        """What one can see without taking anything out is what the model has."""
        self.index.check_invariants()
        assert len(self.index) == len(self.model)
        assert self.index.next_due == self.model.next_due


@pytest.mark.parametrize(
    ("tick", "max_chunks"),
    [(1, 1), (1, 32), (100, 2), (100, 3), (1_000, 1), (1_000, 2), (1_000, 3), (1_000, 32), (60_000, 2), (60_000, 32)],
)
def test_a_strict_index_is_a_dict_of_sets(tick: int, max_chunks: int) -> None:
    """After every step of a random program the index is what the model is."""
    run(partial(IndexMachine, tick, max_chunks, strict=True))


@pytest.mark.parametrize(("tick", "max_chunks"), [(1, 2), (100, 1), (1_000, 3), (1_000, 32), (60_000, 2)])
def test_a_tolerant_index_is_a_dict_of_sets(tick: int, max_chunks: int) -> None:
    """The same under the reference's own due rule."""
    run(partial(IndexMachine, tick, max_chunks, strict=False))


def run(machine: Callable[[], IndexMachine]) -> None:
    """A share of the profile's examples for each of the fifteen settings."""
    examples = max(1, settings().max_examples // 10)
    chosen = settings(max_examples=examples, stateful_step_count=40)
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type] # it calls it, and any factory will do
