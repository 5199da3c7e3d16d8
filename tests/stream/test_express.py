"""What is due at once goes past the schedule: each position takes one way, whatever is killed and whatever is set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import pytest

from pipeline.client.insight.pending import pending
from pipeline.config.settings import MINUTE_MS, Settings
from pipeline.config.stages import INGEST, SCHEDULE, STAGES
from schemas import DELIVERIES, REDELIVERY, SEGMENTS
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    kill_after,
    message,
    restart,
    subscribe,
)
from tests.support.worlds import Play, on_spark

T0 = 1_700_000_000_000
EXPRESS_MS = 5_000
STEPS = ("ingest.counted", "ingest.messages", "ingest.redelivery", "ingest.segments")
"""Where the process dies while it takes the second batch in."""
LATER = ("dispatch.noted", "dispatch.deliveries")
"""Where it dies while it hands the third one over."""
SENT = {"now": 0, "soon": 4_000, "at the bound": EXPRESS_MS, "later": 30_000, "parked": 7_200_000}


def sent(kind: str) -> Step:
    """A message of each sort."""
    return append(*(message(f"{kind}: {name}", after=after) for name, after in SENT.items()))


def causes(world: World) -> dict[str, str]:
    """Why each payload was delivered to the subscription with the fine tick; each comes once."""
    rows = [row for row in world.rows(DELIVERIES) if row["subscription"] == "s"]
    found = {bytes(row["payload"]).decode(): row["cause"] for row in rows}
    assert len(found) == len(rows)
    return found


def deaths(fatal: Sequence[str], **changed: int) -> list[Step]:
    """A restart after each death, with other settings; all but the last die again."""
    steps = []
    for death, following in zip_longest(fatal, fatal[1:]):
        steps.append(check(lambda world: world.sound()))
        # Before its first commit a batch belongs to nobody: settings may still decide its rows.
        steps.append(restart(following, **({} if death == "ingest.counted" else changed)))
    return steps


def rebuilt(*stages: str) -> Step:
    """Some checkpoints are lost, and all stages start again."""

    def step(world: World) -> None:
        world.lose(*stages)
        world.rebuild(*stages)
        world.begin()

    return check(step)


def course(fatal: Sequence[str] = (), later: Sequence[str] = (), *, lost: bool = False, **changed: int) -> list[Step]:
    """Four batches, and the time until all is due; the process dies in the second and in the third one.

    When asked for, checkpoints are lost between the batches, and in the middle of the last one.
    """

    def losing(*stages: str) -> list[Step]:
        return [rebuilt(*stages)] if lost else []

    return [
        subscribe("t", "s"),
        subscribe("t", "coarse", tick_ms=60_000),
        sent("first"),
        advance(T0),
        *losing(SCHEDULE),
        advance(T0 + 1_000),
        *map(kill_after, fatal[:1]),
        sent("second"),
        advance(T0 + 2_000),
        *deaths(fatal, **changed),
        *losing(*STAGES),
        *map(kill_after, later[:1]),
        sent("third"),
        advance(T0 + 3_000),
        *deaths(later),
        *([kill_after("ingest.redelivery")] if lost else []),
        append(message("last", after=0)),
        advance(T0 + 3 * MINUTE_MS),
        *losing(INGEST),
        advance(T0 + 120 * MINUTE_MS + 3_000),
        advance(T0 + 125 * MINUTE_MS),
        *losing(SCHEDULE),
    ]


def complete(world: World) -> None:
    """All that was sent came to everybody, once; what was due within the bound by the way past the schedule."""
    world.sound()
    found = causes(world)
    assert set(found) == {"last", *(f"{kind}: {name}" for kind in ("first", "second", "third") for name in SENT)}
    assert {name for name, cause in found.items() if name.startswith("second") and cause == "express"} == {
        "second: now",
        "second: soon",
    }
    assert sum(row["subscription"] == "coarse" for row in world.rows(DELIVERIES)) == len(found)
    assert all(row["released_at"] >= row["due_time"] >= row["deliver_at"] for row in world.rows(DELIVERIES))
    assert {backlog.count for backlog in pending(world.warehouse.root).backlogs} == {0}
    positions = [
        (row["subscription"], row["ledger_id"], entry)
        for row in world.rows(REDELIVERY)
        for entry in range(row["first_entry"], row["last_entry"] + 1)
    ]
    assert len(positions) == len(set(positions))


def test_each_message_comes_once_by_one_way_whatever_is_killed_or_lost(play: Play) -> None:
    """A rebuild of any stage knows what went past the schedule, also in the middle of a batch, and with all gone."""
    complete(play(course(STEPS, LATER, lost=True), Settings(express_ms=EXPRESS_MS)))


@pytest.mark.soak
@pytest.mark.parametrize("bound", [0, 60_000])
def test_the_bound_of_a_batch_is_in_its_plan(bound: int) -> None:
    """The one of the settings counts from the next batch on."""
    complete(on_spark(course(STEPS, LATER, express_ms=bound), Settings(express_ms=EXPRESS_MS)))


def test_a_batch_that_is_due_at_once_leaves_the_schedule_alone(play: Play) -> None:
    """Nothing is written for the schedule; a marker says a minute later that the ledgers are addressed."""
    ledgers: list[int] = []

    def note(world: World) -> None:
        ledgers.append(max(row["next_ledger"] or 0 for row in world.rows(SEGMENTS)))

    script = [advance(T0), subscribe("t", "s"), append(message("a")), advance(T0 + 1_000), check(note)]
    script += [append(message("b")), advance(T0 + 2_000), append(message("c")), advance(T0 + 3_000), check(note)]
    script += [advance(T0 + 70_000), check(note)]
    world = play(script, Settings(express_ms=EXPRESS_MS))
    # Whoever has just come is told to dispatch by a marker: the first batch goes through the schedule.
    assert causes(world) == {"a": "due", "b": "express", "c": "express"}
    assert ledgers == [1, 1, 3]
