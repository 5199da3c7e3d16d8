"""A subscription is sought to a place of the log, while something is open for it and whatever dies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.client.messageid import MessageId
from pipeline.client.pending import pending
from pipeline.client.subscribing.seeking import begin_anew, prospect
from pipeline.client.subscribing.subscriptions import lives
from pipeline.config.stages import SCHEDULE
from pipeline.service.rebuild import rebuild
from schemas import DELIVERIES, MESSAGES
from tests.support.consuming import acknowledging, says, standing
from tests.support.examined import sound
from tests.support.stream import Step, World, advance, append, check, kill_after, message, play, restart, subscribe

T0 = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE
FIRST = append(*(message(name, after=after) for name, after in {"a": 0, "b": 0, "soon": 9 * MINUTE}.items()))
PARKED = append(message("early parked", after=5 * HOUR), message("parked", after=5 * HOUR + MINUTE))


def place(world: World, payload: str) -> MessageId:
    """Where a message is in the log."""
    row = next(row for row in world.rows(MESSAGES) if bytes(row["payload"]) == payload.encode())
    return MessageId.of("t", row["ledger_id"], row["entry_id"])


def sought(payload: str, name: str = "s") -> Step:
    """Seek a subscription to a message."""
    return lambda world: void(begin_anew(world.warehouse.root, "t", name, place(world, payload)))


def cleared(name: str = "s") -> Step:
    """Seek a subscription to the end of the log."""
    return lambda world: void(begin_anew(world.warehouse.root, "t", name, MessageId.latest))


def void(_: object) -> None:
    """A step says nothing."""


def got(world: World, name: str = "s") -> list[Counter[str]]:
    """What each life of a subscription was given, in the order of lives."""
    rows = [row for row in world.rows(DELIVERIES) if row["subscription"] == name and not row["redelivery_count"]]
    numbers = sorted({row["life"] for row in rows})
    return [Counter(bytes(row["payload"]).decode() for row in rows if row["life"] == number) for number in numbers]


def each_life(*expected: tuple[str, ...], name: str = "s") -> Step:
    """Each life was given exactly these messages, each once."""

    def look(world: World) -> None:
        assert got(world, name) == [Counter(each) for each in expected]

    return check(look)


def rebuilt(world: World) -> None:
    """The schedule loses its state, and finds again what is pending."""
    world.end()
    rebuild(world.spark, world.warehouse, SCHEDULE, world.options)


def open_now(*payloads: str) -> Step:
    """These messages are open for the present life, by settle."""

    def look(world: World) -> None:
        life = lives(world.warehouse.root)["t", "s"].number
        assert set(standing(world, life=life).open()) == {place(world, each).position for each in payloads}

    return check(look)


def backlog(count: int) -> Step:
    """So many messages are pending for the present life, also before ingest knows of it."""

    def look(world: World) -> None:
        assert pending(world.warehouse.root, "t", "s").backlogs[0].count == count

    return check(look)


@pytest.mark.parametrize(
    "fatal",
    [
        pytest.param("ingest.messages", marks=pytest.mark.soak),
        "ingest.segments",
        pytest.param("schedule.redelivery", marks=pytest.mark.soak),
        pytest.param("dispatch.deliveries", marks=pytest.mark.soak),
    ],
)
def test_each_message_from_the_place_on_comes_once_whatever_dies(spark: SparkSession, folder: str, fatal: str) -> None:
    """Due, waiting, and parked ones; within a ledger those from the entry on. Nothing comes for the life before."""
    world = play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            subscribe("t", "other"),
            advance(T0 - MINUTE),
            FIRST,
            PARKED,
            advance(T0),
            each_life(("a", "b")),
            says("ack", "a", "b"),
            advance(T0 + MINUTE),
            open_now(),
            sought("b"),
            backlog(4),
            append(message("new", after=MINUTE)),
            kill_after(fatal),
            advance(T0 + 2 * MINUTE),
            restart(),
            advance(T0 + 3 * MINUTE),
            each_life(("a", "b"), ("b", "new")),
            open_now("b", "new"),
            check(rebuilt),
            restart(),
            advance(T0 + 10 * MINUTE),
            each_life(("a", "b"), ("b", "new", "soon")),
            sought("parked"),
            advance(T0 + 11 * MINUTE),
            open_now("new"),
            check(rebuilt),
            restart(),
            advance(T0 + 6 * HOUR),
            each_life(("a", "b"), ("b", "new", "soon"), ("parked", "new")),
            each_life(("a", "b", "new", "soon", "early parked", "parked"), name="other"),
        ],
    )
    sound(world.warehouse.root)


def test_clearing_drops_what_is_open_and_what_waits(spark: SparkSession, folder: str) -> None:
    """What is sent later comes. Two seeks that ingest sees at once are one: the last one."""
    told: dict[str, Any] = {}

    def look(world: World) -> None:
        told["clear"] = prospect(world.warehouse.root, "t", "s", MessageId.latest)
        told["all"] = prospect(world.warehouse.root, "t", "s", MessageId.earliest)

    world = play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            advance(T0 - MINUTE),
            FIRST,
            PARKED,
            advance(T0),
            says("nack", "a", after_ms=5 * MINUTE),
            advance(T0 + MINUTE),
            check(look),
            sought("a"),
            cleared(),
            backlog(0),
            advance(T0 + 2 * MINUTE),
            says("ack", "b"),
            append(message("new", after=MINUTE)),
            restart(),
            advance(T0 + 7 * HOUR),
            each_life(("a", "b"), ("new",)),
            open_now("new"),
        ],
    )
    drops = told["clear"].drops
    assert (drops.pending, drops.outstanding, drops.waiting) == (3, 1, 1)
    assert (told["clear"].brings, told["all"].brings) == (0, 5)
    assert told["all"].deleted_until is None
    sound(world.warehouse.root)
