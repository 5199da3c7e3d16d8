"""A warm start: Python workers, and the first batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("delta", reason="stages are started by Spark")

from pipeline.config.session import PARTITIONS
from pipeline.config.stages import ALL_STAGES, DISPATCH, INGEST, SCHEDULE
from pipeline.service import warmup
from pipeline.service.run import Stage
from pipeline.service.warmup import comes_on_time, first_batches, warmed
from state.units import Ms


@dataclass
class Query:
    """A query that ends its first batch, or itself, when it was asked often enough."""

    looks: int
    dies: bool = False
    asked: int = field(default=0)

    @property
    def lastProgress(self) -> object | None:  # noqa: N802 - Spark's name
        """What it says of its last batch."""
        self.asked += 1
        return object() if self.asked > self.looks and not self.dies else None

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it runs."""
        return not (self.dies and self.asked > self.looks)

    def exception(self) -> Exception | None:
        """What it died of."""
        return None


def stage(query: Query, *, ticking: bool = True) -> Stage:
    """A stage with a clock, or dispatch, which has a publisher and no clock."""
    publisher = None if ticking else SimpleNamespace(error=None)
    work = SimpleNamespace(files=None, memory="1g")
    return Stage("some", cast("Any", query), cast("Any", None), cast("Any", publisher), cast("Any", work))


def test_a_start_waits_for_the_first_batch_of_each_stage_with_a_clock() -> None:
    """Their first batches load most of what later ones need; dispatch has none before something is due."""
    slow, slower, never = Query(2), Query(4), Query(1_000)
    first_batches([stage(slow), stage(slower), stage(never, ticking=False)], Event())
    assert slower.asked == 5
    assert never.asked == 0


def test_a_start_does_not_wait_for_a_stage_that_failed() -> None:
    """Who serves the stages says why."""
    dead = Query(1, dies=True)
    first_batches([stage(dead)], Event())
    assert dead.asked == 2


class Schedule:
    """A schedule that is at one more instant with each look."""

    def __init__(self, instant: int) -> None:
        """Where it is."""
        self.instant, self.looks = instant, 0

    def is_at(self, instant: int) -> bool:
        """As `Progress`."""
        self.looks, self.instant = self.looks + 1, self.instant + 1
        return self.instant >= instant


def test_a_job_is_said_to_run_when_what_is_due_then_was_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends from then on is not kept waiting. After a long outage it is said that all of it comes late."""
    monkeypatch.setattr(warmup, "_LOOK_S", 0.001)
    schedule, asked = Schedule(0), Event()
    assert comes_on_time([stage(Query(1))], asked, cast("Any", schedule), Ms(5))
    assert schedule.instant >= 5
    monkeypatch.setattr(warmup, "_LONGEST_S", 0.003)
    assert not comes_on_time([stage(Query(1))], asked, cast("Any", Schedule(0)), Ms(1_000_000))
    assert not comes_on_time([stage(Query(0, dies=True))], asked, cast("Any", Schedule(0)), Ms(1_000_000))
    asked.set()
    assert comes_on_time([stage(Query(1))], asked, cast("Any", Schedule(0)), Ms(1_000_000))


def test_a_stop_that_is_asked_for_ends_the_waiting() -> None:
    """A first batch may be one of an outage of a day."""
    never, asked = Query(1_000), Event()
    asked.set()
    first_batches([stage(never)], asked)
    assert never.asked == 1


def test_workers_that_do_not_start_are_no_reason_not_to_start() -> None:
    """The stages would meet the same, and say so."""
    broken = SimpleNamespace()
    with warmed(cast("Any", broken)):
        pass


@pytest.mark.parametrize(
    ("stages", "cores", "stores", "workers"),
    [(ALL_STAGES, 8, 1, [1]), ((SCHEDULE,), 2, 12, [2]), ((INGEST, DISPATCH), 2, 12, [])],
)
def test_as_many_workers_start_as_the_schedule_has_tasks_at_once(
    stages: tuple[str, ...], cores: int, stores: int, workers: list[int]
) -> None:
    """One that nobody needs takes most of a second of a processor, and a hundred megabytes."""
    asked = list[int]()

    def split(*ends: int) -> Any:  # noqa: ANN401 - a frame
        asked.append(ends[-1])
        return SimpleNamespace(mapInArrow=lambda *_: SimpleNamespace(toArrow=lambda: None))

    conf = SimpleNamespace(get={PARTITIONS: str(stores)}.get)
    context = SimpleNamespace(defaultParallelism=cores)
    with warmed(cast("Any", SimpleNamespace(sparkContext=context, conf=conf, range=split)), stages):
        pass
    assert asked == workers
