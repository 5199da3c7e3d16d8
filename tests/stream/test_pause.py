"""A subscription is paused: what becomes due for it is held, survives all deaths, and comes in order afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from tests.support.consuming import acknowledging, held_back
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    each_by_itself,
    kill_after,
    message,
    revive,
    same,
    subscribe,
)
from tests.support.worlds import Play, on_spark, play_here

T0 = 1_700_000_000_000
SECOND = 1_000
DEATHS = ("dispatch.counted", "dispatch.written", "dispatch.shelved", "dispatch.held", "dispatch.noted")
NAMES = ("s", "plain", "other")
SPREAD = [f"{place:02}" for place in range(20)]


def paused(*names: str, so: bool = True) -> Step:
    """Some subscriptions are paused, or are not any more."""

    def step(world: World) -> None:
        for name in names:
            assert set_policy(world.warehouse.root, "t", name, paused=so)

    return check(step)


def got(world: World, name: str) -> list[str]:
    """What a subscription got, in the order in which it became visible: a new checkpoint counts its batches anew."""
    return [each.payload.decode() for each in Deliveries(world.warehouse.root).take(None, name)]


def holds(**counts: int) -> Step:
    """So many positions are held of each subscription, and none of the others."""
    return check(lambda world: same(dict(held_back(world)), counts))


def lost(world: World) -> None:
    """Dispatch loses its checkpoint, too."""
    world.rebuild(DISPATCH)


def holding(number: int, death: str) -> list[Step]:
    """Three messages become due; dispatch dies while it holds them. Every second time it is Spark who goes on."""
    now = T0 + number * 10 * SECOND
    return [
        append(*(message(payload, after=place * SECOND) for place, payload in enumerate(payloads(number)))),
        kill_after(death),
        advance(now),
        revive(driver_rows=0 if number % 2 == 0 else 200_000),
        advance(now + 5 * SECOND),
        holds(s=3 * number, plain=3 * number),
    ]


def payloads(number: int) -> list[str]:
    """What is sent at a time."""
    return [f"{number}-{place}" for place in range(3)]


def spreading(begin: int) -> list[Step]:
    """What becomes due at once comes at a rate, in order; nothing comes before its time, the other has all at once."""
    due = [message(payload, "u", after=1 + place) for place, payload in enumerate(SPREAD)]

    def have(paced: int) -> Step:
        return check(lambda world: same([got(world, name) for name in ("paced", "free")], [SPREAD[:paced], SPREAD]))

    return [
        check(lambda world: same(set_policy(world.warehouse.root, "u", "paced", max_rate=4), wanted=True)),
        append(*due, message("later", "u", after=3_600 * SECOND)),
        *(advance(begin + seconds * SECOND) for seconds in (1, 2)),
        have(0),
        advance(begin + 4 * SECOND),
        have(8),
        holds(paced=12),
        advance(begin + 60 * SECOND),
        holds(),
    ]


@pytest.mark.parametrize(
    ("play", "holds_back", "lets_go"),
    [
        pytest.param(play_here, ("dispatch.shelved",), ("dispatch.shelved",), id="few"),
        pytest.param(on_spark, DEATHS, DEATHS, id="all", marks=pytest.mark.soak),
    ],
)
def test_what_is_held_comes_in_order_whatever_dies(
    play: Play, holds_back: Sequence[str], lets_go: Sequence[str]
) -> None:
    """With and without acknowledgement; the other subscription is not touched.

    Dispatch dies while it holds, and while it lets go, a few positions with each batch, and loses its checkpoint. Then
    another one gets what is due at its rate.
    """
    steps: list[Step] = [
        each_by_itself(),
        acknowledging("t", "s"),
        *(subscribe("t", name) for name in NAMES[1:]),
        *(subscribe("u", name) for name in ("paced", "free")),
        advance(T0),
        paused("s", "plain"),
    ]
    for number, death in enumerate(holds_back, 1):
        steps += holding(number, death)
    every = [payload for number in range(1, len(holds_back) + 1) for payload in payloads(number)]
    steps += [
        check(lambda world: same([got(world, name) for name in NAMES], [[], [], every])),
        check(lambda world: same({each.count for each in pending(world.warehouse.root).backlogs}, {0, len(every)})),
        check(lambda world: world.sound()),
        kill_after(lets_go[0]),
        paused("s", "plain", so=False),
        advance(T0 + 100 * SECOND),
        *(step for death in lets_go[1:] for step in (check(lost), revive(death))),
        revive(),
        advance(T0 + 200 * SECOND),
        holds(),
        *spreading(T0 + 300 * SECOND),
    ]
    world = play(steps, Settings(rows_per_task=12))
    assert [got(world, name) for name in NAMES] == [every, every, every]
    assert got(world, "paced") == got(world, "free") == SPREAD
    assert [each.count for each in pending(world.warehouse.root).backlogs] == [0, 0, 0, 1, 1]
    world.sound()
