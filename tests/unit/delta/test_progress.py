"""How far the query of another stage is: by the batches that it has done, and not by those that it has begun."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="checkpoints need requirements/all.lock")

from pipeline.config.stages import SCHEDULE
from pipeline.delta.checkpoints import LET_GO, Checkpoint, Position, Progress
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

    def note(self, batch: int, told: dict[str, int]) -> None:
        """What the clock says beside the instant of a batch."""
        path = Path(self._batches.path, "offsets", str(batch))
        *head, clock, place = path.read_text().splitlines()
        path.write_text("\n".join([*head, json.dumps(json.loads(clock) | told), place]))
        assert self._batches.end.instant == json.loads(clock)["instant"]

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


def test_what_a_query_has_let_go_is_said_by_batches_that_are_done(tmp_path: Path) -> None:
    """Whatever later ones keep: it does not come back. Earlier releases said nothing."""
    query, found = Query(tmp_path), list[bool]()
    progress = query.progress()
    for batch, told in enumerate(({}, {LET_GO: 8}, {})):
        query.begin(1_000 + batch, version=8 + batch)
        query.note(batch, told)
        for done in (False, True):
            if done:
                query.finish()
            assert not progress.is_at(Ms(10_000))
            assert not progress.has_let_go(8)
            found.append(progress.has_let_go(7))
    assert found == [False, False, False, True, True, True]


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
