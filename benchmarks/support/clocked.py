"""The stages under the virtual clock, instant by instant, and what the steps of each took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from benchmarks.support.usual import usual
from pipeline.config.options import Options
from pipeline.config.settings import VirtualClock
from pipeline.delta.deltars import append
from pipeline.delta.warehouse import Warehouse
from pipeline.service.lockstep import reach
from pipeline.service.run import Stage, start_all, stop_all
from schemas import INBOX


@dataclass
class Steps:
    """When each step of an instant ended."""

    begun: float = 0.0
    seen: list[tuple[str, float]] = field(default_factory=list)

    def begin(self) -> None:
        """Another instant."""
        self.begun, self.seen = time.perf_counter(), []

    def note(self, step: str, _batch: int = -1) -> None:
        """A step ended now."""
        self.seen.append((step, time.perf_counter()))

    def spans(self) -> list[tuple[str, float]]:
        """Seconds from the end of the step before, for each step; those of one name count together."""
        ends = [self.begun, *(at for _, at in self.seen)]
        return [(step, at - before) for (step, at), before in zip(self.seen, ends, strict=False)]

    def seconds(self, begin: str) -> float:
        """Seconds of the steps whose names begin so."""
        return sum(seconds for step, seconds in self.spans() if step.startswith(begin))


@dataclass(frozen=True)
class Clocked:
    """Running stages and their steps."""

    warehouse: Warehouse
    stages: list[Stage]
    steps: Steps

    def reach(self, instant: int, rows: pa.Table | None = None) -> float:
        """Bring all stages to an instant (ms UTC), with which rows enter; seconds, less those of the producer."""

        def produce() -> None:
            self.steps.note("clock")
            if rows is not None:
                append(self.warehouse.root, INBOX, rows)
            self.steps.note("inbox")

        self.steps.begin()
        reach(self.stages, self.warehouse, instant, produce)
        self.steps.note("rest")
        return self.steps.seconds("") - self.steps.seconds("inbox")


@contextmanager
def clocked(warehouse: Warehouse) -> Iterator[Clocked]:
    """All stages of a warehouse, until the block ends."""
    steps = Steps()
    stages = start_all(warehouse, Options(VirtualClock(), usual(warehouse), observe=steps.note))
    try:
        yield Clocked(warehouse, stages, steps)
    finally:
        stop_all(stages)
