"""Fixtures of the unit tests: things that are checked once more when a test is over, and counters of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from state import DelayedDeliveryTracker, HeapTracker, TimeBucketIndex, TimeBucketTracker
from state.blocks import Block, Rows, decode_block, encode_blocks
from state.ledgers import LedgerTable

MakeIndex = Callable[..., TimeBucketIndex]
MakeTracker = Callable[[int, bool], DelayedDeliveryTracker]


@pytest.fixture
def make_index() -> Iterator[MakeIndex]:
    """Makes an index (tick, strict, max_chunks) whose invariants are checked on teardown."""
    made: list[TimeBucketIndex] = []

    def make(tick_ms: int = 1000, strict: bool = True, max_chunks: int = 32) -> TimeBucketIndex:  # noqa: FBT001, FBT002 - the signature of the index
        made.append(TimeBucketIndex(tick_ms, strict, max_chunks))
        return made[-1]

    yield make
    for index in made:
        index.check_invariants()


@pytest.fixture(params=[HeapTracker, TimeBucketTracker])
def make_tracker(request: pytest.FixtureRequest) -> Iterator[MakeTracker]:
    """Makes a tracker of either kind; the invariants of the bucket kind are checked on teardown."""
    made: list[DelayedDeliveryTracker] = []

    def make(tick_ms: int, strict: bool) -> DelayedDeliveryTracker:  # noqa: FBT001 - the signature of the trackers
        tracker: DelayedDeliveryTracker = request.param(tick_ms, strict)
        made.append(tracker)
        return tracker

    yield make
    for tracker in made:
        if isinstance(tracker, TimeBucketTracker):
            tracker.index.check_invariants()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks that were decoded since, one element each time."""
    blocks: list[Block] = []

    def count(block: Block, ledgers: LedgerTable, last_key: int | None = None) -> object:
        blocks.append(block)
        return decode_block(block, ledgers, last_key)

    monkeypatch.setattr("state.chunk.decode_block", count)
    return blocks


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of runs that were encoded since, one element a chunk."""
    sizes: list[int] = []

    def count(rows: Rows, ledgers: LedgerTable) -> object:
        sizes.append(len(rows))
        return encode_blocks(rows, ledgers)

    monkeypatch.setattr("state.chunk.encode_blocks", count)
    return sizes


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of four runs: a handful of messages crosses what thousands cross in earnest."""
    monkeypatch.setattr("state.blocks.BLOCK_ROWS", 4)
    return 4
