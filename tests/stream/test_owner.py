"""One owner per stage: who may start it, and who may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.errors import CheckpointBehind, ForeignOwner, StageRunning
from pipeline.config.stages import STAGES
from pipeline.service.run import start
from schemas import DELIVERIES
from tests.support.stream import (
    World,
    advance,
    append,
    check,
    delivered,
    message,
    play,
    restart,
    stop,
    subscribe,
)

T0 = 1_700_000_000_000


def test_a_second_process_and_a_new_checkpoint_are_refused(spark: SparkSession, folder: str) -> None:
    """A stage that runs cannot be started again; one whose tables another checkpoint wrote does not start at all."""

    def second(world: World) -> None:
        for stage in STAGES:
            with pytest.raises(StageRunning) as raised:
                start(spark, world.warehouse, stage, world.options)
            assert raised.value.stage == stage

    def new_checkpoint(world: World) -> None:
        world.lose(*STAGES)
        for stage in STAGES:
            with pytest.raises(ForeignOwner) as raised:
                start(spark, world.warehouse, stage, world.options)
            assert raised.value.ours is None

    script = [subscribe("t", "s"), append(message("a")), advance(T0), check(second), stop(), check(new_checkpoint)]
    play(spark, folder, script)


def test_a_checkpoint_that_was_set_back_writes_nothing_twice(spark: SparkSession, folder: str) -> None:
    """With an old offset log a stage would write its batches again under old numbers: it stops instead."""

    def set_back(world: World) -> None:
        for log in ("offsets", "commits"):
            entries = sorted(Path(world.warehouse.checkpoint(STAGES[0]), log).glob("[0-9]*"), key=lambda p: int(p.name))
            for entry in entries[1:]:
                entry.unlink()
                entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
        with pytest.raises(CheckpointBehind) as raised:
            world.begin()
        assert raised.value.held > raised.value.asked
        assert len(world.rows(DELIVERIES)) == 2

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            advance(T0 - 1),
            append(message("a")),
            advance(T0),
            append(message("b")),
            advance(T0 + 1),
            stop(),
            check(set_back),
        ],
    )


def test_a_process_that_died_while_it_noted_its_first_batch_goes_on(spark: SparkSession, folder: str) -> None:
    """What it leaves has no name yet. Spark would refuse every further start because of it."""

    def cut_short(world: World) -> None:
        world.lose(*STAGES)
        for stage in STAGES:
            noted = Path(world.warehouse.checkpoint(stage)) / "offsets"
            noted.mkdir(parents=True)
            (noted / ".0.4c6f7374.tmp").write_text("v1\n{")

    script = [check(cut_short), subscribe("t", "s"), restart(), append(message("m", after=1_000))]
    play(spark, folder, [*script, advance(T0), advance(T0 + 1_000), delivered("m")])
