"""A stage loses its checkpoint and is rebuilt from the tables: the result is the same, row for row."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from pyspark.sql import SparkSession

from pipeline.config.errors import ForeignOwner
from pipeline.config.stages import STAGES
from pipeline.service.rebuild import rebuild
from pipeline.service.run import start
from schemas import DELIVERIES, INBOX, MESSAGES, PUBLICATIONS, REDELIVERY, REJECTED_DISPATCH, REJECTED_INGEST, Table
from tests.support.examined import sound
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

T0 = 1_700_000_000_000
HOUR = 3_600_000


HALF_WAY = {
    "ingest": ("ingest.segments", "rebuild.aside"),
    "schedule": ("rebuild.segments", "rebuild.aside"),
    "dispatch": ("dispatch.publications", "rebuild.aside"),
}
"""Where a rebuild of each stage is killed; the first step is only there when a batch is torn, or for the schedule."""


def lose(*stages: str, killed: bool = False) -> Step:
    """Lose the checkpoints of stages; they refuse to start, until each is told to take over.

    When asked for, the rebuild is killed right after each of the steps in `HALF_WAY`, and called again.
    """

    def step(world: World) -> None:
        world.lose(*stages)
        for stage in stages:
            refused(world, stage)
        for stage in stages:
            for each in HALF_WAY[stage] if killed else ():
                world.fatal = each
                with suppress(Killed):
                    rebuild(world.spark, world.warehouse, stage, replace(world.options, observe=world.observe))
                if world.fatal is None and each == "rebuild.aside":
                    refused(world, stage)
            world.fatal = None
            rebuild(world.spark, world.warehouse, stage, world.options)

    return step


def refused(world: World, stage: str) -> None:
    """A stage does not start: its tables belong to another checkpoint."""
    with pytest.raises(ForeignOwner) as raised:
        start(world.spark, world.warehouse, stage, world.options)
    assert raised.value.ours is None


def script(*disturbance: Step, torn: str | None = None) -> list[Step]:
    """Near, loaded and parked messages for two subscriptions, disturbed when some of each are pending."""
    disturbed = [*disturbance, restart()] if disturbance else []
    return [
        subscribe("t", "s"),
        subscribe("t", "coarse", tick_ms=60_000),
        append(
            *(message(f"now {i}", after=0) for i in range(2)),
            message("half", after=HOUR // 2),
            message("parked", after=3 * HOUR),
            message("later", after=9 * HOUR),
            message("refused", after=-1),
        ),
        advance(T0),
        *([kill_after(torn)] if torn else []),
        append(message("a", after=10_000), message("old", deliver_at=-1_000), message("c", after=HOUR // 4 * 3)),
        advance(T0 + 5 * HOUR // 2),
        *disturbed,
        append(message("after", after=0), message("after too", after=HOUR)),
        advance(T0 + 5 * HOUR // 2 + 60_000),
        advance(T0 + 10 * HOUR),
    ]


def facts(world: World, table: Table, *without: str) -> list[tuple[str, ...]]:
    """A table's rows in a fixed order, less what a rebuild may change."""
    names = [name for name in table.schema.names if name not in ("batch_id", *without)]
    return sorted(tuple(str(row[name]) for name in names) for row in world.rows(table))


@cache
def undisturbed() -> World:
    """The run that lost nothing."""
    return play(session(), str(Path(mkdtemp()) / "warehouse"), script())


def same(world: World) -> None:
    """Every table of facts holds what the undisturbed run holds, and the doctor finds nothing."""
    sound(world.warehouse.root)
    for table in (MESSAGES, REDELIVERY, DELIVERIES, PUBLICATIONS, REJECTED_INGEST, REJECTED_DISPATCH):
        assert facts(world, table) == facts(undisturbed(), table), table.name
    assert len(world.rows(DELIVERIES)) == 20


def test_a_schedule_that_lost_its_state_goes_on_from_the_tables(spark: SparkSession, folder: str) -> None:
    """Pending near and loaded positions come back, what was released does not."""
    same(play(spark, folder, script(lose("schedule"))))


@pytest.mark.parametrize("torn", ["ingest.messages", pytest.param("dispatch.deliveries", marks=pytest.mark.soak)])
def test_a_torn_batch_is_finished_before_a_new_checkpoint_goes_on(spark: SparkSession, folder: str, torn: str) -> None:
    """The process died between two commits and its checkpoint is lost; nothing is accepted or delivered twice."""
    stage = torn.partition(".")[0]
    same(play(spark, folder, script(lose(stage, killed=True), torn=torn)))


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(STAGES, id="upstream first", marks=pytest.mark.soak),
        pytest.param(STAGES[::-1], id="downstream first"),
    ],
)
def test_all_stages_at_once_go_on_from_the_tables(spark: SparkSession, folder: str, order: tuple[str, ...]) -> None:
    """All checkpoints are gone, in the middle of a batch; the rebuilds are killed half-way, in whatever order."""
    same(play(spark, folder, script(lose(*order, killed=True), torn="ingest.messages")))


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
        frame = world.spark.createDataFrame([[row.get(n) for n in INBOX.schema.names] for row in rows], INBOX.schema)
        apart = frame.repartitionByRange(len(rows), "payload")
        apart.write.format("delta").mode("append").save(world.warehouse.path(INBOX))

    return step
