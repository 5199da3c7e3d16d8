"""A subscription is sought to a place of the log, while something is open for it and whatever dies.

One run has a topic for each test, so that the stages start and stop for all of them together.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from pipeline.client.insight.pending import pending
from pipeline.client.insight.prospect import Prospect, prospect
from pipeline.client.message import MessageId
from pipeline.client.subscribing.lives import lives
from pipeline.client.subscribing.seeking import begin_anew
from pipeline.config.stages import SCHEDULE
from schemas import DELIVERIES, MESSAGES
from tests.support.consuming import acknowledging, says, standing
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    kill_after,
    message,
    play,
    restart,
    subscribe,
    void,
)
from tests.support.together import Played, play_together
from tests.support.worlds import SHELLS

T0 = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE


def sent(topic: str) -> list[Step]:
    """Two that are due at once, one that is not, and two parked ones."""
    near = (message(name, topic, after=after) for name, after in {"a": 0, "b": 0, "soon": 9 * MINUTE}.items())
    parked = (message("early parked", topic, after=5 * HOUR), message("parked", topic, after=5 * HOUR + MINUTE))
    return [append(*near), append(*parked)]


def place(world: World, topic: str, payload: str) -> MessageId:
    """Where a message is in the log."""
    rows = (row for row in world.rows(MESSAGES) if row["topic"] == topic)
    row = next(row for row in rows if bytes(row["payload"]) == payload.encode())
    return MessageId.of(topic, row["ledger_id"], row["entry_id"])


def sought(topic: str, payload: str) -> Step:
    """Seek a subscription to a message."""
    return lambda world: void(begin_anew(world.warehouse.root, topic, "s", place(world, topic, payload)))


def cleared(topic: str) -> Step:
    """Seek a subscription to the end of the log."""
    return lambda world: void(begin_anew(world.warehouse.root, topic, "s", MessageId.latest))


def got(world: World, topic: str, name: str) -> list[Counter[str]]:
    """What each life of a subscription was given, in the order of lives."""
    mine = [row for row in world.rows(DELIVERIES) if (row["topic"], row["subscription"]) == (topic, name)]
    rows = [row for row in mine if not row["redelivery_count"]]
    numbers = sorted({row["life"] for row in rows})
    return [Counter(bytes(row["payload"]).decode() for row in rows if row["life"] == number) for number in numbers]


def each_life(topic: str, *expected: tuple[str, ...], name: str = "s") -> Step:
    """Each life was given exactly these messages, each once."""

    def look(world: World) -> None:
        assert got(world, topic, name) == [Counter(each) for each in expected]

    return check(look)


def rebuilt(world: World) -> None:
    """The schedule loses its state, and finds again what is pending."""
    world.end()
    world.rebuild(SCHEDULE)


def open_now(topic: str, *payloads: str) -> Step:
    """These messages are open for the present life, by settle."""

    def look(world: World) -> None:
        life = lives(world.warehouse.root)[topic, "s"].number
        assert set(standing(world, topic, life=life).open()) == {
            place(world, topic, each).position for each in payloads
        }

    return check(look)


def backlog(topic: str, count: int) -> Step:
    """So many messages are pending for the present life, also before ingest knows of it."""

    def look(world: World) -> None:
        assert pending(world.warehouse.root, topic, "s").backlogs[0].count == count

    return check(look)


def from_a_place(topic: str, fatal: str) -> list[Step]:
    """Sought twice: back, while the process dies, and forward; each time the schedule is rebuilt."""
    return [
        acknowledging(topic, "s"),
        subscribe(topic, "other"),
        advance(T0 - MINUTE),
        *sent(topic),
        advance(T0),
        each_life(topic, ("a", "b")),
        says("ack", "a", "b", topic=topic),
        advance(T0 + MINUTE),
        open_now(topic),
        sought(topic, "b"),
        backlog(topic, 4),
        append(message("new", topic, after=MINUTE)),
        kill_after(fatal),
        advance(T0 + 2 * MINUTE),
        restart(),
        advance(T0 + 3 * MINUTE),
        each_life(topic, ("a", "b"), ("b", "new")),
        open_now(topic, "b", "new"),
        check(rebuilt),
        restart(),
        advance(T0 + 10 * MINUTE),
        each_life(topic, ("a", "b"), ("b", "new", "soon")),
        sought(topic, "parked"),
        advance(T0 + 11 * MINUTE),
        open_now(topic, "new"),
        check(rebuilt),
        restart(),
        advance(T0 + 6 * HOUR),
        each_life(topic, ("a", "b"), ("b", "new", "soon"), ("parked", "new")),
        each_life(topic, ("a", "b", "new", "soon", "early parked", "parked"), name="other"),
        check(lambda world: world.sound()),
    ]


PROSPECTS: dict[str, Prospect] = {}
"""What a program was told that asked before it cleared."""


def clearing(topic: str) -> list[Step]:
    """Two seeks, of which ingest sees the last one, when one is open, one waits, and others are to come."""

    def look(world: World) -> None:
        PROSPECTS["clear"] = prospect(world.warehouse.root, topic, "s", MessageId.latest)
        PROSPECTS["all"] = prospect(world.warehouse.root, topic, "s", MessageId.earliest)

    return [
        acknowledging(topic, "s"),
        advance(T0 - MINUTE),
        *sent(topic),
        advance(T0),
        says("nack", "a", topic=topic, after_ms=5 * MINUTE),
        advance(T0 + MINUTE),
        check(look),
        sought(topic, "a"),
        cleared(topic),
        backlog(topic, 0),
        advance(T0 + 2 * MINUTE),
        says("ack", "b", topic=topic),
        append(message("new", topic, after=MINUTE)),
        advance(T0 + 3 * MINUTE),
        restart(),
        advance(T0 + 6 * HOUR),
        each_life(topic, ("a", "b"), ("new",)),
        open_now(topic, "new"),
    ]


@pytest.fixture(scope="module", params=SHELLS)
def day(request: pytest.FixtureRequest) -> Played:
    """The run."""
    scripts = {"place": from_a_place("place", "ingest.segments"), "clearing": clearing("clearing")}
    return play_together(scripts, play=request.param)


def test_each_message_from_the_place_on_comes_once_whatever_dies(day: Played) -> None:
    """Due, waiting, and parked ones; within a ledger those from the entry on. Nothing comes for the life before."""
    day.shows("place")


@pytest.mark.soak
@pytest.mark.parametrize("fatal", ["ingest.messages", "schedule.redelivery", "dispatch.deliveries"])
def test_each_message_from_the_place_on_comes_once_wherever_it_dies(
    spark: SparkSession, folder: str, fatal: str
) -> None:
    """After other steps."""
    play(spark, folder, from_a_place("t", fatal))


def test_clearing_drops_what_is_open_and_what_waits(day: Played) -> None:
    """What is sent later comes. Two seeks that ingest sees at once are one: the last one."""
    world = day.shows("clearing")
    drops = PROSPECTS["clear"].drops
    assert (drops.pending, drops.outstanding, drops.waiting) == (3, 1, 1)
    assert (PROSPECTS["clear"].brings, PROSPECTS["all"].brings) == (0, 5)
    assert PROSPECTS["all"].deleted_until is None
    world.sound()
