"""A warehouse is copied while its stages run, and the copy goes on."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest
from pyspark.sql import SparkSession

from pipeline.config.errors import PipelineError
from pipeline.config.stages import STAGES
from pipeline.delta.warehouse import Warehouse
from pipeline.service.rebuild import rebuild
from tests.support.stream import Step, World, advance, append, check, message, payloads, play, subscribe

T0 = 1_700_000_000_000

COPIED = (
    ("_checkpoints", "_clock"),
    ("deliveries", "publications", "rejected_dispatch"),
    ("redelivery", "rejected_schedule"),
    ("segments", "rejected_ingest", "commands"),
    ("messages",),
    ("inbox", "subscriptions"),
)
"""The order in which a warehouse may be copied while the stages run; `docs/operations.md` says it."""


def copy_now(*names: str) -> Step:
    """Copy some folders of the warehouse, as they are now."""

    def step(world: World) -> None:
        for name in names:
            if (source := Path(world.warehouse.root, name)).exists():
                copytree(source, Path(f"{world.warehouse.root}.copy", name))

    return step


@pytest.mark.soak
def test_a_copy_that_was_taken_while_the_stages_ran_goes_on_after_a_rebuild(spark: SparkSession, folder: str) -> None:
    """Each table is from another time; downstream ones are older, so what they lack is found upstream."""

    def on_the_copy(world: World) -> None:
        world.end()
        copy = World(Warehouse(f"{world.warehouse.root}.copy", spark), world.options, instant=world.instant)
        with pytest.raises(PipelineError):
            copy.begin()
        copy.lose()
        for stage in STAGES:
            rebuild(copy.warehouse, stage, copy.options)
        append(message("last"))(copy)
        copy.begin()
        advance(T0 + 100_000)(copy)
        copy.end()
        sent = [f"{kind} {number}" for kind in ("late", "now") for number in range(len(COPIED))]
        assert sorted(payloads(copy)) == sorted([*sent, "last"])

    moves: list[Step] = []
    for number, names in enumerate(COPIED):
        moves += [
            append(message(f"now {number}"), message(f"late {number}", after=50_000)),
            advance(T0 + 1_000 * number),
            copy_now(*names),
        ]
    play(spark, folder, [subscribe("t", "s"), *moves, check(on_the_copy)])
