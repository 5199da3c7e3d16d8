"""Checkpoints and tables that do not fit: copied while the stages ran, restored, cut by a power failure, vacuumed."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.config.errors import BatchDiffers, CheckpointBehind, ClockAhead, PipelineError, SourceBehind, TableBehind
from pipeline.config.options import Options
from pipeline.config.settings import LiveClock
from pipeline.config.stages import STAGES
from pipeline.delta.warehouse import Warehouse
from pipeline.dispatch.prepared import PREPARED, PreparedStore
from pipeline.service.rebuild import rebuild
from pipeline.service.run import start
from pipeline.storage.hadoop import session_files
from schemas import DELIVERIES, INBOX, REDELIVERY, REJECTED_DISPATCH, Table
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    kill_after,
    message,
    payloads,
    play,
    restart,
    stop,
    subscribe,
)

T0 = 1_700_000_000_000
FUTURE = 4_102_444_800_000


def keep_copies(world: World) -> None:
    """Copy the checkpoints, as a backup does, between two batches."""
    world.end()
    copytree(f"{world.warehouse.root}/_checkpoints", f"{world.warehouse.root}.backup")
    world.begin()


def put_back(world: World) -> None:
    """Put the copies in the place of the checkpoints, with all stages stopped."""
    world.lose(*STAGES)
    for stage in STAGES:
        copytree(f"{world.warehouse.root}.backup/{stage}", world.warehouse.checkpoint(stage))


def refused(stage: str, error: type[Exception]) -> Step:
    """The start of a stage is refused, with the stage and the remedy in the error."""

    def step(world: World) -> None:
        with pytest.raises(error) as raised:
            start(world.spark, world.warehouse, stage, world.options)
        assert vars(raised.value)["stage"] == stage
        assert f"delayline rebuild --stage {stage}" in str(raised.value)

    return step


def all_once(*expected: str, subscription: str = "s") -> Step:
    """Exactly these payloads were delivered so far, by whatever checkpoint."""

    def step(world: World) -> None:
        assert sorted(payloads(world, subscription)) == list(expected)

    return step


def rebuilt(*stages: str) -> Step:
    """Rebuild stages that are stopped."""

    def step(world: World) -> None:
        for stage in stages:
            rebuild(world.spark, world.warehouse, stage, world.options)

    return step


def test_checkpoints_one_batch_behind_their_tables_are_refused_and_rebuilt(spark: SparkSession, folder: str) -> None:
    """Their next batch has the number of one that the table holds, and is another one: it would be passed over."""
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a")),
            advance(T0),
            check(keep_copies),
            append(message("b")),
            advance(T0 + 1),
            check(put_back),
            *(refused(stage, CheckpointBehind) for stage in STAGES),
            rebuilt(*STAGES),
            append(message("c")),
            restart(),
            advance(T0 + 2),
            all_once("a", "b", "c"),
        ],
    )


def rewrite_batches(stage: str) -> Step:
    """Let the batches of a checkpoint end elsewhere: as if they had been planned again."""

    def step(world: World) -> None:
        for entry in Path(world.warehouse.checkpoint(stage), "offsets").glob("[0-9]*"):
            lines = entry.read_text(encoding="utf-8").splitlines()
            changed = [shifted(line, "reservoirVersion", 1) for line in lines]
            entry.write_text("\n".join(changed), encoding="utf-8")
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)

    return step


def shifted(line: str, name: str, change: int) -> str:
    """A line of an offset log with another number under a name."""
    told = json.loads(line) if line.startswith("{") else {}
    return json.dumps({**told, name: told[name] + change}) if name in told else line


def test_batches_that_end_elsewhere_than_their_tables_say_are_refused_and_rebuilt(
    spark: SparkSession, folder: str
) -> None:
    """The number is the same, the rows are not: what is in one of them only would be lost."""
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a"), message("b", after=1)),
            advance(T0),
            advance(T0 + 1),
            append(message("c")),
            advance(T0 + 2),
            check(lambda world: world.lose()),
            *(rewrite_batches(stage) for stage in STAGES),
            *(refused(stage, BatchDiffers) for stage in STAGES),
            rebuilt(*STAGES),
            restart(),
            append(message("d")),
            advance(T0 + 3),
            all_once("a", "b", "c", "d"),
        ],
    )


def lose_last_version(world: World, table: Table) -> None:
    """Set a table back by one version."""
    last = max(Path(world.warehouse.path(table), "_delta_log").glob("*.json"))
    last.unlink()
    last.with_suffix(".crc").unlink(missing_ok=True)


def test_a_table_that_was_set_back_is_refused(spark: SparkSession, folder: str) -> None:
    """A backup of a running warehouse may have a table from before a batch that its checkpoint has done."""

    def set_back(world: World) -> None:
        world.lose()
        lose_last_version(world, REDELIVERY)

    steps = [subscribe("t", "s"), append(message("a")), advance(T0), check(set_back), refused("schedule", TableBehind)]
    play(spark, folder, steps)


def test_a_source_that_was_set_back_is_refused(spark: SparkSession, folder: str) -> None:
    """What it lacks would count as read when it comes again; no note of the stage is in that table."""

    def set_back(world: World) -> None:
        world.end()
        lose_last_version(world, INBOX)
        with pytest.raises(SourceBehind, match=r"inbox ends with version 0, the checkpoint has read version 1"):
            start(world.spark, world.warehouse, "ingest", world.options)

    play(spark, folder, [subscribe("t", "s"), append(message("a")), advance(T0), check(set_back)])


def lose_prepared_files(world: World) -> None:
    """What a VACUUM does to files that no version names."""
    noted = PreparedStore(session_files(world.spark), world.warehouse.path(DELIVERIES)).all()
    files = [file for each in noted for part in each.parts for file in part.files]
    assert files
    for file in files:
        Path(world.warehouse.path(DELIVERIES), file.path).unlink()


def empty_shelf(world: World) -> None:
    """What a copy without folders that begin with an underscore lacks."""
    rmtree(Path(world.warehouse.path(DELIVERIES), "_prepared"))


def prepared_and_dead(*more: Step) -> list[Step]:
    """One message is delivered, two are prepared, and dispatch is dead; then further steps."""
    return [
        subscribe("t", "s"),
        subscribe("t", "other"),
        append(message("a")),
        advance(T0),
        append(message("b"), message("c", after=5)),
        kill_after("dispatch.noted"),
        advance(T0 + 5),
        stop(),
        *more,
    ]


def once_each(world: World) -> None:
    """Each subscription has each message once; nothing is refused, and nothing is left on the shelf."""
    all_once("a", "b", "c", "d")(world)
    all_once("a", "b", "c", "d", subscription="other")(world)
    assert world.rows(REJECTED_DISPATCH) == []
    assert PreparedStore(session_files(world.spark), world.warehouse.path(DELIVERIES)).all() == []


GO_ON: list[Step] = [restart(), append(message("d")), advance(T0 + 60), check(once_each)]


@pytest.mark.parametrize("how", [pytest.param("rebuilt", marks=pytest.mark.soak), "started and dead again"])
def test_prepared_files_that_a_vacuum_took_are_prepared_again(spark: SparkSession, folder: str, how: str) -> None:
    """Nobody has to bring them back: the message and what became due are still in the tables."""
    ways: dict[str, list[Step]] = {
        "rebuilt": [check(lambda world: world.lose("dispatch")), rebuilt("dispatch")],
        "started and dead again": [restart("dispatch.deliveries"), restart("dispatch.publications")],
    }
    play(spark, folder, prepared_and_dead(check(lose_prepared_files), *ways[how], *GO_ON))


@pytest.mark.soak
def test_notes_of_prepared_parts_that_are_gone_are_refused_and_rebuilt(spark: SparkSession, folder: str) -> None:
    """Without its shelf dispatch would pass over what it had prepared."""

    def said(world: World) -> None:
        with pytest.raises(TableBehind) as raised:
            start(world.spark, world.warehouse, "dispatch", world.options)
        assert raised.value.table == PREPARED

    steps = [check(empty_shelf), check(said), refused("dispatch", TableBehind), rebuilt("dispatch")]
    play(spark, folder, prepared_and_dead(*steps, *GO_ON))


def test_a_live_start_after_a_run_in_the_future_is_refused_until_the_clock_is_reset(
    spark: SparkSession, folder: str
) -> None:
    """Delays would count from a time that has not come."""

    def live(world: World, stage: str) -> None:
        options = Options(LiveClock())
        with pytest.raises(ClockAhead) as raised:
            start(world.spark, world.warehouse, stage, options)
        assert raised.value.instant == FUTURE
        assert "--reset-clock" in str(raised.value)

    def reset(world: World) -> None:
        for stage in STAGES[:2]:
            live(world, stage)
            assert rebuild(world.spark, world.warehouse, stage, world.options, latest=T0).instant == T0
            begun = start(world.spark, world.warehouse, stage, Options(LiveClock()))
            begun.stop()

    steps: list[Any] = [subscribe("t", "s"), append(message("a")), advance(FUTURE), stop(), check(reset)]
    play(spark, folder, steps)


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
        copy = World(world.spark, Warehouse(f"{world.warehouse.root}.copy"), world.options, instant=world.instant)
        with pytest.raises(PipelineError):
            copy.begin()
        copy.lose()
        rebuilt(*STAGES)(copy)
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


def test_dispatch_goes_on_from_a_checkpoint_of_before_it_had_a_clock(spark: SparkSession, folder: str) -> None:
    """Spark refuses a log with another number of sources. A batch that was begun is repeated as it was."""

    def forget_clock(world: World) -> None:
        world.end()
        entries = list(Path(world.warehouse.checkpoint("dispatch"), "offsets").glob("[0-9]*"))
        assert len(entries) > 1
        for entry in entries:
            version, metadata, *clock, place = entry.read_text().splitlines()
            assert list(map(json.loads, clock)) in ([], [{"instant": 0}])
            entry.write_text(f"{version}\n{metadata}\n{place}")
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)

    steps = [subscribe("t", "s"), append(message("a"), message("b", after=5_000)), advance(T0)]
    steps += [kill_after("dispatch.deliveries"), advance(T0 + 5_000), check(forget_clock), restart()]
    steps += [delivered("a", "b"), append(message("c")), advance(T0 + 6_000), check(forget_clock), restart()]
    play(spark, folder, [*steps, append(message("d")), advance(T0 + 7_000), delivered("a", "b", "c", "d")])
