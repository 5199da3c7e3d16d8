"""The plain applications that delayline is measured against deliver the same messages, at the same instants."""

from __future__ import annotations

from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from benchmarks.baselines import polling, rowwise
from pipeline.config.options import Options
from pipeline.config.settings import VirtualClock
from pipeline.delta.tables import create_all
from pipeline.delta.warehouse import Warehouse
from tests.support.stream import World, advance, append, delivered, message, subscribe

T0 = 1_700_000_000_000


@pytest.mark.soak
@pytest.mark.parametrize("system", [rowwise, polling], ids=["row-wise", "polling"])
def test_a_baseline_delivers_each_message_once_when_it_is_due(
    spark: SparkSession, folder: str, system: ModuleType
) -> None:
    """A comparison with something that loses, repeats or hurries messages would be worth nothing."""
    options = Options(VirtualClock())
    world = World(Warehouse(folder, spark), options)
    create_all(world.warehouse)
    subscribe("t", "s")(world)
    subscribe("t", "other")(world)
    world.running = [system.start(world.warehouse, stage, options) for stage in system.STAGES]
    try:
        for step in (
            append(message("late", deliver_at=T0 + 5_000), message("soon", after=3_000), message("now")),
            advance(T0),
            delivered("now"),
            advance(T0 + 2_999),
            delivered("now"),
            append(message("next", after=1_000), message("refused", after=-1)),
            advance(T0 + 3_000),
            delivered("now", "soon"),
            advance(T0 + 60_000),
            delivered("now", "soon", "next", "late"),
            delivered("now", "soon", "next", "late", subscription="other"),
        ):
            step(world)
    finally:
        world.end()
