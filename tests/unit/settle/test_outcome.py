"""What settle puts into the index: every position at its time, in few parts, however far apart the times are."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="settle needs requirements/all.lock")

from pipeline.settle.core.fold import Outcome
from pipeline.settle.core.listener import Listener
from pipeline.subscriptions.policies import Policies
from state.chunk import Chunk
from state.positions import Positions
from state.runs import Runs
from state.settling import Moved
from state.units import Ms

NOW, MINUTE, DAY = 1_800_000_000_000, 60_000, 86_400_000
LISTENER = Listener(("t", "s"), 0, 1, 64, Policies())


def put(due: list[int]) -> pa.Table:
    """The rows of positions 0, 1, ... of ledger 7 that commands move to these times, ms UTC."""
    outcome, entries = Outcome(Ms(NOW), MINUTE), np.arange(len(due))
    ledgers = np.full(len(due), 7)
    positions = Positions.of(ledgers, entries, entries)
    runs = Runs(np.array(due, np.int64), ledgers, entries, entries)
    outcome.moved.append((LISTENER, Moved(positions, 0, 1), runs))
    return outcome.retry_rows()


def held(rows: pa.Table) -> dict[int, int]:
    """When each entry is due, by the chunks of the rows; none is there twice."""
    found: dict[int, int] = {}
    for row in rows.to_pylist():
        singles = Chunk.from_bytes(row["chunk"]).runs().expanded()
        assert not found.keys() & {*singles.entry_ids.tolist()}
        found |= dict(zip(singles.entry_ids.tolist(), singles.due.tolist(), strict=True))
    return found


@pytest.mark.parametrize("count", [1, 40, 100_000])
def test_positions_that_are_due_within_weeks_are_put_into_the_index_in_few_parts(count: int) -> None:
    """The schedule takes milliseconds for each row, and all topics wait meanwhile."""
    due = (NOW + np.random.default_rng(3).integers(-DAY, 20 * DAY, count)).tolist()
    rows = put(due)
    assert rows.num_rows <= 33
    assert held(rows) == {entry: max(each, NOW) for entry, each in enumerate(due)}


def test_a_part_has_the_segment_of_its_first_position_and_no_other_part_has_that_segment() -> None:
    """The state of a segment is one value; two parts of one batch would be merged there."""
    rows = put([NOW + place // 40 * 5 * MINUTE for place in range(8_000)]).to_pylist()
    starts = [row["segment_start"] for row in rows]
    assert len({*starts}) == len(rows) > 1
    for row in rows:
        assert row["first_due"] >= row["segment_start"]
        assert row["first_due"] - row["segment_start"] < timedelta(minutes=1)
    for row, later in pairwise(rows):
        assert row["last_due"] < later["segment_start"]


def test_a_part_of_a_large_batch_is_small_enough_to_be_written_again_each_time_that_some_of_it_is_due() -> None:
    """A value of the state is read and written as a whole."""
    span = 4 << 20
    outcome, ledgers = Outcome(Ms(NOW), MINUTE), np.arange(span >> 10)
    lasts = np.full(len(ledgers), 1_023)
    runs = Runs(NOW + ledgers * MINUTE, ledgers, np.zeros(len(ledgers), np.int64), lasts)
    outcome.moved.append((LISTENER, Moved(Positions.of(ledgers, runs.first_entries, lasts), 0, 1), runs))
    counts = outcome.retry_rows().column("count").to_pylist()
    assert sum(counts) == span
    assert max(counts) <= (1 << 16) + 1_024
