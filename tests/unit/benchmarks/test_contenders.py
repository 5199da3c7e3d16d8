"""The baselines of the benchmark give what the index gives, or the comparison would be worth nothing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.index import Workload, load
from benchmarks.support.contenders import BASELINES, Contender, Index


def drained(contender: Contender, workload: Workload) -> list[tuple[list[int], list[int]]]:
    """What the contender gives in ten drains of 5 000 messages added in two batches."""
    arrays = workload.messages(5_000)
    for part in (slice(0, 2_000), slice(2_000, None)):
        contender.add(*(array[part] for array in arrays))
    instants = np.linspace(int(arrays[2].min()), int(arrays[2].max()) + workload.tick_ms, 10).astype(int).tolist()
    return [tuple(np.asarray(column).tolist() for column in contender.drain(now)) for now in instants]


@pytest.mark.parametrize("workload", load("workload"), ids=lambda workload: workload.name)
def test_every_contender_gives_the_same_positions_in_the_same_order(workload: Workload) -> None:
    """Each baseline drains exactly what the index drains, on every workload of the benchmark."""
    expected = drained(Index(workload.tick_ms), workload)
    assert sum(len(ledgers) for ledgers, _ in expected) == 5_000
    for baseline in BASELINES:
        assert drained(baseline(workload.tick_ms), workload) == expected, baseline.name
