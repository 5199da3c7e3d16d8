"""Of what is held each tenant has its turn, whatever dies, and whatever is set meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.client.subscribing.policysetting import set_policy, unset_policy
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from pipeline.subscriptions.fairness import number_of
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
from tests.support.turn_model import one_by_one
from tests.support.worlds import Play, on_spark, play_here

T0 = 2_000_000_000_000
SECOND, RATE = 1_000, 4
DEATHS = ("dispatch.counted", "dispatch.written", "dispatch.shelved", "dispatch.held", "dispatch.noted")
NAMES = ("s", "plain")
"""The first one acknowledges. Both have turns and a rate; a third one has neither."""
TENANTS = {"ann": 24, "bob": 1, "cid": 6}


def of(tenant: str, number: int) -> dict[str, Any]:
    """A message of a tenant."""
    name = f"{tenant}-{number:02}"
    return {**message(name, after=1 + number), "message_key": tenant, "properties": [("tenant", tenant)]}


def policies(**stated: object) -> Step:
    """Both have these."""

    def step(world: World) -> None:
        for name in NAMES:
            set_policy(world.warehouse.root, "t", name, **stated)

    return check(step)


def got(world: World, name: str) -> list[str]:
    """What a subscription got, in the order in which it became visible."""
    return [each.payload.decode() for each in Deliveries(world.warehouse.root).take(None, name)]


def in_turn(count: int, weights: Mapping[str, int], begun: tuple[str, ...] = ()) -> list[str]:
    """The first messages in turn, of those that have not come before."""
    left = {tenant: [of(tenant, number)["payload"].decode() for number in range(n)] for tenant, n in TENANTS.items()}
    queues = {number_of(tenant.encode()): [each for each in own if each not in begun] for tenant, own in left.items()}
    own = {number_of(tenant.encode()): weights.get(tenant, 1) for tenant in TENANTS}
    came, _ = one_by_one({value: len(each) for value, each in queues.items()}, own, (0, 0), count)
    return [queues[value].pop(0) for value in came]


def have(count: int, **weights: int) -> Step:
    """So many have come to both, in turn. Within a second they come as they are due."""

    def look(world: World) -> None:
        wanted = in_turn(count, weights)
        for name in NAMES:
            came = got(world, name)
            for begin in range(0, max(len(came), count), RATE):
                assert sorted(came[begin : begin + RATE]) == sorted(wanted[begin : begin + RATE]), (name, begin)

    return check(look)


def holds(count: int) -> Step:
    """So many positions are held of each of the two."""
    return check(lambda world: same(dict(held_back(world)), dict.fromkeys(NAMES, count) if count else {}))


def lost(world: World) -> None:
    """Dispatch loses its checkpoint, too."""
    world.rebuild(DISPATCH)


def every() -> list[dict[str, Any]]:
    """All messages, those of the one with most first."""
    return [of(tenant, number) for tenant, count in TENANTS.items() for number in range(count)]


def seconds(first: int, last: int) -> list[Step]:
    """The clock goes on second by second."""
    return [advance(T0 + second * SECOND) for second in range(first, last + 1)]


@pytest.mark.parametrize(
    ("play", "deaths"),
    [
        pytest.param(play_here, ("dispatch.written", "dispatch.shelved"), id="few"),
        pytest.param(on_spark, DEATHS, id="all", marks=pytest.mark.soak),
    ],
)
def test_who_has_one_message_is_not_behind_who_has_many_whatever_dies(play: Play, deaths: tuple[str, ...]) -> None:
    """A turn that has begun goes on behind a death, a start, and a checkpoint that is lost. A pause changes nothing."""
    steps: list[Step] = [
        each_by_itself(),
        acknowledging("t", "s"),
        *(subscribe("t", name) for name in ("plain", "other")),
        policies(fair_by="property:tenant", fair_weights="cid=2", max_rate=RATE),
        advance(T0),
        append(*every()),
        *seconds(1, 2),
        holds(sum(TENANTS.values())),
        *seconds(3, 3),
        have(RATE, cid=2),
    ]
    second = 3
    for number, death in enumerate(deaths, 1):
        # A start begins the time of a rate anew.
        second += 2
        again = [check(lost)] if number == len(DEATHS) else []
        # The third time it is Spark who goes on.
        goes_on = revive(driver_rows=0) if number == 3 else revive(driver_rows=200_000) if number == 4 else revive()
        steps += [kill_after(death), *seconds(second - 1, second - 1), *again, goes_on, *seconds(second, second)]
    steps += [
        policies(paused=True),
        *seconds(second + 1, second + 3),
        policies(paused=False),
        *seconds(second + 4, second + 14),
        holds(0),
        have(sum(TENANTS.values()), cid=2),
        check(lambda world: same(sorted(got(world, "other")), sorted(in_turn(99, {})))),
    ]
    play(steps, Settings(rows_per_task=12)).sound()


def test_other_weights_and_no_turns_count_at_once(play: Play) -> None:
    """By a key, then with weights, and then without turns: what was due first comes first."""

    def same_for_both(world: World) -> None:
        assert got(world, "s") == got(world, "plain")

    def no_turns(world: World) -> None:
        for name in NAMES:
            assert unset_policy(world.warehouse.root, "t", "fair_by", subscription=name)

    def in_order_of_time(world: World) -> None:
        *before, first, second, third, fourth = got(world, "s")
        rest = {each["payload"].decode() for each in every()} - set(before)
        numbers = sorted(int(each[-2:]) for each in rest)
        assert sorted(int(each[-2:]) for each in (first, second, third, fourth)) == numbers[:RATE]

    play(
        [
            acknowledging("t", "s"),
            subscribe("t", "plain"),
            policies(fair_by="key", max_rate=RATE),
            advance(T0),
            append(*every()),
            *seconds(1, 3),
            have(RATE),
            policies(fair_weights="bob=3, cid=3"),
            *seconds(4, 4),
            check(same_for_both),
            check(lambda world: same(sum(each.startswith("cid") for each in got(world, "s")), wanted=1 + 3)),
            check(no_turns),
            *seconds(5, 5),
            check(in_order_of_time),
        ]
    )


def test_who_is_resumed_gets_what_was_held_in_turn(play: Play) -> None:
    """Also without a rate: a batch has so many, and what comes meanwhile waits behind it."""
    whole = in_turn(99, {})

    def first(count: int) -> Step:
        return check(lambda world: same([set(got(world, name)[:count]) for name in NAMES], [set(whole[:count])] * 2))

    play(
        [
            acknowledging("t", "s"),
            subscribe("t", "plain"),
            policies(fair_by="property:tenant", paused=True),
            advance(T0),
            append(*every()),
            *seconds(1, 2),
            holds(len(whole)),
            policies(paused=False),
            *seconds(3, 3),
            holds(0),
            *(first(count) for count in (3, 6, 9)),
        ],
        # Each of the two gets half of a quarter of this in a batch.
        Settings(rows_per_task=24),
    )
