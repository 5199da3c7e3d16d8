"""What is guarded is let go when its guard holds at its time, or never, once, whatever dies or fails."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.client.insight.pending import pending
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.policysetting import set_policy, unset_policy
from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH
from pipeline.doctor.examine import examine
from schemas import REJECTED_DISPATCH
from tests.support.consuming import acknowledging, held_back, payloads_open, received, says
from tests.support.pages import span_of
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
UNPAID = "NOT EXISTS (SELECT 1 FROM paid p WHERE p.order_id = message_key)"
DEATHS = ("dispatch.counted", "dispatch.written", "dispatch.rejected_dispatch", "dispatch.shelved", "dispatch.held")
NAMES = ("s", "plain")
"""Both are guarded; the first one acknowledges."""


def pay(*orders: str) -> Step:
    """These are paid."""

    def step(world: World) -> None:
        write_deltalake(paid(world), pa.table({"order_id": pa.array(orders, pa.string())}), mode="append")

    return step


def unpay(order: str) -> Step:
    """A payment is taken back."""

    def step(world: World) -> None:
        DeltaTable(paid(world)).delete(f"order_id = '{order}'")

    return step


def paid(world: World) -> str:
    """The folder of the table."""
    return f"{world.warehouse.root}/guard_tables/paid"


def moved(*, away: bool) -> Step:
    """The table goes, or comes back."""

    def step(world: World) -> None:
        here, there = paid(world), f"{paid(world)}-away"
        shutil.move(*((here, there) if away else (there, here)))

    return check(step)


def guarded(condition: str = UNPAID) -> Step:
    """Both have a guard."""

    def step(world: World) -> None:
        for name in NAMES:
            values = {"guard": condition, "guard_tables": {"paid": paid(world)}}
            assert set_policy(world.warehouse.root, "t", name, **values)

    return check(step)


def unguarded(world: World) -> None:
    """Take the guards away, as the page of policies says."""
    *_, guard = span_of("policies.md", "delayline policy unset").split()
    for name in NAMES:
        assert unset_policy(world.warehouse.root, "t", guard, subscription=name)


def due(second: int, *keys: str) -> Step:
    """Messages that are due at a second of the test, with these payloads as keys."""
    rows = (message(key, deliver_at=T0 + second * SECOND + place) for place, key in enumerate(keys))
    return append(*({**row, "message_key": key} for row, key in zip(rows, keys, strict=True)))


def at_second(second: int) -> Step:
    """Go to a second of the test."""
    return advance(T0 + second * SECOND)


def got(*keys: str) -> Step:
    """Both were given exactly these so far, in order."""

    def look(world: World) -> None:
        for name in NAMES:
            assert [key for key, count in received(world, name) if not count] == list(keys), name

    return check(look)


def suppressed(**counts: int) -> Step:
    """So often each key was left out for one of the two, with the version of the table that was read."""

    def look(world: World) -> None:
        rows = world.rows(REJECTED_DISPATCH)
        assert {row["reason"] for row in rows} <= {"suppressed"}
        assert Counter(row["message_key"] for row in rows) == counts
        assert len({(row["subscription"], row["message_key"], row["redelivery_count"]) for row in rows}) == len(rows)
        assert all(row["guard_version"] >= 0 and dict(row["table_versions"])["paid"].isdecimal() for row in rows)
        assert all(row["rejected_at"] >= row["due_time"] for row in rows)

    return check(look)


def held(count: int) -> Step:
    """So many positions are held of each of the two."""
    wanted = dict.fromkeys(NAMES, count) if count else {}
    return check(lambda world: same(dict(held_back(world)), wanted))


def beginning() -> list[Step]:
    """One subscription acknowledges, one does not; both have a guard, and a third one has none. Nothing is paid."""
    names = acknowledging("t", "s"), subscribe("t", "plain"), subscribe("t", "other")
    return [each_by_itself(), *names, pay(), guarded()]


def error_is_shown(world: World) -> None:
    """The doctor and the list of subscriptions say why nothing comes."""
    found = [each for each in examine(world.warehouse.root, T0).findings if each.what == "guard_fails"]
    assert [each.subject for each in found] == ["t/plain", "t/s"]
    backlogs = pending(world.warehouse.root).backlogs
    assert [(each.subscription, each.guard_error is not None) for each in backlogs] == [
        ("other", False),
        ("plain", True),
        ("s", True),
    ]


def lost(world: World) -> None:
    """Dispatch loses its checkpoint, too."""
    world.rebuild(DISPATCH)


def dying(number: int, death: str, *then: Step) -> list[Step]:
    """Dispatch dies while it holds or lets go; what it had said by then stays, whatever the table says afterwards."""
    first = 100 * number
    return [
        due(first, f"{number}-paid", f"{number}-open", f"{number}-late"),
        pay(f"{number}-paid"),
        at_second(first - 1),
        kill_after(death),
        at_second(first + 5),
        *([unpay(f"{number}-paid"), pay(f"{number}-late")] if death == "dispatch.rejected_dispatch" else []),
        *then,
        revive(driver_rows=0 if number % 2 == 0 else 200_000),
        at_second(first + 20),
        held(0),
    ]


@pytest.mark.parametrize(
    ("play", "deaths", "then"),
    [
        pytest.param(play_here, ("dispatch.written", "dispatch.rejected_dispatch"), [], id="few"),
        pytest.param(on_spark, DEATHS, [], id="all", marks=pytest.mark.soak),
        pytest.param(on_spark, ("dispatch.rejected_dispatch",), [check(lost)], id="lost", marks=pytest.mark.soak),
    ],
)
def test_what_is_paid_by_its_time_is_not_delivered_whatever_dies(
    play: Play, deaths: tuple[str, ...], then: list[Step]
) -> None:
    """With and without acknowledgement; another subscription of the topic gets everything.

    What was said of a message stays so when its batch is repeated, though the table says otherwise by then.
    """
    steps: list[Step] = [
        *beginning(),
        advance(T0),
    ]
    for number, death in enumerate(deaths, 1):
        steps += dying(number, death, *then)
    numbers = range(1, len(deaths) + 1)
    every = [f"{number}-{what}" for number in numbers for what in ("paid", "open", "late")]
    wanted = [each for each in every if not each.endswith("paid")]
    steps += [
        got(*wanted),
        suppressed(**{f"{number}-paid": 2 for number in numbers}),
        check(lambda world: same(payloads_open(world), set(wanted))),
        check(lambda world: same([each.count for each in pending(world.warehouse.root).backlogs], [0, 0, 0])),
        check(lambda world: world.sound()),
    ]
    world = play(steps, Settings(rows_per_task=24))
    assert [key for key, _ in received(world, "other")] == every
    states = [each.state for each in trace(world.warehouse.root, "t", key="1-paid")[0].states]
    assert states == ["published", "suppressed", "settled"]


def test_a_guard_that_fails_holds_what_it_guards_until_it_does_not(play: Play) -> None:
    """Its table is gone; then it is back, and what is paid meanwhile is not delivered. Other guards take over at once.

    A redelivery is guarded like the first delivery.
    """
    steps: list[Step] = [
        *beginning(),
        due(1, "a"),
        advance(T0),
        at_second(1),
        got("a"),
        moved(away=True),
        due(10, "b", "c"),
        at_second(11),
        got("a"),
        held(2),
        suppressed(),
        check(error_is_shown),
        at_second(20),
        kill_after("dispatch.counted"),
        moved(away=False),
        pay("b"),
        at_second(30),
        revive(),
        got("a", "c"),
        suppressed(b=2),
        check(lambda world: world.sound()),
        check(lambda world: same({each.guard_error for each in pending(world.warehouse.root).backlogs}, {None})),
        # Another guard is tried at once, though the one before it rests.
        moved(away=True),
        due(40, "d"),
        at_second(41),
        held(1),
        moved(away=False),
        guarded("message_key <> 'e'"),
        at_second(42),
        got("a", "c", "d"),
        guarded(UNPAID + " AND message_key <> 'e'"),
        says("nack", "c", "d", after_ms=10 * SECOND),
        pay("c"),
        at_second(43),
        at_second(70),
        check(lambda world: same(received(world)[-1], ("d", 1))),
        suppressed(b=2, c=1),
        check(lambda world: same(payloads_open(world), {"a", "d"})),
        # Nobody guards any more what waits.
        moved(away=True),
        due(80, "f"),
        at_second(81),
        held(1),
        check(unguarded),
        at_second(82),
        held(0),
        check(lambda world: same(received(world)[-1], ("f", 0))),
    ]
    world = play(steps)
    assert [key for key, _ in received(world, "other")] == ["a", "b", "c", "d", "f"]
    world.sound()


POISON = ("dispatch.written", "dispatch.rejected_dispatch", "dispatch.shelved", "dispatch.held")


def test_a_message_on_which_a_guard_fails_waits_alone_whatever_dies(play: Play) -> None:
    """The others come at their time, and it comes when the guard can be evaluated on it."""
    steps: list[Step] = [*beginning(), guarded("CAST(message_key AS BIGINT) < 100"), advance(T0)]
    wanted = list[str]()
    for number, death in enumerate(POISON, 1):
        first, keys = 200 * number, [f"{number}", f"x{number}", f"{100 + number}", f"{number + 10}"]
        wanted += [keys[0], keys[3]]
        steps += [
            due(first, *keys),
            at_second(first - 1),
            kill_after(death),
            at_second(first + 1),
            revive(),
            got(*wanted),
            held(number),
            # Each is tried again, as the others of these are, and waits on.
            at_second(first + 100),
            got(*wanted),
            held(number),
            check(partial(fails_on, number)),
        ]
    steps += [
        suppressed(**{f"{100 + number}": 2 for number in range(1, len(POISON) + 1)}),
        guarded("message_key <> 'x2'"),
        at_second(2_000),
        got(*wanted, "x1", "x3", "x4"),
        held(0),
        check(lambda world: world.sound()),
        check(lambda world: same({each.guard_error for each in pending(world.warehouse.root).backlogs}, {None})),
    ]
    world = play(steps)
    assert len(received(world, "other")) == 4 * len(POISON)
    world.sound()


def fails_on(number: int, world: World) -> None:
    """People are told on how many messages the guards fail."""
    errors = {each.subscription: each.guard_error or "" for each in pending(world.warehouse.root).backlogs}
    assert errors.pop("other") == ""
    assert [each.startswith(f"on {number} messages:") for each in errors.values()] == [True, True]
