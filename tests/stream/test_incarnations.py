"""A subscription that was removed and comes back, before all is over that its earlier life was given.

One run has a topic for each test, so that the stages start and stop for all of them together; `make soak` has the
scripts that differ little.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from pipeline.config.stages import SCHEDULE, STAGES
from schemas import DELIVERIES
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
from tests.support.together import Played, play_together
from tests.support.worlds import TWO_STORES

T0 = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE

DELAYS = {"now": 0, "soon": 10 * MINUTE, "later": 20 * MINUTE, "parked": 5 * HOUR}
ALL = tuple(DELAYS)


def sent(topic: str) -> Step:
    """A message of each delay."""
    return append(*(message(name, topic, after=delay) for name, delay in DELAYS.items()))


def noticed(topic: str) -> list[Step]:
    """It leaves, and ingest sees it."""
    return [unsubscribe(topic, "s"), advance(T0 + MINUTE)]


def unseen(topic: str) -> list[Step]:
    """It leaves while nothing runs."""
    return [stop(), unsubscribe(topic, "s")]


def back(topic: str, start: str, *left: Step) -> list[Step]:
    """A subscription gets something, leaves and comes back; what it was given is still waiting."""
    first = [subscribe(topic, "s"), sent(topic), advance(T0), delivered("now", topic=topic)]
    return [*first, *left, subscribe(topic, "s", start=start), restart()]


def one_by_one(instant: int) -> Step:
    """Start each stage when those before it have reached an instant, so that dispatch lags behind."""

    def step(world: World) -> None:
        world.instant = instant
        for stage in STAGES:
            world.begin_one(stage)
            if world.dead:
                return

    return step


def rebuilt(world: World) -> None:
    """The schedule loses its state, and finds again what is pending."""
    world.end()
    world.rebuild(SCHEDULE)


def from_latest(topic: str, *left: Step) -> list[Step]:
    """Back from `latest`, and a new message."""
    return [
        *back(topic, "latest", *left),
        append(message("new", topic, after=15 * MINUTE)),
        advance(T0 + 2 * MINUTE),
        advance(T0 + HOUR),
        delivered("now", "new", topic=topic),
        advance(T0 + 6 * HOUR),
        delivered("now", "new", topic=topic),
    ]


def from_earliest(topic: str) -> list[Step]:
    """Back from `earliest`."""

    def lives(world: World) -> None:
        assert sorted(row["life"] for row in world.rows(DELIVERIES) if row["topic"] == topic) == [1, 2, 2, 2, 2]

    return [
        *back(topic, "earliest", *noticed(topic)),
        advance(T0 + 2 * MINUTE),
        delivered("now", "now", topic=topic),
        advance(T0 + HOUR),
        delivered("now", "now", "soon", "later", topic=topic),
        advance(T0 + 6 * HOUR),
        delivered("now", "now", "soon", "later", "parked", topic=topic),
        check(lives),
    ]


def beside_another(topic: str, start: str, *again: Step) -> list[Step]:
    """Another one listens alike all the time."""
    once_more = ALL if start == "earliest" else ()

    def got(world: World) -> None:
        rows = (row for row in world.rows(DELIVERIES) if row["topic"] == topic)
        found = Counter((row["subscription"], row["life"], bytes(row["payload"]).decode()) for row in rows)
        assert found == Counter(
            [
                *(("a", 1, name) for name in (*ALL, "new")),
                ("s", 1, "now"),
                *(("s", 2, name) for name in (*once_more, "new")),
            ]
        )

    return [
        subscribe(topic, "a"),
        *back(topic, start, *noticed(topic)),
        *again,
        append(message("new", topic, after=15 * MINUTE)),
        advance(T0 + 2 * MINUTE),
        advance(T0 + HOUR),
        delivered("now", "soon", "new", "later", subscription="a", topic=topic),
        advance(T0 + 6 * HOUR),
        check(got),
    ]


def on_its_way(topic: str) -> list[Step]:
    """Let go for the earlier life, but not handed over; given to the new life, but not let go."""
    return [
        subscribe(topic, "s"),
        sent(topic),
        advance(T0),
        kill_after("dispatch.counted"),
        advance(T0 + 11 * MINUTE),
        unsubscribe(topic, "s"),
        subscribe(topic, "s", start="earliest"),
        kill_after("schedule.counted"),
        one_by_one(T0 + 12 * MINUTE),
        check(rebuilt),
        one_by_one(T0 + 12 * MINUTE),
        delivered("now", "now", "soon", topic=topic),
        advance(T0 + HOUR),
        delivered("now", "now", "soon", "later", topic=topic),
        advance(T0 + 6 * HOUR),
        delivered("now", "now", "soon", "later", "parked", topic=topic),
    ]


@pytest.fixture(scope="module", params=TWO_STORES)
def day(request: pytest.FixtureRequest) -> Played:
    """The run."""
    return play_together(
        {
            "from latest": from_latest("from latest", *noticed("from latest")),
            "from earliest": from_earliest("from earliest"),
            "beside latest": beside_another("beside latest", "latest"),
            "beside earliest": beside_another("beside earliest", "earliest", check(rebuilt), restart()),
            "on its way": on_its_way("on its way"),
        },
        play=request.param,
    )


def test_latest_gets_nothing_of_its_earlier_life(day: Played) -> None:
    """Who comes back from `latest` starts anew: what waited for it, near and parked, is for nobody."""
    day.shows("from latest")


def test_earliest_gets_the_whole_log_once_again(day: Played) -> None:
    """What its earlier life left waiting does not come beside it."""
    day.shows("from earliest")


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_who_leaves_and_comes_back_disturbs_nobody_who_listens_alike(day: Played, start: str) -> None:
    """Both wait in one index when one of them leaves: the other gets each message once, and so do both lives."""
    day.shows(f"beside {start}")


def test_a_return_survives_a_rebuild_and_what_is_on_its_way(day: Played) -> None:
    """Each message comes once to each life."""
    day.shows("on its way")


def test_nothing_is_wrong_whoever_left_and_came_back(day: Played) -> None:
    """The doctor finds nothing."""
    day.shows("from latest").sound()


@pytest.mark.soak
def test_latest_gets_nothing_of_its_earlier_life_that_ended_unseen(spark: SparkSession, folder: str) -> None:
    """It left and came back while nothing ran."""
    play(spark, folder, from_latest("t", *unseen("t"))).sound()


@pytest.mark.soak
@pytest.mark.parametrize(("start", "again"), [("earliest", []), ("latest", [check(rebuilt), restart()])])
def test_who_comes_back_disturbs_nobody_with_a_rebuild_or_without(
    spark: SparkSession, folder: str, start: str, again: list[Step]
) -> None:
    """The other way round than in the run of all."""
    play(spark, folder, beside_another("t", start, *again)).sound()


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
            sent("t"),
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
