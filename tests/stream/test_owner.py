"""One owner per stage: who may start it, and who may not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from pipeline.config.errors import CheckpointBehind, ForeignOwner, StageRunning
from pipeline.config.stages import STAGES
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    message,
    payloads,
    restart,
    stop,
    subscribe,
)
from tests.support.together import Played, play_together

T0 = 1_700_000_000_000


def cut_short(topic: str) -> list[Step]:
    """Each stage died while it noted its first batch: what it leaves has no name yet."""

    def cut(world: World) -> None:
        world.lose(*STAGES)
        for stage in STAGES:
            noted = Path(world.warehouse.checkpoint(stage)) / "offsets"
            noted.mkdir(parents=True)
            (noted / ".0.4c6f7374.tmp").write_text("v1\n{")

    return [
        check(cut),
        subscribe(topic, "s"),
        restart(),
        append(message("m", topic, after=1_000)),
        advance(T0),
        advance(T0 + 1_000),
        delivered("m", topic=topic),
    ]


def second_process() -> list[Step]:
    """Each stage is started while it runs."""

    def second(world: World) -> None:
        for stage in STAGES:
            with pytest.raises(StageRunning) as raised:
                world.start(stage)
            assert raised.value.stage == stage

    return [advance(T0), check(second)]


def set_back(topic: str) -> list[Step]:
    """The offset log of ingest ends after its first batch."""

    def shorter(world: World) -> None:
        for log in ("offsets", "commits"):
            entries = sorted(Path(world.warehouse.checkpoint(STAGES[0]), log).glob("[0-9]*"), key=lambda p: int(p.name))
            for entry in entries[1:]:
                entry.unlink()
                entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
        with pytest.raises(CheckpointBehind) as raised:
            world.begin()
        assert raised.value.held > raised.value.asked
        assert payloads(world, topic=topic) == ["a", "b"]

    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(T0 + 1_000),
        append(message("b", topic)),
        advance(T0 + 2_000),
        stop(),
        check(shorter),
    ]


def new_checkpoints() -> list[Step]:
    """All checkpoints are gone in the end."""

    def refused(world: World) -> None:
        world.lose(*STAGES)
        for stage in STAGES:
            with pytest.raises(ForeignOwner) as raised:
                world.start(stage)
            assert raised.value.ours is None

    return [advance(T0 + 2_000), check(refused)]


@cache
def seconds() -> Played:
    """The run."""
    return play_together(
        {
            "cut short": cut_short("cut short"),
            "second process": second_process(),
            "set back": set_back("set back"),
            "new checkpoints": new_checkpoints(),
        }
    )


def test_a_second_process_is_refused() -> None:
    """A stage that runs cannot be started again."""
    seconds().shows("second process")


def test_a_new_checkpoint_is_refused() -> None:
    """A stage whose tables another checkpoint wrote does not start at all."""
    seconds().shows("new checkpoints")


def test_a_checkpoint_that_was_set_back_writes_nothing_twice() -> None:
    """With an old offset log a stage would write its batches again under old numbers: it stops instead."""
    seconds().shows("set back")


def test_a_process_that_died_while_it_noted_its_first_batch_goes_on() -> None:
    """Spark would refuse every further start because of what it left."""
    seconds().shows("cut short")
