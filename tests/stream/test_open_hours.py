"""A subscription takes messages at its hours: what is due at another time is held until then, whatever dies."""

from __future__ import annotations

import pytest

from pipeline.client.insight.pending import pending
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.policysetting import set_policy, unset_policy
from pipeline.client.tables.deliveries import Deliveries
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from schemas import DELIVERIES
from tests.support.consuming import acknowledging, held_back, says
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

# A Wednesday, 05:33:20 in Rome; behind any wall clock.
T0 = 2_000_000_000_000
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
OPENS = T0 + 8_800 * SECOND
"""08:00 in Rome."""
CLOSES = OPENS + 12 * HOUR
DEATHS = ("dispatch.counted", "dispatch.written", "dispatch.shelved", "dispatch.held", "dispatch.noted")
NAMES = ("s", "plain")
"""The first one acknowledges. A third one is always open."""


def hours(**policies: object) -> Step:
    """Two of the three take messages by day."""

    def step(world: World) -> None:
        for name in NAMES:
            set_policy(world.warehouse.root, "t", name, open="08:00-20:00", open_zone="Europe/Rome", **policies)

    return check(step)


def got(world: World, name: str) -> list[str]:
    """What a subscription got, in the order in which it became visible."""
    return [each.payload.decode() for each in Deliveries(world.warehouse.root).take(None, name)]


def have(by_day: str, always: str) -> Step:
    """These have come to those with hours, and to the other one; a letter each."""
    return check(lambda world: same([*(got(world, name) for name in NAMES), got(world, "other")], [
        list(by_day), list(by_day), list(always)
    ]))  # fmt: skip


def holds(count: int) -> Step:
    """So many positions are held of each that has hours."""
    return check(lambda world: same(dict(held_back(world)), dict.fromkeys(NAMES, count) if count else {}))


def never_at_night(world: World) -> None:
    """Nothing was released to those with hours while they were closed."""
    for row in world.rows(DELIVERIES):
        if row["subscription"] in NAMES:
            since = (round(row["released_at"].timestamp() * 1_000) - OPENS) % DAY
            assert since < 12 * HOUR, row


def lost(world: World) -> None:
    """Dispatch loses its checkpoint, too."""
    world.rebuild(DISPATCH)


def is_told(world: World) -> None:
    """People see until when it is closed, and why a message waits."""
    found = {each.subscription: each.closed_until for each in pending(world.warehouse.root).backlogs}
    # The wall clock is years before the clock of the stages.
    assert found["other"] is None
    states = {each.subscription: each.state for each in trace(world.warehouse.root, "t", key="a")[0].states}
    assert states == {"s": "held", "plain": "held", "other": "published"}


@pytest.mark.parametrize(
    ("play", "holding", "opening", "then"),
    [
        pytest.param(play_here, "dispatch.held", "dispatch.shelved", [], id="few"),
        *(pytest.param(on_spark, death, death, [check(lost)], id=death, marks=pytest.mark.soak) for death in DEATHS),
    ],
)
def test_what_is_due_at_night_comes_in_the_morning_whatever_dies(
    play: Play, holding: str, opening: str, then: list[Step]
) -> None:
    """Dispatch dies while it holds, and while it lets go. Hours are set while messages wait; a nack obeys, too."""
    first = [{**message(name, after=place * SECOND), "message_key": name} for place, name in enumerate("abc")]
    world = play(
        [
            each_by_itself(),
            acknowledging("t", "s", retry_min_ms=60_000),
            *(subscribe("t", name) for name in ("plain", "other")),
            hours(),
            advance(T0),
            append(*first),
            kill_after(holding),
            advance(T0 + 10 * SECOND),
            revive(),
            advance(T0 + 20 * SECOND),
            holds(3),
            have("", "abc"),
            check(is_told),
            check(lambda world: world.sound()),
            advance(OPENS - 1),
            have("", "abc"),
            kill_after(opening),
            advance(OPENS),
            *then,
            revive(),
            advance(OPENS + 10 * SECOND),
            holds(0),
            have("abc", "abc"),
            append(message("d", deliver_at=CLOSES - 1), message("e", deliver_at=CLOSES)),
            advance(CLOSES - 1),
            have("abcd", "abcd"),
            says("nack", "d"),
            advance(CLOSES),
            advance(CLOSES + 300 * SECOND),
            have("abcd", "abcde"),
            advance(OPENS + DAY),
            check(lambda world: same(got(world, "plain"), list("abcde"))),
            check(lambda world: same(sorted(got(world, "s")), list("abcdde"))),
        ],
        Settings(rows_per_task=12),
    )
    never_at_night(world)
    world.sound()


def on_sundays(world: World) -> None:
    """Both are open on Sundays."""
    for name in NAMES:
        assert set_policy(world.warehouse.root, "t", name, open="Su")


def always(world: World) -> None:
    """Both are open at any time."""
    for name in NAMES:
        assert unset_policy(world.warehouse.root, "t", "open", subscription=name)


def test_hours_that_are_changed_or_taken_away_count_at_once(play: Play) -> None:
    """As a resume does. A rate spreads what was held over the time behind the opening."""
    play(
        [
            acknowledging("t", "s"),
            *(subscribe("t", name) for name in ("plain", "other")),
            hours(max_rate=2),
            advance(T0),
            append(*(message(each) for each in "abcdefgh")),
            advance(T0 + SECOND),
            advance(OPENS),
            holds(8),
            *(advance(OPENS + second * SECOND) for second in (1, 2)),
            have("abcd", "abcdefgh"),
            check(on_sundays),
            advance(OPENS + 60 * SECOND),
            holds(4),
            check(always),
            *(advance(OPENS + (60 + second) * SECOND) for second in (1, 2, 3)),
            have("abcdefgh", "abcdefgh"),
        ]
    )
