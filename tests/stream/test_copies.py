"""Checkpoints and tables that do not fit: copied while the stages ran, restored, cut by a power failure, vacuumed.

A run has a topic and a time of its own for each test, so that one world stands all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from pyspark.sql import SparkSession

from pipeline.config.errors import BatchDiffers, CheckpointBehind, ClockAhead, TableBehind
from pipeline.config.settings import LiveClock, Settings
from pipeline.config.stages import DISPATCH, INGEST, SCHEDULE, SETTLE, STAGES
from pipeline.dispatch.prepared import PREPARED, PreparedStore
from pipeline.service.rebuild import reset_settle
from schemas import DELIVERIES, REJECTED_DISPATCH
from state.units import Ms
from tests.support.consuming import acknowledging
from tests.support.setback import (
    WRITTEN,
    all_once,
    publications_set_back,
    rebuilt,
    refused,
    releases_set_back,
    source_set_back,
    table_set_back,
    unread_set_back,
)
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    kill_after,
    message,
    play,
    restart,
    stop,
    subscribe,
)
from tests.support.together import Played, play_together
from tests.support.worlds import SHELLS, Play

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


def one_behind(topic: str, at: int) -> list[Step]:
    """Their next batch has the number of one that the table holds, and is another one."""
    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(at),
        check(keep_copies),
        append(message("b", topic)),
        advance(at + 1),
        check(put_back),
        *(refused(stage, CheckpointBehind) for stage in STAGES),
        rebuilt(*STAGES),
        restart(),
        append(message("c", topic)),
        advance(at + 2),
        all_once(topic, "a", "b", "c"),
    ]


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
    note = json.loads(line) if line.startswith("{") else {}
    return json.dumps({**note, name: note[name] + change}) if name in note else line


def ending_elsewhere(topic: str, at: int) -> list[Step]:
    """The numbers are the same, the rows are not."""
    return [
        subscribe(topic, "s"),
        append(message("a", topic), message("b", topic, after=1)),
        advance(at),
        advance(at + 1),
        append(message("c", topic)),
        advance(at + 2),
        check(lambda world: world.lose()),
        *(rewrite_batches(stage) for stage in STAGES),
        *(refused(stage, BatchDiffers) for stage in STAGES),
        rebuilt(*STAGES),
        restart(),
        append(message("d", topic)),
        advance(at + 3),
        all_once(topic, "a", "b", "c", "d"),
    ]


def lose_prepared_files(world: World) -> None:
    """What a VACUUM does to files that no version names."""
    noted = PreparedStore(world.warehouse.files, world.warehouse.path(DELIVERIES)).all()
    files = [file for each in noted for part in each.parts for file in part.files]
    assert files
    for file in files:
        Path(world.warehouse.path(DELIVERIES), file.path).unlink()


def empty_shelf(world: World) -> None:
    """What a copy without folders that begin with an underscore lacks."""
    rmtree(Path(world.warehouse.path(DELIVERIES), "_prepared"))


def prepared_and_dead(topic: str, at: int, *more: Step) -> list[Step]:
    """One message is delivered, two are prepared, and dispatch is dead; then further steps, and it goes on."""

    def once_each(world: World) -> None:
        """Each subscription has each message once; nothing is refused, and nothing is left on the shelf."""
        all_once(topic, "a", "b", "c", "d")(world)
        all_once(topic, "a", "b", "c", "d", subscription="other")(world)
        assert world.rows(REJECTED_DISPATCH) == []
        assert PreparedStore(world.warehouse.files, world.warehouse.path(DELIVERIES)).all() == []

    return [
        subscribe(topic, "s"),
        subscribe(topic, "other"),
        append(message("a", topic)),
        advance(at),
        append(message("b", topic), message("c", topic, after=5)),
        kill_after("dispatch.noted"),
        advance(at + 5),
        stop(),
        *more,
        restart(),
        append(message("d", topic)),
        advance(at + 60),
        check(once_each),
    ]


def vacuumed(topic: str, at: int) -> list[Step]:
    """The files of what is prepared are gone; the process starts, and dies again."""
    again = [restart("dispatch.deliveries"), restart("dispatch.publications")]
    return prepared_and_dead(topic, at, check(lose_prepared_files), *again)


@pytest.mark.soak
def test_prepared_files_that_a_vacuum_took_are_prepared_again_after_a_rebuild(spark: SparkSession, folder: str) -> None:
    """With a new checkpoint, too."""
    lost = [check(lose_prepared_files), check(lambda world: world.lose("dispatch")), rebuilt("dispatch")]
    play(spark, folder, prepared_and_dead("t", T0, *lost))


@pytest.mark.soak
def test_notes_of_prepared_parts_that_are_gone_are_refused_and_rebuilt(spark: SparkSession, folder: str) -> None:
    """Without its shelf dispatch would pass over what it had prepared."""

    def said(world: World) -> None:
        with pytest.raises(TableBehind) as raised:
            world.start("dispatch")
        assert raised.value.table == PREPARED

    steps = [check(empty_shelf), check(said), refused(DISPATCH, TableBehind), rebuilt("dispatch")]
    play(spark, folder, prepared_and_dead("t", T0, *steps))


def in_the_future(topic: str) -> list[Step]:
    """The last run was at a time that has not come, from which delays would count."""

    def live(world: World, stage: str) -> None:
        with pytest.raises(ClockAhead) as raised:
            world.start(stage, LiveClock())
        assert raised.value.instant == FUTURE
        assert "--reset-clock" in str(raised.value)

    def reset(world: World) -> None:
        for stage in (INGEST, SCHEDULE, SETTLE):
            live(world, stage)
            if stage == SETTLE:
                reset_settle(world.warehouse, Ms(T0))
            else:
                assert [origin.instant for origin in world.rebuild(stage, latest=T0)] == [T0]
            world.start(stage, LiveClock())

    return [acknowledging(topic, "s"), append(message("a", topic)), advance(FUTURE), stop(), check(reset)]


def without_a_clock(topic: str, at: int) -> list[Step]:
    """The checkpoint of dispatch is from before it had a clock, twice: in the middle of a batch, and between two."""

    def forget_clock(world: World) -> None:
        world.end()
        entries = list(Path(world.warehouse.checkpoint("dispatch"), "offsets").glob("[0-9]*"))
        assert len(entries) > 1
        for entry in entries:
            version, metadata, *clock, place = entry.read_text().splitlines()
            assert list(map(json.loads, clock)) in ([], [{"instant": 0}])
            entry.write_text(f"{version}\n{metadata}\n{place}")
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)

    return [
        subscribe(topic, "s"),
        append(message("a", topic), message("b", topic, after=5_000)),
        advance(at),
        kill_after("dispatch.deliveries"),
        advance(at + 5_000),
        check(forget_clock),
        restart(),
        delivered("a", "b", topic=topic),
        append(message("c", topic)),
        advance(at + 6_000),
        check(forget_clock),
        restart(),
        delivered("a", "b", "c", topic=topic),
        append(message("d", topic)),
        advance(at + 7_000),
        delivered("a", "b", "c", "d", topic=topic),
    ]


def one_by_one(**scripts: Callable[[str, int], list[Step]]) -> dict[str, Sequence[Step]]:
    """Each script with a time of its own."""
    return {name: script(name, T0 + number * 10_000) for number, (name, script) in enumerate(scripts.items())}


@pytest.fixture(scope="module", params=SHELLS)
def years(request: pytest.FixtureRequest) -> Played:
    """The run of the others."""
    scripts = one_by_one(
        one_behind=one_behind,
        ending_elsewhere=ending_elsewhere,
        **{f"{table.name}_set_back": table_set_back(table, stages) for table, stages in WRITTEN},
        releases_set_back=releases_set_back,
        unread_set_back=unread_set_back,
        publications_set_back=publications_set_back,
        source_set_back=source_set_back,
    )
    return play_together(scripts | {"in the future": in_the_future("in the future")}, play=request.param)


def test_dispatch_goes_on_from_a_checkpoint_of_before_it_had_a_clock(spark: SparkSession, folder: str) -> None:
    """Spark refuses a log with another number of sources. A batch that was begun is repeated as it was."""
    play(spark, folder, without_a_clock("t", T0))


def test_checkpoints_one_batch_behind_their_tables_are_refused_and_rebuilt(years: Played) -> None:
    """Their next batch would be passed over."""
    years.shows("one_behind")


def test_batches_that_end_elsewhere_than_their_tables_say_are_refused_and_rebuilt(years: Played) -> None:
    """What is in one of them only would be lost."""
    years.shows("ending_elsewhere")


@pytest.mark.parametrize("table", [table.name for table, _ in WRITTEN])
def test_a_table_that_was_set_back_is_refused_and_rebuilt(years: Played, table: str) -> None:
    """The stage that wrote it names it; who has read what it lacks is rebuilt, too."""
    years.shows(f"{table}_set_back")


def test_releases_that_were_set_back_are_refused_by_a_rebuild_of_dispatch(years: Played) -> None:
    """It ended with an error of Spark."""
    years.shows("releases_set_back")


def test_releases_that_dispatch_has_not_read_are_made_again_by_a_rebuild_of_the_schedule(years: Played) -> None:
    """A power cut took the newest version, for instance."""
    years.shows("unread_set_back")


def test_publications_that_were_set_back_are_written_again_by_a_rebuild(years: Played) -> None:
    """What one of them counts nobody else counts."""
    years.shows("publications_set_back")


def test_a_source_that_was_set_back_is_refused(years: Played) -> None:
    """The stage that follows it says how far it had read."""
    years.shows("source_set_back")


@pytest.mark.parametrize("shell", SHELLS)
def test_prepared_files_that_a_vacuum_took_are_prepared_again(shell: Play) -> None:
    """Nobody has to bring them back: the message and what became due are still in the tables."""
    # Spark makes them anew.
    shell(vacuumed("t", T0), Settings(driver_rows=200_000))


def test_a_live_start_after_a_run_in_the_future_is_refused_until_the_clock_is_reset(years: Played) -> None:
    """Delays would count from a time that has not come."""
    years.shows("in the future")
