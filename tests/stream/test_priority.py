"""A subscription orders what is due in one bucket by a number in a property; others get it by time, as ever."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.settings import Settings
from schemas import DELIVERIES
from tests.support.stream import World, advance, append, check, kill_after, message, restart, subscribe
from tests.support.worlds import Play, on_spark, play_here

T0 = 1_700_000_000_000
BUCKET = 1_024
DUE = (T0 // BUCKET + 9) * BUCKET
"""The end of a bucket."""


def urgent(payload: str, before: int, said: str | None) -> dict[str, Any]:
    """A message that is due so many ms before the end of the bucket, with what it says of its urgency."""
    return message(payload, deliver_at=DUE - before) | {"properties": None if said is None else {"urgency": said}}


def prioritised(world: World) -> None:
    """The policy is set."""
    set_policy(world.warehouse.root, "t", "first", priority="urgency")


def got(world: World, name: str) -> list[str]:
    """What a subscription got, in the order of delivery."""
    return [each.payload.decode() for each in Deliveries(world.warehouse.root).take(None, name)]


@pytest.mark.parametrize(
    ("play", "settings"),
    [
        pytest.param(play_here, Settings(), id="driver"),
        pytest.param(partial(on_spark, stores=2), Settings(driver_rows=0), id="spark", marks=pytest.mark.soak),
    ],
)
def test_the_highest_number_comes_first_within_a_bucket(play: Play, settings: Settings) -> None:
    """Dispatch dies with its files written. The next bucket waits for its time, however urgent it is."""
    world = play(
        [
            subscribe("t", "first", tick_ms=BUCKET),
            subscribe("t", "plain", tick_ms=BUCKET),
            check(prioritised),
            advance(T0),
            append(urgent("none", 900, None), urgent("less", 800, "-1"), urgent("words", 700, "very")),
            append(urgent("low", 600, "2"), urgent("high", 500, "10"), urgent("next", -1, "99")),
            advance(T0 + 1),
            kill_after("dispatch.written"),
            advance(DUE),
            restart(),
            check(lambda world: world.drain()),
            advance(DUE + 2 * BUCKET),
        ],
        settings,
    )
    assert got(world, "first") == ["high", "low", "none", "words", "less", "next"]
    assert got(world, "plain") == ["none", "less", "words", "low", "high", "next"]
    assert all(row["deliver_at"] <= row["due_time"] for row in world.rows(DELIVERIES))
    world.sound()
