"""Topic and subscription names of anything that Unicode has, and properties without a value, on the whole way."""

from __future__ import annotations

import pytest

from pipeline.client.insight.pending import pending
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing import subscriptions
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.stages import SCHEDULE
from tests.support.maintained import sharply
from tests.support.stream import Step, World, advance, at, check, restart
from tests.support.worlds import Play, on_spark, play_here

T0 = 1_700_000_000_000
HOUR = 3_600_000
NAMES = (
    "plain",
    "שלום \u202eعربي",
    "👩\u200d👩\u200d👧 \U0010ffff\uffff",
    "é",
    "e\u0301",
    "nul \0 in the middle",
    "lines\nof\r\ntext\tand\u2028more\x85",
    "it's \"quoted\" `so` ''",
    "back\\slash \\n \\u0041",
    "a/b/../c//",
    "*?[a-z]{x,y}",
    "100%25 %s %d %%",
    " blanks around ",
    "\ufeffmark",
    "$1 ${x} #{y} {}",
    '["","","0"]',
    "NULL",
    "--; DROP TABLE messages",
    "_delta_log",
    "Straße STRASSE",
    "x" * 1_000,
    "💥" * 1_000,
)
PROPERTIES = {"none": None, "": "", "💥\0": "\n'\"\\"}


def subscribed(world: World) -> None:
    """Each name is a topic and its subscription."""
    for name in NAMES:
        subscriptions.subscribe(world.warehouse.root, subscriptions.Subscription(name, name, tick_ms=1))


def send_one_each(after_ms: int) -> Step:
    """A message to each topic; its payload says how long it is delayed."""

    def step(world: World) -> None:
        payload = str(after_ms).encode()
        send(
            world.warehouse.root,
            [
                OutgoingMessage(name, payload, at(world.instant), name, PROPERTIES, deliver_after_ms=after_ms)
                for name in NAMES
            ],
        )

    return check(step)


def each_waits_for(count: int) -> Step:
    """So many messages are pending for each subscription."""

    def step(world: World) -> None:
        found = pending(world.warehouse.root).backlogs
        assert {(each.topic, each.subscription): each.count for each in found} == {
            (name, name): count for name in NAMES
        }

    return check(step)


def each_got(*payloads: str) -> Step:
    """What a consumer of each subscription reads."""

    def step(world: World) -> None:
        for name in NAMES:
            found = list(Deliveries(world.warehouse.root).take(name, name))
            assert [each.payload.decode() for each in found] == list(payloads), name
            assert {(each.topic, each.subscription, each.key) for each in found} == {(name, name, name)}
            assert all(each.properties == PROPERTIES for each in found)

    return check(step)


def maintained(world: World) -> None:
    """One round; retention keeps what is younger than an hour."""
    assert sharply(world.warehouse, HOUR)


def rebuilt(world: World) -> None:
    """The schedule loses its state; from now on Spark does what arrays in the driver did."""
    world.lose(SCHEDULE)
    world.rebuild(SCHEDULE)
    restart(driver_rows=0)(world)


@pytest.mark.parametrize(
    ("play", "between"),
    [
        pytest.param(play_here, [restart(driver_rows=0)], id="restarted"),
        pytest.param(on_spark, [restart(driver_rows=0)], id="restarted on Spark", marks=pytest.mark.soak),
        pytest.param(
            on_spark, [check(maintained), check(rebuilt)], id="maintained-and-rebuilt", marks=pytest.mark.soak
        ),
    ],
)
def test_any_name_and_any_property_goes_the_whole_way(play: Play, between: list[Step]) -> None:
    """Each message comes to its own subscription, once: by arrays, by Spark, after maintenance, after a rebuild.

    Statistics cut long texts, SQL and JSON quote some, and file systems know patterns: none of them may lose a name.
    """
    play(
        [
            check(subscribed),
            advance(T0),
            *map(send_one_each, (1_000, 60_000, 5 * HOUR)),
            advance(T0 + 1),
            each_waits_for(3),
            advance(T0 + 2_000),
            each_waits_for(2),
            each_got("1000"),
            *between,
            # Ingest may take them before the clock moves, or after: they are due after that instant either way.
            send_one_each(90_000),
            advance(T0 + 70_000),
            each_got("1000", "60000"),
            advance(T0 + 6 * HOUR),
            each_got("1000", "60000", "90000", f"{5 * HOUR}"),
            each_waits_for(0),
        ],
    )
