"""Stages whose query ended of something that passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("delta", reason="stages are started by Spark")

from pipeline.config.errors import StageRunning
from pipeline.service import outages
from pipeline.service.outages import PATIENCE_MS
from pipeline.service.process import restart_if_possible
from pipeline.service.run import Stage

AWAY = "OSError: When reading information for key 'w' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject"
MINUTE_MS = 60_000
BUSY = "org.apache.spark.SparkException: Python worker failed to connect back."


@dataclass
class Query:
    """A query that ended; `worked` when a batch of it ended before."""

    error: str
    worked: bool = False
    isActive: bool = False  # noqa: N815 - Spark's name

    @property
    def lastProgress(self) -> object | None:  # noqa: N802 - Spark's name
        """What it says of its last batch."""
        return object() if self.worked else None

    def exception(self) -> Exception | None:
        """What it died of."""
        return RuntimeError(self.error)

    def stop(self) -> None:
        """It ended already."""


def stage(queries: Iterator[Query]) -> Stage:
    """A stage that has the next of some queries whenever it is started."""
    lock = SimpleNamespace(release=lambda: None)
    return Stage("ingest", cast("Any", next(queries)), cast("Any", lock), again=lambda: stage(queries))


def test_a_worker_that_did_not_start_in_time_is_tried_again() -> None:
    """A machine that is busy for a minute ends no service."""
    begun = restart_if_possible(stage(iter((Query(BUSY), Query("", isActive=True)))))
    assert begun.failure is None


def test_a_python_that_never_starts_ends_the_stage() -> None:
    """Three times in a row: then the reason is said, and whoever runs it can look."""
    starts = count()
    queries = (Query(BUSY) for _ in starts)
    found = stage(queries)
    for _ in range(5):
        found = restart_if_possible(found)
    assert BUSY in str(found.failure)
    assert next(starts) == 3


def test_starts_are_counted_from_the_last_batch_that_ended() -> None:
    """A service that runs for a year meets more than three busy minutes."""
    starts = count()
    queries = (Query(BUSY, worked=True) for _ in starts)
    found = stage(queries)
    for _ in range(5):
        found = restart_if_possible(found)
    assert next(starts) == 6


def test_another_error_ends_the_stage() -> None:
    """What does not pass by itself is not repeated."""
    ended = stage(iter((Query("disk full", worked=True),)))
    assert restart_if_possible(ended) is ended


@dataclass
class World:
    """A store that is away until a moment, and a stage on it.

    Attributes:
        now_ms: the monotonic clock.
        back_ms: when the store answers.
        started: when the stage was started.
    """

    now_ms: int = 0
    back_ms: int = MINUTE_MS
    started: list[int] = field(default_factory=list)

    def stage(self, *, remote: bool = True) -> Stage:
        """The stage; started before the store is back it does not come up."""
        query = Query("" if self.started else AWAY, isActive=bool(self.started))
        lock = SimpleNamespace(release=lambda: None)
        return Stage("ingest", cast("Any", query), cast("Any", lock), again=self.again, remote=remote)

    def again(self) -> Stage:
        """Start it."""
        if self.now_ms < self.back_ms:
            raise OSError(AWAY)
        self.started.append(self.now_ms)
        return self.stage()

    def goes_on(self, stage: Stage, until_ms: int, *, answers: bool = True) -> Stage:
        """Look at it every two seconds."""
        while self.now_ms < until_ms and stage.failure is not None:
            stage = restart_if_possible(stage, answers=answers)
            self.now_ms += 2_000
        return stage


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The world, whose clock is looked at."""
    made = World()
    monkeypatch.setattr(outages, "monotonic_ms", lambda: made.now_ms)
    return made


def test_a_stage_waits_for_its_store(world: World) -> None:
    """A store that is away for a minute ends no service; half a minute after it is back at the latest all goes on."""
    found = world.goes_on(world.stage(), 10 * MINUTE_MS)
    assert found.failure is None
    assert world.started[0] <= world.back_ms + 32_000


def test_a_stage_is_not_started_while_nobody_answers(world: World) -> None:
    """To start takes minutes then, and whoever asks for a stop would wait."""
    found = world.goes_on(world.stage(), 5 * MINUTE_MS, answers=False)
    assert (found.passing is not None, world.started) == (True, [])
    assert world.goes_on(found, 6 * MINUTE_MS).failure is None
    assert world.started == [5 * MINUTE_MS]


def test_a_store_that_stays_away_ends_the_stage(world: World) -> None:
    """After a quarter of an hour the reason is said, and whoever runs it can look."""
    world.back_ms = 10 * PATIENCE_MS
    found = world.stage()
    while found.passing is not None and world.now_ms < 2 * PATIENCE_MS:
        found = restart_if_possible(found)
        world.now_ms += 2_000
    assert PATIENCE_MS < world.now_ms < PATIENCE_MS + 10_000
    assert AWAY in str(found.failure)


def test_a_store_that_answers_nobody_ends_the_stage_as_well(world: World) -> None:
    """Nothing is tried meanwhile, and the time is counted all the same."""
    found = world.stage()
    while found.passing is not None and world.now_ms < 2 * PATIENCE_MS:
        found = restart_if_possible(found, answers=False)
        world.now_ms += 2_000
    assert PATIENCE_MS < world.now_ms < PATIENCE_MS + 10_000


def test_starts_that_never_have_a_batch_are_one_outage(world: World) -> None:
    """A store that answers a look, and lets nothing be written, however long a stage seems to run in between."""
    found, world.back_ms = world.stage(), 0
    while found.passing is not None and world.now_ms < 2 * PATIENCE_MS:
        found = restart_if_possible(found)
        if found.failure is None:
            world.now_ms += 2 * MINUTE_MS
            cast("Any", found.query).isActive, cast("Any", found.query).error = False, AWAY
        world.now_ms += 2_000
    assert PATIENCE_MS < world.now_ms < PATIENCE_MS + 3 * MINUTE_MS
    assert found.starts == 1


@pytest.mark.parametrize(
    "error",
    [
        "java.lang.OutOfMemoryError: Java heap space: " + AWAY,
        "org.apache.spark.SparkException: Python worker exited unexpectedly. " + AWAY,
    ],
)
def test_memory_that_ended_is_not_waited_for(world: World, error: str) -> None:
    """It ends again at the same batch."""
    ended = world.stage()
    cast("Any", ended.query).error = error
    assert ended.passing is None


def test_what_a_store_answers_at_last_ends_the_stage(world: World) -> None:
    """The keys were taken away meanwhile, for instance; the reason is told like any other."""
    world.back_ms = 0

    def again() -> Stage:
        message = "AWS Error ACCESS_DENIED during HeadObject operation"
        raise OSError(message)

    found = restart_if_possible(replace(world.stage(), again=again))
    world.now_ms += 2_000
    found = restart_if_possible(found)
    assert found.passing is None
    assert found.failure == "stage ingest: AWS Error ACCESS_DENIED during HeadObject operation"


def test_a_query_that_does_not_stop_is_waited_for(world: World) -> None:
    """It is in the middle of a request that nobody answers any more."""
    found, tries = world.stage(), iter(range(2))
    world.back_ms = 0

    def stop() -> None:
        if next(tries, None) is not None:
            message = "Stream Execution thread for stream ingest failed to stop within 60000 milliseconds"
            raise TimeoutError(message)

    cast("Any", found.query).stop = stop
    assert world.goes_on(found, 5 * MINUTE_MS).failure is None


def test_each_outage_has_its_own_patience(world: World) -> None:
    """A service that runs for a year meets more than a quarter of an hour of them."""
    found = world.goes_on(world.stage(), 10 * MINUTE_MS)
    for _ in range(30):
        world.now_ms += 30 * MINUTE_MS
        world.back_ms = world.now_ms + MINUTE_MS
        query = cast("Any", found.query)
        query.isActive, query.error, query.worked = False, AWAY, True
        found = world.goes_on(found, world.now_ms + 10 * MINUTE_MS)
        assert found.failure is None


def test_what_looks_like_it_on_a_disk_ends_the_stage(world: World) -> None:
    """There is no store that could come back."""
    ended = world.stage(remote=False)
    assert restart_if_possible(ended) is ended


def test_a_stage_that_is_refused_is_not_tried_again(world: World) -> None:
    """Another process has taken over meanwhile, for instance."""
    world.back_ms = 0

    def again() -> Stage:
        raise StageRunning("ingest", "process 1")

    found = restart_if_possible(replace(world.stage(), again=again))
    world.now_ms += 2_000
    with pytest.raises(StageRunning):
        restart_if_possible(found)
