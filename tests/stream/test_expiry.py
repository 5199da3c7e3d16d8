"""What could not be handed over in time is not delivered any more, is counted, and stays so whatever dies."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from pipeline.client.insight.pending import pending
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.config.stages import DISPATCH
from schemas import REJECTED_DISPATCH
from tests.support.consuming import acknowledging, held_back, payloads_open, received, says
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    each_by_itself,
    kill_after,
    message,
    restart,
    revive,
    same,
    subscribe,
)
from tests.support.worlds import Play, on_spark, play_here

T0 = 1_700_000_000_000
SECOND = 1_000
TTL = 60 * SECOND
NAMES = ("s", "plain")
"""The first one acknowledges and has a policy of its own, the second one has that of the topic."""
LETS_GO = "dispatch.rejected_dispatch"
"""Dispatch has said what has expired."""
DEATHS = ("dispatch.counted", LETS_GO, "dispatch.held")


def policies(name: str | None = None, **values: object) -> Step:
    """Policies of the topic or of a subscription are set."""
    return check(lambda world: same(set_policy(world.warehouse.root, "t", name, **values), wanted=True))


def paused(*, so: bool) -> list[Step]:
    """Both are paused, or are not any more."""
    return [policies(name, paused=so) for name in NAMES]


def at_second(second: int) -> Step:
    """Go to a second of the test."""
    return advance(T0 + second * SECOND)


def due(payload: str, second: int) -> Step:
    """A message that is due at a second of the test, and is its own key."""
    return append({**message(payload, deliver_at=T0 + second * SECOND), "message_key": payload})


def expired(**counts: int) -> Step:
    """So often a position of each subscription has expired, and none was refused otherwise."""

    def look(world: World) -> None:
        rows = world.rows(REJECTED_DISPATCH)
        assert Counter(row["subscription"] for row in rows) == counts
        assert {row["reason"] for row in rows} <= {"expired"}
        assert all(
            row["rejected_at"] - row["due_time"] > timedelta(milliseconds=TTL)
            for row in rows
            if not row["redelivery_count"]
        )
        places = {(row["subscription"], row["ledger_id"], row["entry_id"], row["redelivery_count"]) for row in rows}
        assert len(places) == len(rows)

    return check(look)


def held(count: int) -> Step:
    """So many positions are held of each of the two."""
    wanted = dict.fromkeys(NAMES, count) if count else {}
    return check(lambda world: same(dict(held_back(world)), wanted))


def got(*payloads: str) -> Step:
    """Both were given exactly these so far, in order; the third one, for which nothing expires, got all."""
    return check(lambda world: same([texts(world, name) for name in NAMES], [list(payloads)] * 2))


def texts(world: World, name: str) -> list[str]:
    """The payloads of first deliveries."""
    return [payload for payload, count in received(world, name) if not count]


def waits(count: int) -> Step:
    """So many messages are pending for each of the two."""

    def look(world: World) -> None:
        found = {each.subscription: each.count for each in pending(world.warehouse.root).backlogs}
        assert [found[name] for name in NAMES] == [count] * 2
        assert found["other"] == 0

    return check(look)


def stands(world: World, key: str) -> list[str]:
    """How a message stands with the subscriptions, by name."""
    return [each.state for each in trace(world.warehouse.root, "t", key=key)[0].states]


def lost(world: World) -> None:
    """Dispatch loses its checkpoint, too."""
    world.rebuild(DISPATCH)


def later() -> list[Step]:
    """It expires while nobody is paused."""
    return [
        # What has expired by the time of a resume goes with it.
        *paused(so=True),
        due("unlucky", 201),
        at_second(200),
        at_second(255),
        held(1),
        *paused(so=False),
        at_second(266),
        expired(s=2, plain=2),
        held(0),
        # Nothing ran while it was due.
        due("down", 300),
        at_second(290),
        restart(driver_rows=200_000),
        at_second(400),
        got("kept"),
        expired(s=3, plain=3),
        waits(0),
        # It comes again as long as it is not too old.
        due("failing", 500),
        at_second(500),
        says("nack", "failing", after_ms=30 * SECOND),
        at_second(501),
        at_second(540),
        check(lambda world: same(received(world)[-2:], [("failing", 0), ("failing", 1)])),
        says("nack", "failing", after_ms=30 * SECOND),
        at_second(541),
        at_second(600),
        expired(s=4, plain=3),
        check(lambda world: same(payloads_open(world), {"kept"})),
    ]


@pytest.mark.parametrize(
    ("play", "death", "then"),
    [
        pytest.param(play_here, LETS_GO, [check(lost)], id="lost"),
        pytest.param(on_spark, LETS_GO, [check(lost)], id="lost on Spark", marks=pytest.mark.soak),
        *(pytest.param(on_spark, death, [], id=death, marks=pytest.mark.soak) for death in DEATHS),
    ],
)
def test_what_is_late_by_more_than_its_time_to_live_comes_to_nobody(play: Play, death: str, then: list[Step]) -> None:
    """Held while it was paused, released late after an outage, or come again after it failed.

    It is refused once, is neither pending nor outstanding, and another subscription gets it. Dispatch dies while it
    lets something go that has expired; then Spark goes on.
    """
    steps: list[Step] = [
        each_by_itself(),
        acknowledging("t", "s", ttl_ms=TTL),
        subscribe("t", "plain"),
        subscribe("t", "other"),
        at_second(-1),
        policies(ttl_ms=TTL),
        policies("other", ttl_ms=3_600 * SECOND),
        *paused(so=True),
        due("gone", 1),
        due("kept", 50),
        at_second(0),
        at_second(51),
        held(2),
        at_second(65),
        expired(),
        kill_after(death),
        at_second(72),
        *then,
        revive(driver_rows=0),
        held(1),
        expired(s=1, plain=1),
        waits(1),
        check(lambda world: same(stands(world, "gone"), ["published", "expired", "settled"])),
        check(lambda world: world.sound()),
        *paused(so=False),
        at_second(80),
        got("kept"),
        *later(),
    ]
    world = play(steps)
    # Batches of a checkpoint that was rebuilt have numbers of their own.
    assert Counter(texts(world, "other")) == Counter(["gone", "kept", "unlucky", "down", "failing"])
    assert received(world)[-1] == ("failing", 1)
    world.sound()
