"""Random worlds by Spark beside the same ones in this process; `make test` plays a few of them.

`DELAYLINE_WORLDS` says how many are played on each way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings

from pipeline.config.options import Options
from pipeline.config.settings import VirtualClock
from pipeline.config.stages import SCHEDULE
from pipeline.delta.warehouse import Warehouse
from pipeline.service.rebuild import rebuild
from schemas import PUBLICATIONS, REDELIVERY, SEGMENTS
from tests.support.drawnscripts import POLICIES, STEADY, Script, scripts
from tests.support.playedscripts import OF_BATCHES, SETTINGS, DistantWarehouse, Played, Way, play, undisturbed
from tests.support.spark import session

COUNT = int(os.environ.get("DELAYLINE_WORLDS", "25"))
_BY_SPARK = replace(SETTINGS, driver_rows=0)


def by_spark(root: str) -> Way:
    """Ingest and dispatch do their batches by Spark, however small they are."""
    return Way(Played(root, Warehouse(root, session()), _BY_SPARK))


def from_afar(root: str) -> Way:
    """Spark alone reads the rows of tables, for settle, too."""
    return Way(Played(root, DistantWarehouse(root, session())))


def changing(root: str) -> Way:
    """Who dies goes on by Spark, and who dies there in this process."""
    stages = Played(root, Warehouse(root, session()), others=_BY_SPARK)
    return Way(stages, dies=True, but=OF_BATCHES, less=(PUBLICATIONS,))


def rebuilt(root: str) -> Way:
    """The index is rebuilt by Spark before each step."""

    def before(stages: Played) -> None:
        rebuild(Warehouse(root, session()), SCHEDULE, Options(VirtualClock(), SETTINGS))
        stages.restart(SCHEDULE)

    return Way(Played(root), before=before, but=OF_BATCHES, less=(SEGMENTS, REDELIVERY, PUBLICATIONS), rebuilt=True)


@pytest.mark.parametrize("way", [by_spark, from_afar, changing, rebuilt])
def test_spark_makes_of_any_world_what_is_made_here(way: Callable[[str], Way]) -> None:
    """Whatever is asked for, said, commanded and taken back; and whatever dies, where a death is drawn."""
    steady = way in (changing, rebuilt)

    @settings(max_examples=COUNT, phases=[Phase.explicit, Phase.reuse, Phase.generate])
    @given(scripts(STEADY if steady else POLICIES, 3, 5, deaths=way is changing))
    def search(script: Script) -> None:
        play(script, undisturbed, way)

    search()
