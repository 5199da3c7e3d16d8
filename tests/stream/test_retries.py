"""What is put back comes again at its time: through the schedule and dispatch, once, with its count and cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH, SCHEDULE
from pipeline.dispatch.prepared import PreparedStore
from pipeline.service.rebuild import rebuild
from pipeline.storage.hadoop import session_files
from schemas import DELIVERIES, MESSAGES, REDELIVERY, REJECTED_DISPATCH, SEGMENTS
from tests.support.retries import Again, again, came, close, put_back
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

T0 = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
BY_SPARK = Settings(driver_rows=0)
WAYS = pytest.mark.parametrize(
    "settings",
    [pytest.param(Settings(), id="in the driver"), pytest.param(BY_SPARK, id="by Spark", marks=pytest.mark.soak)],
)


def came_again(*expected: tuple[str, str, int, str, int]) -> Step:
    """Exactly these were released, and delivered, once more."""

    def step(world: World) -> None:
        assert again(world, REDELIVERY) == list(expected)
        assert again(world) == list(expected)
        assert world.rows(REJECTED_DISPATCH) == []

    return check(step)


@WAYS
def test_a_message_comes_again_when_it_is_due_and_not_before(
    spark: SparkSession, folder: str, settings: Settings
) -> None:
    """Hours after it was due, beside messages that are due for the first time; to whom it was put back for only."""
    due = T0 + 3 * HOUR
    once_more = ("s", "a", 1, "nack", due), ("s", "b", 2, "ack_timeout", due + 1)
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            subscribe("t", "other"),
            append(message("a"), message("b", after=10)),
            advance(T0),
            append(message("new", deliver_at=due)),
            advance(T0 + MINUTE),
            put_back(Again("a", due), Again("b", due + 1, 2, "ack_timeout")),
            advance(due - 1),
            delivered("a", "b"),
            came_again(),
            advance(due),
            delivered("a", "b", "a", "new"),
            came_again(once_more[0]),
            advance(due + MINUTE),
            delivered("a", "b", "a", "new", "b"),
            delivered("a", "b", "new", subscription="other"),
            came_again(*once_more),
        ],
        settings,
    )


def test_each_round_and_each_listener_comes_by_itself(spark: SparkSession, folder: str) -> None:
    """Two who listen alike put the same message back at different counts; each gets its own, by its own tick."""
    due = T0 + HOUR
    bucket = -(-due // 512) * 512
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            subscribe("t", "z"),
            subscribe("t", "coarse", tick_ms=1_000),
            append(message("a"), message("b")),
            advance(T0),
            put_back(
                Again("a", due),
                Again("a", due, 3, "owner_lost", subscription="z"),
                Again("b", due, 3, "owner_lost", subscription="z"),
                Again("a", due, 1, "nack", subscription="coarse", tick_ms=1_000),
            ),
            restart(),
            advance(due),
            came_again(("s", "a", 1, "nack", due), *(("z", name, 3, "owner_lost", due) for name in "ab")),
            put_back(Again("a", due + 9, 2, "ack_timeout")),
            advance(due + 9),
            restart(),
            advance(due + MINUTE),
            came_again(
                ("s", "a", 1, "nack", due),
                *(("z", name, 3, "owner_lost", due) for name in "ab"),
                ("s", "a", 2, "ack_timeout", due + 9),
                ("coarse", "a", 1, "nack", bucket),
            ),
        ],
    )


@pytest.mark.parametrize(
    "fatal",
    [
        "schedule.redelivery",
        pytest.param("dispatch.counted", marks=pytest.mark.soak),
        "dispatch.noted",
        pytest.param("dispatch.deliveries", marks=pytest.mark.soak),
    ],
)
def test_what_comes_again_comes_once_whatever_is_killed(spark: SparkSession, folder: str, fatal: str) -> None:
    """A repeated batch is the same."""
    due = T0 + HOUR
    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a"), message("b")),
            advance(T0),
            put_back(Again("a", due), Again("b", due + 5)),
            kill_after(fatal),
            advance(due + 5),
            restart(),
            advance(due + 10),
            came_again(("s", "a", 1, "nack", due), ("s", "b", 1, "nack", due + 5)),
        ],
    )


@WAYS
def test_what_is_closed_does_not_come_again(spark: SparkSession, folder: str, settings: Settings) -> None:
    """Of this round only: when it was acknowledged late, what waits is left out, and a later round is another one."""
    due = T0 + HOUR

    def released(world: World) -> None:
        assert [each[1:3] for each in again(world, REDELIVERY)] == [("a", 1), ("b", 1), ("c", 1), ("c", 2)]
        assert [each[1:3] for each in again(world)] == [("b", 1), ("c", 2)]
        assert world.rows(REJECTED_DISPATCH) == []

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a"), message("b"), message("c")),
            advance(T0),
            put_back(Again("a", due), Again("b", due), Again("c", due)),
            close(Again("a", due), Again("b", due, count=2), Again("b", due, subscription="z")),
            close(Again("c", due)),
            advance(due),
            put_back(Again("c", due + MINUTE, count=2)),
            advance(due + MINUTE),
            check(released),
        ],
        settings,
    )


def test_what_is_closed_stays_out_when_deliveries_are_prepared_again(spark: SparkSession, folder: str) -> None:
    """Dispatch died before they were visible, and their files are gone: they are made again, less what was closed."""
    due = T0 + HOUR

    def lose_files(world: World) -> None:
        store = PreparedStore(session_files(world.spark), world.warehouse.path(DELIVERIES))
        for file in (file for each in store.all() for part in each.parts for file in part.files):
            Path(world.warehouse.path(DELIVERIES), file.path).unlink()

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a"), message("b")),
            advance(T0),
            put_back(Again("a", due), Again("b", due)),
            close(Again("a", due)),
            kill_after("dispatch.noted"),
            advance(due),
            stop(),
            check(lose_files),
            restart(),
            advance(due + MINUTE),
            delivered("a", "b", "b"),
        ],
    )


def test_a_message_that_is_gone_is_refused_with_its_count(spark: SparkSession, folder: str) -> None:
    """Nothing vanishes: the row says which round found no message."""

    def lose_messages(world: World) -> None:
        world.spark.sql(f"DELETE FROM delta.`{world.warehouse.path(MESSAGES)}`")  # noqa: S608 - our own words

    def refused(world: World) -> None:
        (row,) = world.rows(REJECTED_DISPATCH)
        assert (row["reason"], row["redelivery_count"], row["cause"]) == ("message_missing", 4, "nack")

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a")),
            advance(T0),
            put_back(Again("a", T0 + HOUR, count=4)),
            check(lose_messages),
            advance(T0 + HOUR),
            delivered("a"),
            check(refused),
        ],
    )


def test_a_schedule_that_is_rebuilt_knows_what_is_to_come_again(spark: SparkSession, folder: str) -> None:
    """What waits does, beside first deliveries; what came again or was closed does not; and a second time."""
    due = T0 + 2 * HOUR

    def rebuilt(world: World) -> None:
        world.lose(SCHEDULE)
        rebuild(world.spark, world.warehouse, SCHEDULE, world.options)
        rows = [row for row in world.rows(SEGMENTS) if row["kind"] == "rebuild"]
        newest = max(row["batch_id"] for row in rows)
        told = [(row["redelivery_count"], row["cause"], row["count"]) for row in rows if row["batch_id"] == newest]
        assert sorted(told, key=str) == [(1, "nack", 1), (2, "ack_timeout", 1), (3, "nack", 1), *[(None, None, 1)] * 2]

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            subscribe("t", "coarse", tick_ms=1_000),
            append(message("a"), message("b"), message("c")),
            advance(T0),
            put_back(Again("a", T0 + MINUTE), Again("c", T0 + MINUTE, subscription="coarse", tick_ms=1_000)),
            append(message("later", after=HOUR // 2)),
            advance(T0 + HOUR),
            put_back(
                Again("a", due, count=2, cause="ack_timeout"),
                Again("b", due),
                Again("c", due),
                Again("c", due, count=3, subscription="coarse", tick_ms=1_000),
                Again("b", due, life=9),
            ),
            close(Again("b", due)),
            check(rebuilt),
            restart(),
            advance(T0 + HOUR + MINUTE),
            check(rebuilt),
            restart(),
            advance(due + MINUTE),
            check(lambda world: all_of(world, due)),
        ],
    )


def all_of(world: World, due: int) -> None:
    """What comes in the script above, each once."""
    bucket = -(-due // 512) * 512
    early = -(-(T0 + MINUTE) // 512) * 512
    assert again(world) == [
        ("s", "a", 1, "nack", T0 + MINUTE),
        ("coarse", "c", 1, "nack", early),
        ("s", "c", 1, "nack", due),
        ("s", "a", 2, "ack_timeout", due),
        ("coarse", "c", 3, "nack", bucket),
    ]
    assert len(came(world)) == 5 + 2 * 4
    assert world.rows(REJECTED_DISPATCH) == []


def test_dispatch_that_is_rebuilt_goes_on_behind_what_came_again(spark: SparkSession, folder: str) -> None:
    """A new checkpoint takes nothing twice, of first deliveries and of later ones."""
    due = T0 + HOUR

    def rebuilt(world: World) -> None:
        world.lose(DISPATCH)
        rebuild(world.spark, world.warehouse, DISPATCH, world.options)

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("a"), message("b")),
            advance(T0),
            put_back(Again("a", due), Again("b", due + MINUTE)),
            advance(due),
            check(rebuilt),
            restart(),
            advance(due + MINUTE),
            came_again(("s", "a", 1, "nack", due), ("s", "b", 1, "nack", due + MINUTE)),
        ],
    )
