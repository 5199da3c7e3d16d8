"""What the subscriptions have of what dispatch makes visible, told to who watches. No Spark runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.options import Delivered, StageListener
from pipeline.config.stages import DISPATCH
from pipeline.delta.writing.datafiles import DataFile
from pipeline.dispatch.prepared import Part
from pipeline.dispatch.release_local import LocalRelease
from tests.support.stages import Stages
from tests.support.stream import message

T0, SECOND = 2_000_000_000_000, 1_000
Cut = list[list[tuple[str, str, int]]]
"""Topic, subscription and due time (ms) of each delivery, part by part."""
NAMES = st.sampled_from(["a", "b", "c"])
PARTS = st.lists(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 5)), min_size=1, max_size=8), max_size=4)


class Recorder(StageListener):
    """Keeps what a commit has told."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self.counts, self.shares = list[int](), list[Delivered]()

    def published(self, *figures: Any) -> None:  # noqa: ANN401 - counts, times and shares
        """As `StageListener.published`."""
        self.counts.append(figures[0])
        self.shares += figures[4]


def release(parts: Cut) -> LocalRelease:
    """A release with a run for each thing that is due at one time for somebody, and something that is not found."""
    runs = sorted({each for part in parts for each in part})
    columns: Sequence[Sequence[object]] = list(zip(*runs, strict=True)) or [[], [], []]
    table = pa.table(
        {
            "topic": pa.array(columns[0], pa.string()),
            "subscription": pa.array(columns[1], pa.string()),
            "due_time": pa.array(np.array(columns[2], np.int64) * 1_000).cast(pa.timestamp("us", "UTC")),
        }
    )
    run = np.array([0, *(runs.index(each) for part in parts for each in part)], np.int64)
    return LocalRelease(table, cast("Any", SimpleNamespace(run=run, found=np.arange(1, len(run)))))


@given(PARTS)
def test_the_shares_of_a_part_are_what_it_holds_of_each_subscription(parts: Cut) -> None:
    """Count, first and last due time, whatever is in the parts."""
    wanted = list[dict[tuple[str, str], list[int]]]()
    for part in parts:
        wanted.append(defaultdict(list))
        for topic, name, due in part:
            wanted[-1][topic, name].append(due)
    made = [Part(0, 0, 0, (DataFile("f", 1, 0, len(part), "{}"),)) for part in parts]
    found = release(parts).shares(made)
    assert [{(each.topic, each.subscription): each for each in part} for part in found] == [
        {name: Delivered(*name, len(due), min(due), max(due)) for name, due in part.items()} for part in wanted
    ]


def test_a_batch_of_dispatch_tells_what_each_subscription_got(tmp_path: Path) -> None:
    """A message counts for each subscription of its topic, at the tick of that."""
    stages, recorder = Stages(str(tmp_path / "w")), Recorder()
    for topic, name, tick in (("t", "a", 1), ("t", "b", 1_000), ("u", "a", 1)):
        subscribe(stages.root, Subscription(topic, name, tick_ms=tick))
    stages.instant = T0
    stages.ingest()
    rows = [("x", "t", 3), ("y", "t", 4), ("z", "u", 4)]
    sent = [message(name, topic, deliver_at=T0 + due * SECOND) for name, topic, due in rows]
    for instant in (T0 + SECOND, T0 + 10 * SECOND):
        stages.instant = instant
        stages.ingest(*sent)
        sent = []
        stages.release()
        stages._body(DISPATCH).publisher.watch = recorder
        stages.dispatch()
    assert sum(recorder.counts) == 5
    found = {(each.topic, each.subscription): each for each in recorder.shares}
    assert found["t", "a"] == Delivered("t", "a", 2, T0 + 3 * SECOND, T0 + 4 * SECOND)
    assert found["u", "a"] == Delivered("u", "a", 1, T0 + 4 * SECOND, T0 + 4 * SECOND)
    assert (found["t", "b"].count, found["t", "b"].first_due_ms >= T0 + 3 * SECOND) == (2, True)
