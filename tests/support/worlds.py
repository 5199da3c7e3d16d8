"""The shells in which scripts of stages are played: in this process without a JVM, and on Spark.

A script whose steps need no stream of Spark is played here by `make test`, and on Spark by `make soak`. Such scripts
are about what the bodies of stages decide; Spark calls these in the same order either way. An instant takes a tenth of
the time here. A rebuild is done by the session of the tests either way. So are batches here that are Spark's by a
smaller `driver_rows`: the bodies make them with the frames and the rules of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

from pipeline.config.options import Options
from pipeline.config.settings import Clock, Settings, VirtualClock
from pipeline.config.stages import ALL_STAGES
from pipeline.delta.warehouse import Warehouse
from tests.support.spark import session
from tests.support.stages import Stages
from tests.support.stream import Step, World, play, take


@dataclass
class LocalWorld(World):
    """A world whose stages need no JVM.

    Each batch of dispatch has the present instant; on Spark one that only has new rows has the instant of the batch
    before.
    """

    stages: Stages = field(init=False)
    alive: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the warehouse."""
        self.stages = Stages(self.warehouse.root, self.options.settings, self.observe)

    def begin(self) -> None:
        """Start all stages and let them finish what a dead process left."""
        self.begin_stages(*ALL_STAGES)
        if self.instant:
            self.drain()

    def begin_one(self, name: str) -> None:
        """Start a stage that does not run, beside the others, and let all come to the present."""
        self.begin_stages(name)
        self.drain()

    def begin_stages(self, *names: str) -> None:
        """Start some stages."""
        self.born()
        self.stages.settings = self.options.settings
        some_by_spark = self.options.settings.driver_rows < Settings.driver_rows
        self.stages.warehouse = self.warehouse.within(session() if some_by_spark else None)
        for name in names:
            self.stages.restart(name)
        self.alive = [name for name in ALL_STAGES if name in (*self.alive, *names)]

    def end_one(self, name: str) -> None:
        """Stop one stage; the others go on."""
        self.alive.remove(name)

    def end(self) -> None:
        """Stop all stages."""
        self.alive = []

    def lose(self, *stages: str) -> None:
        """Stop all stages, and lose the checkpoints of some."""
        self.end()
        for stage in stages:
            rmtree(self.warehouse.checkpoint(stage))

    def start(self, stage: str, clock: Clock | None = None) -> None:
        """Begin a stage beside the script, by another clock when that is given."""
        Stages(self.warehouse.root, self.options.settings, clock=clock or self.options.clock).start(stage)

    def drain(self) -> None:
        """Bring every stage to the current instant, one after the other; a killed one takes all down, or itself."""
        self.stages.instant = self.instant
        if self.alive:
            self.produce()
        for name in self.alive:
            if not self._reaches(name):
                self.fall()
                return

    def _reaches(self, name: str) -> bool:
        """Let a stage do what there is to do; whether it lives."""
        match name:
            case "ingest":
                while self.stages.has_ingest:
                    if not self.stages.ingest():
                        return False
            case "schedule":
                return self.stages.release()
            case "dispatch":
                while self.stages.has_dispatch:
                    if not self.stages.dispatch():
                        return False
            case "settle":
                return self.stages.settle()
        return True


def play_here(steps: Sequence[Step], settings: Settings | None = None) -> World:
    """Play a script in a new warehouse, without a JVM."""
    options = Options(VirtualClock(), settings or Settings())
    world = LocalWorld(Warehouse(str(Path(mkdtemp()) / "warehouse")), options)
    take(world, steps)
    return world


def on_spark(steps: Sequence[Step], settings: Settings | None = None, stores: int = 1) -> World:
    """Play a script in a new warehouse, on the session of the tests."""
    return play(session(), str(Path(mkdtemp()) / "warehouse"), steps, settings, stores=stores)


Play = Callable[..., World]
"""One of the two: it takes the steps, and settings if they are not the usual ones."""
SHELLS = [
    pytest.param(play_here, id="here"),
    pytest.param(on_spark, id="spark", marks=pytest.mark.soak),
]
"""Both, for a fixture; `tests/stream/conftest.py` has `play`."""
on_two_stores = partial(on_spark, stores=2)
"""For scripts in which the rows of a key could be scattered (`tests.support.stream.play`)."""
TWO_STORES = [
    pytest.param(play_here, id="here"),
    pytest.param(on_two_stores, id="spark", marks=pytest.mark.soak),
]
"""As `SHELLS`, for such scripts."""


def commits(*parts: Sequence[dict[str, Any]]) -> Step:
    """Stop all stages and append rows to the inbox, a commit for each part. `restart` comes next.

    A stage that runs may take the first part before the second one is there.
    """

    def step(world: World) -> None:
        world.end()
        for part in parts:
            world.waiting.extend(part)
            world.produce()

    return step
