"""A run of settle while the clock of the machine was a day ahead, and what comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

pytest.importorskip("pyspark", reason="settle is made for sessions of Spark")
pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")

from pipeline.config.options import nobody
from pipeline.config.stages import SETTLE
from pipeline.delta.deltars import open_table
from pipeline.settle.stage import Settle
from schemas import CURSORS, SEGMENTS
from state.units import Ms
from tests.support.released import T0, released, say
from tests.support.stages import Stages

"""Behind any wall clock, by which a release is due."""
TOMORROW, DELAY_MS = T0 + 86_400_000, 7_000


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Stages]:
    """Two messages were released to a subscription that acknowledges."""
    with released(tmp_path, "a", "b", visible=False) as found:
        yield found


def fails(stages: Stages, entry: int) -> None:
    """A consumer says that a delivery has failed, and is to come again after the delay."""
    say(stages, "nack", entry, after_ms=DELAY_MS)


def reset(stages: Stages) -> Settle:
    """What `rebuild --reset-clock` does with settle."""
    settle = Settle(stages.warehouse, nobody)
    settle.reset_clock(Ms(T0))
    stages.restart("settle")
    return settle


def dues(stages: Stages) -> list[int]:
    """When what settle has put back comes again, in the order in which it did, ms UTC."""
    rows = open_table(stages.root, SEGMENTS).to_pyarrow_table().sort_by("batch_id").to_pylist()
    return [round(row["first_due"].timestamp() * 1_000) for row in rows if row["kind"] == "retry"]


def settled_at(stages: Stages, instant: int) -> bool:
    """Settle takes what there is at an instant."""
    stages.instant = instant
    return stages.settle()


def test_a_delay_counts_from_the_present_time_again_when_the_clock_was_reset(stages: Stages) -> None:
    """Else all that failed came a day late."""
    assert settled_at(stages, TOMORROW)
    assert reset(stages).instant == T0
    fails(stages, 0)
    assert settled_at(stages, T0)
    assert dues(stages) == [T0 + DELAY_MS]


@pytest.mark.parametrize("step", ["noted", "segments"])
def test_a_batch_of_the_wrong_time_that_was_torn_is_finished_before_the_clock_is_reset(
    stages: Stages, step: str
) -> None:
    """What it has put back is there, so it is finished as it was planned; nothing comes twice."""
    fails(stages, 0)
    stages.die_after(f"settle.{step}")
    assert not settled_at(stages, TOMORROW)
    assert reset(stages).instant == T0
    assert dues(stages) == [TOMORROW + DELAY_MS]
    fails(stages, 1)
    assert settled_at(stages, T0)
    assert dues(stages) == [TOMORROW + DELAY_MS, T0 + DELAY_MS]


def test_a_torn_batch_is_finished_as_planned_by_who_lost_the_checkpoint_and_was_asked_for_its_time(
    stages: Stages,
) -> None:
    """The commits know the plan. A start asks for the time first, and takes batches then."""
    assert settled_at(stages, T0)
    fails(stages, 0)
    stages.die_after("settle.segments")
    assert not settled_at(stages, T0)
    rmtree(stages.warehouse.checkpoint(SETTLE))
    settle = Settle(stages.warehouse, nobody)
    assert settle.instant == T0
    assert settle.step(Ms(T0 + DELAY_MS), patient=False)
    assert settle.instant == T0
    assert dues(stages) == [T0 + DELAY_MS]


def test_a_clock_that_was_right_is_not_reset(stages: Stages) -> None:
    """Then there is nothing to say, and nothing is committed."""
    assert settled_at(stages, T0)
    version = open_table(stages.root, CURSORS).version()
    assert reset(stages).instant == T0
    assert open_table(stages.root, CURSORS).version() == version


def test_the_time_of_a_batch_that_was_only_begun_is_known(stages: Stages) -> None:
    """By it a start finds out that the clock was wrong."""
    fails(stages, 0)
    stages.die_after("settle.noted")
    assert not settled_at(stages, TOMORROW)
    assert Settle(stages.warehouse, nobody).instant == TOMORROW
