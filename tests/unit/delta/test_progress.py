"""How far the query of another stage is: by the batches that it has done, and not by those that it has begun."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="checkpoints need requirements/all.lock")

from pipeline.config.stages import SCHEDULE
from pipeline.delta.checkpoints import Checkpoint, Position, Progress
from pipeline.delta.warehouse import Warehouse
from pipeline.storage.files import Files
from pipeline.testing.batches import Batches
from state.units import Ms


class Query:
    """The clock of a batch is the watermark of the next one."""

    def __init__(self, folder: Path) -> None:
        """No batch is begun."""
        self._batches, self._watermark = Batches(Warehouse(str(folder)), SCHEDULE), 0
        self.progress = partial(Progress, Checkpoint(Files(), self._batches.path))

    def begin(self, instant: int, version: int = 1) -> None:
        """Plan a batch."""
        self._batches.plan(Position(Ms(instant), version, 0), self._watermark)
        self._watermark = instant

    def finish(self) -> None:
        """Do the batch, if it is not done."""
        if self._batches.died:
            self._batches.commit()


def test_a_query_is_at_an_instant_when_a_batch_with_that_watermark_is_done(tmp_path: Path) -> None:
    """After a start what is due at once would come before what was due earlier and waits in the state."""
    query = Query(tmp_path)
    progress = query.progress()
    assert not progress.is_at(Ms(1))
    query.begin(1_000)
    assert not progress.is_at(Ms(1))
    query.finish()
    assert not progress.is_at(Ms(1))  # Timeouts up to the clock of this batch are fired by the next one.
    query.begin(2_000)
    assert not progress.is_at(Ms(1))
    query.finish()
    assert [progress.is_at(Ms(each)) for each in (1_001, 1_000, 5)] == [False, True, True]


def test_a_version_may_be_read_while_somebody_waits_for_that(tmp_path: Path) -> None:
    """Only a done batch has read it."""
    query, pauses = Query(tmp_path), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        query.finish()

    progress = query.progress(pause)
    query.begin(1_000, version=8)
    assert not progress.has_read(7, 0)
    assert not pauses
    assert not progress.has_read(8, 200)
    assert sum(pauses) == pytest.approx(0.2)
    query.begin(2_000, version=9)
    pauses.clear()
    assert not progress.has_read(8, 0)
    assert progress.has_read(8, 5_000)
    assert len(pauses) == 1
