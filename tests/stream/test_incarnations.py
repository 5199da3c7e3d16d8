"""A subscription that was removed and comes back, before all is over that its earlier life was given."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from pipeline.config.stages import SCHEDULE, STAGES
from pipeline.service.rebuild import rebuild
from pipeline.service.run import start
from schemas import DELIVERIES
from tests.support.examined import sound
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
    unsubscribe,
)

T0 = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE

DELAYS = {"now": 0, "soon": 10 * MINUTE, "later": 20 * MINUTE, "parked": 5 * HOUR}
SENT = append(*(message(name, after=delay) for name, delay in DELAYS.items()))
NOTICED = [unsubscribe("t", "s"), advance(T0 + MINUTE)]
UNSEEN = [stop(), unsubscribe("t", "s")]
"""Ways to leave: seen by ingest, and while nothing runs."""


def back(start: str, *left: Step) -> list[Step]:
    """A subscription gets something, leaves and comes back; what it was given is still waiting."""
    first = [subscribe("t", "s"), SENT, advance(T0), delivered("now")]
    return [*first, *left, subscribe("t", "s", start=start), restart()]


def one_by_one(instant: int) -> Step:
    """Start each stage when those before it have reached an instant, so that dispatch lags behind."""

    def step(world: World) -> None:
        world.instant = instant
        options = replace(world.options, observe=world.observe)
        for stage in STAGES:
            world.running.append(start(world.spark, world.warehouse, stage, options))
            world.drain()
            if not world.running:
                return

    return step


def play_soundly(spark: SparkSession, folder: str, steps: list[Step]) -> None:
    """Play a script; nothing is wrong afterwards, whoever left and came back."""
    sound(play(spark, folder, steps).warehouse.root)


def rebuilt(world: World) -> None:
    """The schedule loses its state, and finds again what is pending."""
    world.end()
    rebuild(world.spark, world.warehouse, SCHEDULE, world.options)


@pytest.mark.parametrize(
    "left", [pytest.param(NOTICED, id="noticed"), pytest.param(UNSEEN, id="unseen", marks=pytest.mark.soak)]
)
def test_latest_gets_nothing_of_its_earlier_life(spark: SparkSession, folder: str, left: list[Step]) -> None:
    """Who comes back from `latest` starts anew: what waited for it, near and parked, is for nobody."""
    play_soundly(
        spark,
        folder,
        [
            *back("latest", *left),
            append(message("new", after=15 * MINUTE)),
            advance(T0 + 2 * MINUTE),
            advance(T0 + HOUR),
            delivered("now", "new"),
            advance(T0 + 6 * HOUR),
            delivered("now", "new"),
        ],
    )


def test_earliest_gets_the_whole_log_once_again(spark: SparkSession, folder: str) -> None:
    """What its earlier life left waiting does not come beside it."""

    def lives(world: World) -> None:
        assert sorted(row["life"] for row in world.rows(DELIVERIES)) == [1, 2, 2, 2, 2]

    play_soundly(
        spark,
        folder,
        [
            *back("earliest", *NOTICED),
            advance(T0 + 2 * MINUTE),
            delivered("now", "now"),
            advance(T0 + HOUR),
            delivered("now", "now", "soon", "later"),
            advance(T0 + 6 * HOUR),
            delivered("now", "now", "soon", "later", "parked"),
            check(lives),
        ],
    )


ALL = ("now", "soon", "later", "parked")


@pytest.mark.parametrize(
    ("start", "again"),
    [
        ("latest", []),
        pytest.param("earliest", [], marks=pytest.mark.soak),
        pytest.param("latest", [check(rebuilt), restart()], marks=pytest.mark.soak),
        ("earliest", [check(rebuilt), restart()]),
    ],
)
def test_who_leaves_and_comes_back_disturbs_nobody_who_listens_alike(
    spark: SparkSession, folder: str, start: str, again: list[Step]
) -> None:
    """Both wait in one index when one of them leaves: the other gets each message once, and so do both lives."""
    once_more = ALL if start == "earliest" else ()

    def got(world: World) -> None:
        found = Counter(
            (row["subscription"], row["life"], bytes(row["payload"]).decode()) for row in world.rows(DELIVERIES)
        )
        assert found == Counter(
            [
                *(("a", 1, name) for name in (*ALL, "new")),
                ("s", 1, "now"),
                *(("s", 2, name) for name in (*once_more, "new")),
            ]
        )

    play_soundly(
        spark,
        folder,
        [
            subscribe("t", "a"),
            *back(start, *NOTICED),
            *again,
            append(message("new", after=15 * MINUTE)),
            advance(T0 + 2 * MINUTE),
            advance(T0 + HOUR),
            delivered("now", "soon", "new", "later", subscription="a"),
            advance(T0 + 6 * HOUR),
            check(got),
        ],
    )


def test_a_return_survives_a_rebuild_and_what_is_on_its_way(spark: SparkSession, folder: str) -> None:
    """Let go for the earlier life, but not handed over; given to the new life, but not let go: each comes once."""
    play_soundly(
        spark,
        folder,
        [
            subscribe("t", "s"),
            SENT,
            advance(T0),
            kill_after("dispatch.counted"),
            advance(T0 + 11 * MINUTE),
            unsubscribe("t", "s"),
            subscribe("t", "s", start="earliest"),
            kill_after("schedule.counted"),
            one_by_one(T0 + 12 * MINUTE),
            check(rebuilt),
            one_by_one(T0 + 12 * MINUTE),
            delivered("now", "now", "soon"),
            advance(T0 + HOUR),
            delivered("now", "now", "soon", "later"),
            advance(T0 + 6 * HOUR),
            delivered("now", "now", "soon", "later", "parked"),
        ],
    )


@pytest.mark.soak
def test_a_return_with_another_tick_while_deliveries_are_prepared_or_released(spark: SparkSession, folder: str) -> None:
    """Twice they leave while something is on its way to them, and come back at once with another tick.

    What is prepared or released by the time at which ingest notices their return is handed over to the life that it was
    for. Nobody gets a message twice in one life, and the present life of `earliest` gets the whole log.
    """
    names = {"s": "latest", "e": "earliest"}

    def back_with(tick_ms: int) -> list[Step]:
        return [
            *(unsubscribe("t", name) for name in names),
            *(subscribe("t", name, tick_ms=tick_ms, start=start) for name, start in names.items()),
            restart(),
        ]

    def lives(name: str, *expected: tuple[int, tuple[str, ...]]) -> Step:
        def step(world: World) -> None:
            rows = (row for row in world.rows(DELIVERIES) if row["subscription"] == name)
            found = Counter((row["life"], bytes(row["payload"]).decode()) for row in rows)
            assert found == Counter((life, payload) for life, payloads in expected for payload in payloads)

        return check(step)

    play(
        spark,
        folder,
        [
            *(subscribe("t", name, start=start) for name, start in names.items()),
            SENT,
            advance(T0),
            kill_after("dispatch.noted"),
            advance(T0 + 10 * MINUTE),
            *back_with(MINUTE),
            append(message("new", after=5 * MINUTE)),
            advance(T0 + 11 * MINUTE),
            lives("s", (1, ("now", "soon"))),
            lives("e", (1, ("now", "soon")), (2, ("now", "soon"))),
            kill_after("schedule.redelivery"),
            advance(T0 + 25 * MINUTE),
            *back_with(1),
            append(message("last", after=MINUTE)),
            advance(T0 + 26 * MINUTE),
            advance(T0 + 6 * HOUR),
            lives("s", (1, ("now", "soon")), (2, ("new",)), (3, ("last",))),
            lives("e", (1, ("now", "soon")), (2, ("now", "soon", "new", "later")), (3, (*ALL, "new", "last"))),
        ],
    )
