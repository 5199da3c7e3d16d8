"""A clone goes on as its source does, whatever was going on when it was made (`pipeline.service.clone`).

The worlds are those of `tests.support.operated` and `tests.property.test_changed_minds`: stages that die in the middle
of a batch, stay away, have prepared what nobody sees yet; consumers, commands, pauses, guards, maintenance, clocks. A
clone is made at some moments, and the world goes on in it. One more is made at the last moment: then source and clone
come to their end, each by itself, and hold the same deliveries.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

pytest.importorskip("pyspark", reason="the stages are made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.client.insight.pendingfollower import PendingFollower
from pipeline.delta.deltars import open_table
from pipeline.service.clone import clone
from schemas import DELIVERIES, MESSAGES
from tests.property.test_changed_minds import Minds
from tests.support.job import Job
from tests.support.operated import Operated
from tests.support.stages import Stages

OF_BATCH = {"batch_id", "sequence", "released_at", "cause"}
"""Columns of deliveries that say which batch has made a row, and when, or by which way it came."""


def deliveries(root: str) -> list[dict[str, Any]]:
    """What was delivered, but for the batches that did it."""
    names = [name for name in DELIVERIES.columns.names if name not in OF_BATCH]
    rows: Sequence[dict[str, Any]] = open_table(root, DELIVERIES).to_pyarrow_table(columns=names).to_pylist()
    return sorted(rows, key=lambda row: (row["subscription"], row["ledger_id"], row["entry_id"], str(row)))


class OperatedClones(Operated):
    """Operators, clocks and deaths."""

    clones = 0

    @rule()
    def move(self) -> None:
        """The world goes on in a clone."""
        self.begin_in(self.cloned())

    def cloned(self) -> str:
        """Make a clone."""
        self.clones += 1
        return clone(self.stages.root, f"{self.folder}/clone {self.clones}").target

    def begin_in(self, root: str) -> None:
        """Start the stages on a clone; those that were away stay away."""
        away, old = self.job.away, self.stages
        self.stages = Stages(root, old.settings, clock=old.clock)
        self.job, self.followed = Job(self.stages, self.job.clocks, away), PendingFollower(root)
        vars(self).pop("_copied", None)

    def end(self) -> None:
        """Source and clone come to their end, and it is the same."""
        target, source, clocks = self.cloned(), self.stages.root, self.job.clocks
        # What is in the inbox without a time gets that of its ingest, whose clock somebody may have set.
        taken = {(row["ledger_id"], row["entry_id"]) for row in self.rows(MESSAGES)}
        before = deepcopy({name: getattr(self, name) for name in (*self.MODEL, "seen")})
        wall, elapsed = clocks.wall, clocks.elapsed
        super().end()
        vars(self).update(before)
        clocks.wall, clocks.elapsed = wall, elapsed
        self.begin_in(target)
        super().end()
        ends = [
            [row for row in deliveries(root) if (row["ledger_id"], row["entry_id"]) in taken]
            for root in (source, target)
        ]
        assert ends[0] == ends[1]


class MindsInClones(Minds):
    """Commands, pauses, guards, consumers and deaths."""

    clones = 0

    def end(self) -> None:
        """Source and clone come to their end, and it is the same."""
        target, source, instant = f"{self.folder}/clone", self.root, self.stages.instant
        clone(source, target)
        before = deepcopy({name: getattr(self, name) for name in self.MODEL})
        super().end()
        vars(self).update(before)
        self.stages = Stages(target, self.stages.settings)
        self.root, self.stages.instant, self.followed = target, instant, PendingFollower(target)
        # The batch that died was finished when the clone was made.
        self.decided = False
        super().end()
        assert deliveries(source) == deliveries(target)


@pytest.mark.soak
@pytest.mark.parametrize("world", [OperatedClones, MindsInClones])
def test_a_clone_delivers_what_its_source_delivers(world: type[OperatedClones | MindsInClones]) -> None:
    """Nothing twice, nothing lost, nothing early, and the doctor finds nothing."""
    examples = max(1, settings().max_examples // 20)
    run_state_machine_as_test(world, settings=settings(stateful_step_count=20, max_examples=examples))
