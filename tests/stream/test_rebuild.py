"""A stage loses its checkpoint and is rebuilt from the tables: the result is the same, row for row."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import pytest
from pyspark.sql import SparkSession

from pipeline.config.errors import ForeignOwner
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, STAGES
from pipeline.service.rebuild import rebuild
from schemas import DELIVERIES, INBOX, MESSAGES, PUBLICATIONS, REDELIVERY, REJECTED_DISPATCH, REJECTED_INGEST, Table
from tests.support.spark import session
from tests.support.stream import (
    Killed,
    Step,
    World,
    advance,
    append,
    kill_after,
    message,
    payloads,
    play,
    restart,
    subscribe,
)
from tests.support.worlds import TWO_STORES, Play, on_two_stores

T0 = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000


HALF_WAY = {
    "ingest": ("ingest.segments", "rebuild.aside"),
    "schedule": ("rebuild.segments", "rebuild.aside"),
    "dispatch": ("dispatch.publications", "rebuild.aside"),
}
"""Where a rebuild of each stage is killed; the first step is only there when a batch is torn, or for the schedule."""


def lose(*stages: str, killed: bool = False) -> Step:
    """Lose the checkpoints of stages; they refuse to start, until each is told to take over.

    When asked for, the rebuild is killed right after each of the steps in `HALF_WAY`, and called again. Spark reads all
    rows then.
    """

    def step(world: World) -> None:
        world.lose(*stages)
        for stage in stages:
            refused(world, stage)
        for stage in stages:
            for each in HALF_WAY[stage] if killed else ():
                world.fatal = each
                with suppress(Killed):
                    rebuild(world.warehouse.within(session()), stage, world.born())
                assert world.dead or each == HALF_WAY[stage][0], f"nobody was killed after {each}"
                if world.dead and each == "rebuild.aside":
                    refused(world, stage)
            world.fatal = None
            world.rebuild(stage, driver_rows=0 if killed else 1_000_000)

    return step


def refused(world: World, stage: str) -> None:
    """A stage does not start: its tables belong to another checkpoint."""
    with pytest.raises(ForeignOwner) as raised:
        world.start(stage)
    assert raised.value.ours is None


@dataclass(frozen=True)
class Loss:
    """Checkpoints that are lost, in the order in which they are rebuilt; perhaps in the middle of a batch.

    Attributes:
        stages: whose checkpoints.
        torn: the step of a batch after which the process died.
        killed: whether each rebuild is killed, too.
    """

    stages: tuple[str, ...]
    torn: str | None = None
    killed: bool = True


def script(*losses: Loss) -> list[Step]:
    """Near, loaded and parked messages for two subscriptions; losses come one by one, when some of each are pending."""
    first = append(
        *(message(f"now {i}", after=0) for i in range(2)),
        message("half", after=HOUR // 2),
        message("parked", after=3 * HOUR),
        message("later", after=9 * HOUR),
        message("refused", after=-1),
    )
    begin = [subscribe("t", "s"), subscribe("t", "coarse", tick_ms=60_000), first, advance(T0)]
    moments = (
        append(message("a", after=10_000), message("old", deliver_at=-1_000), message("c", after=HOUR // 4 * 3)),
        append(message("b", after=0), message("d", after=HOUR // 2)),
        append(message("e", after=0), message("f", after=HOUR)),
    )
    steps = [moment(T0 + 5 * HOUR // 2 + n * MINUTE, sent, losses[n : n + 1]) for n, sent in enumerate(moments)]
    end = [append(message("last", after=0)), advance(T0 + 5 * HOUR // 2 + 4 * MINUTE), advance(T0 + 10 * HOUR)]
    return [*begin, *(step for each in steps for step in each), *end]


def moment(instant: int, sent: Step, losses: Sequence[Loss]) -> list[Step]:
    """Something is sent, and checkpoints are lost, or none."""
    kills = [kill_after(loss.torn) for loss in losses if loss.torn]
    again = [step for loss in losses for step in (lose(*loss.stages, killed=loss.killed), restart())]
    return [*kills, sent, advance(instant), *again]


def facts(world: World, table: Table, *without: str) -> list[tuple[str, ...]]:
    """A table's rows in a fixed order, less what a rebuild may change."""
    names = [name for name in table.schema.names if name not in ("batch_id", *without)]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


@cache
def undisturbed(play: Play) -> World:
    """The run that lost nothing."""
    return play(script())


def same(world: World, play: Play) -> None:
    """Every table of facts holds what the undisturbed run of a shell holds, and the doctor finds nothing."""
    world.sound()
    for table in (MESSAGES, REDELIVERY, DELIVERIES, PUBLICATIONS, REJECTED_INGEST, REJECTED_DISPATCH):
        assert facts(world, table) == facts(undisturbed(play), table), table.name
    assert len(world.rows(DELIVERIES)) == 26


SCHEDULE_ONLY = Loss((SCHEDULE,), killed=False)
"""Pending near and loaded positions come back, what was released does not."""
INGEST_TORN = Loss((INGEST,), "ingest.messages")
"""The process died between two commits; nothing is accepted twice."""
ALL_TORN = Loss(STAGES[::-1], "ingest.messages")
"""All checkpoints are gone, in the middle of a batch; downstream is rebuilt first."""


@pytest.mark.parametrize("play", TWO_STORES)
def test_stages_that_lost_their_checkpoints_go_on_from_the_tables(play: Play) -> None:
    """One loss after the other; rebuilds are killed half-way, and what was lost with a batch is finished first."""
    same(play(script(SCHEDULE_ONLY, INGEST_TORN, ALL_TORN)), play)


@pytest.mark.soak
@pytest.mark.parametrize(
    "loss",
    [
        SCHEDULE_ONLY,
        INGEST_TORN,
        Loss((DISPATCH,), "dispatch.deliveries"),
        ALL_TORN,
        Loss(STAGES, "ingest.messages"),
    ],
    ids=str,
)
def test_stages_that_lost_their_checkpoints_once_go_on(loss: Loss) -> None:
    """Each loss by itself; also in the middle of a batch of dispatch, and all in the order of the stages."""
    same(on_two_stores(script(loss)), on_two_stores)


@pytest.mark.parametrize(
    "driver_rows",
    [pytest.param(0, id="by Spark", marks=pytest.mark.soak), pytest.param(1_000_000, id="in the driver")],
)
def test_files_of_a_commit_that_was_taken_are_not_taken_again(
    spark: SparkSession, folder: str, driver_rows: int
) -> None:
    """The stream of a new checkpoint begins with the last version of the old one, and comes through it file by file."""
    world = play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            advance(T0),
            in_files("a b", "c", "d"),
            advance(T0 + 1),
            lose("ingest"),
            restart(driver_rows=driver_rows, max_bytes=1),
            in_files("e", "f"),
            advance(T0 + 2),
            restart(driver_rows=1_000_000 - driver_rows),
            advance(T0 + 3),
        ],
    )
    assert sorted(payloads(world)) == ["a b", "c", "d", "e", "f"]
    assert len(world.rows(MESSAGES)) == 5


def in_files(*payloads_of_files: str) -> Step:
    """Append messages that are due at once, in one commit, a file for each."""

    def step(world: World) -> None:
        rows = [message(payload, after=0) for payload in payloads_of_files]
        frame = world.warehouse.spark.createDataFrame(
            [[row.get(n) for n in INBOX.schema.names] for row in rows], INBOX.schema
        )
        apart = frame.repartitionByRange(len(rows), "payload")
        apart.write.format("delta").mode("append").save(world.warehouse.path(INBOX))

    return step
