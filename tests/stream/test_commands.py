"""Messages are cancelled, and some of that is taken back, while the stages run and whatever dies."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.client import spark as for_spark
from pipeline.client.commanding.commands import cancel, undo
from pipeline.client.commanding.outcomes import Outcome, outcomes
from pipeline.client.insight.pending import pending
from pipeline.client.message import MessageId
from pipeline.client.subscribing.seeking import begin_anew
from pipeline.config.stages import DISPATCH, SCHEDULE
from schemas import CLOSED, CURSORS, MESSAGES, REJECTED_DISPATCH
from tests.support.consuming import acknowledging, received, says, standing
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    at,
    check,
    each_by_itself,
    kill_after,
    message,
    play,
    restart,
    revive,
    same,
    subscribe,
    void,
)
from tests.support.worlds import Play, on_spark, play_here

T0 = 1_700_000_000_000
SECOND = 1_000
HOUR = 3_600_000
DEATHS = ("dispatch.counted", "dispatch.written", "dispatch.rejected_dispatch", "dispatch.noted", "dispatch.deliveries")
REBUILT = (*DEATHS, "dispatch.rejected_dispatch")
"""After the last one dispatch loses its checkpoint, too."""
DECIDED = 2
"""From this death on the batch had said what it leaves out."""


def keyed(key: str, after: int) -> dict[str, Any]:
    """A message whose payload is its key."""
    return {**message(key, after=after), "message_key": key}


def cancelled(*keys: str, name: str | None = None) -> Step:
    """Cancel messages by their keys, for one subscription or for all."""

    def step(world: World) -> None:
        for key in keys:
            assert cancel(world.warehouse.root, "t", name, key=key).command_id is not None, key

    return step


def taken_back(key: str) -> Step:
    """Undo the cancel of a key."""

    def step(world: World) -> None:
        assert undo(world.warehouse.root, outcome_of(world, key).command_id).command_id is not None, key

    return step


def outcome_of(world: World, key: str) -> Outcome:
    """What became of the cancel of a key."""
    return next(each for each in outcomes(world.warehouse.root, 99) if each.asked == f"message_key = '{key}'")


def became(key: str, *counts: int) -> Step:
    """A cancel was applied, too late, undone, and is being decided for so many."""

    def look(world: World) -> None:
        found = outcome_of(world, key)
        assert (found.applied, found.too_late, found.undone, found.deciding) == counts, key

    return check(look)


def got(*keys: str, name: str = "s") -> Step:
    """A subscription was given exactly these messages so far, each once."""
    return check(lambda world: same(Counter(received(world, name)), Counter((key, 0) for key in keys)))


def waiting(count: int, name: str = "s") -> Step:
    """So many messages are pending for a subscription."""
    return check(lambda world: same(pending(world.warehouse.root, "t", name).backlogs[0].count, count))


def sought(world: World) -> None:
    """A subscription begins anew, with all that the log holds."""
    begin_anew(world.warehouse.root, "t", "plain", MessageId.earliest)


def lost(world: World) -> None:
    """Dispatch loses its checkpoint in the middle of a batch."""
    world.rebuild(DISPATCH)


def rebuilt(world: World) -> None:
    """Schedule and dispatch lose their checkpoints."""
    world.end()
    world.rebuild(SCHEDULE, DISPATCH)


def test_what_spark_chose_is_commanded(spark: SparkSession, play: Play) -> None:
    """A join with another table, or the payload, names messages that no condition of the client could."""

    def chosen(world: World) -> None:
        root = world.warehouse.root
        messages = spark.read.format("delta").load(world.warehouse.path(MESSAGES))
        paid = spark.createDataFrame([("b",), ("x",)], "message_key string")
        assert for_spark.cancel(messages.join(paid, "message_key"), root, "t", reason="paid").selection.count == 1
        late, now = (messages.where(f"payload = CAST('{each}' AS BINARY)") for each in "cd")
        assert for_spark.shift(late, root, "t", "s", span=timedelta(hours=1), dry_run=True).command_id is None
        for_spark.shift(late, root, "t", "s", span=timedelta(hours=1), by="me")
        for_spark.reschedule(now, root, "t", to=at(T0 + HOUR // 2))
        # That is not now by the clock of the test, but by that of the program.
        assert for_spark.release_now(messages.where("message_key = 'e'"), root, "t").selection.count == 1

    play(
        [
            subscribe("t", "s"),
            advance(T0),
            append(*(keyed(key, HOUR) for key in "abcd")),
            append(keyed("e", 3_000 * 24 * HOUR)),
            advance(T0 + SECOND),
            check(chosen),
            advance(T0 + 2 * SECOND),
            advance(T0 + HOUR // 2),
            got("d"),
            advance(T0 + HOUR + SECOND),
            got("d", "a"),
            advance(T0 + 2 * HOUR + SECOND),
            got("d", "a", "c"),
        ],
    )


@pytest.mark.parametrize(
    ("play", "rebuilds"),
    [pytest.param(play_here, False, id="kept"), pytest.param(on_spark, True, id="rebuilt", marks=pytest.mark.soak)],
)
def test_what_is_cancelled_comes_to_nobody_and_what_is_taken_back_comes_once(play: Play, *, rebuilds: bool) -> None:
    """Near, parked, or failed; for one subscription or for all, with and without acknowledgement; the tables tell all.

    Dispatch dies when it has said what it leaves out: a cancel that is given then comes too late. A rebuild of schedule
    and dispatch knows what was left out. A life that a seek begins gets what commands named for the one before.
    """
    anew = [check(rebuilt), restart(), check(sought)]
    rest = ("all", "one", "back", "kept", "now", "parked", "again") if rebuilds else ("again",)
    world = play(
        [
            each_by_itself(),
            acknowledging("t", "s"),
            subscribe("t", "plain"),
            advance(T0 - SECOND),
            append(*(keyed(key, 60 * SECOND) for key in ("all", "one", "back", "kept"))),
            append(keyed("now", 0), keyed("parked", 9 * HOUR), keyed("again", 9 * HOUR)),
            advance(T0),
            cancelled("all", "back", "parked", "again"),
            cancelled("one", name="plain"),
            became("all", 2, 0, 0, 0),
            waiting(1, name="plain"),
            taken_back("back"),
            became("back", 0, 0, 2, 0),
            waiting(3),
            check(lambda world: same(cancel(world.warehouse.root, "t", key="now").selection.count, 0)),
            says("nack", "now", after_ms=50 * SECOND),
            advance(T0 + SECOND),
            cancelled("now"),
            kill_after("dispatch.rejected_dispatch"),
            advance(T0 + 61 * SECOND),
            cancelled("kept", name="s"),
            revive(),
            became("kept", 0, 1, 0, 0),
            got("now", "one", "back", "kept"),
            got("now", "back", "kept", name="plain"),
            became("one", 1, 0, 0, 0),
            became("now", 1, 0, 0, 0),
            check(lambda world: same(len(standing(world).open()), 3)),
            taken_back("again"),
            *(anew if rebuilds else []),
            advance(T0 + 10 * HOUR),
            got("now", "one", "back", "kept", "again"),
            got("now", "back", "kept", *rest, name="plain"),
            waiting(0),
        ],
    )
    left_out = Counter((row["subscription"], row["life"]) for row in world.rows(REJECTED_DISPATCH))
    assert left_out == {("s", 1): 3, ("plain", 1): 2 if rebuilds else 3}
    assert world.rows(CLOSED) == []
    world.sound()


@pytest.mark.soak
def test_commands_in_flight_count_or_come_too_late_whatever_dies(spark: SparkSession, folder: str) -> None:
    """Dispatch dies in each of its steps. Meanwhile one cancel is taken back and another one is given.

    The batch is repeated by Spark, where arrays made it. Until it said what it leaves out, both commands count; from
    then on neither does. A message is delivered or left out, never both and never neither.
    """
    steps: list[Step] = [subscribe("t", "s"), subscribe("t", "plain"), advance(T0 - SECOND)]
    given: list[str] = []
    for number, death in enumerate(REBUILT):
        instant, old, late, other = T0 + number * 10 * SECOND, f"old{number}", f"late{number}", f"other{number}"
        decided = death in DEATHS[DECIDED:]
        given += [other, late if decided else old]
        steps += [
            append(*(keyed(key, 5 * SECOND) for key in (old, late, other))),
            advance(instant),
            cancelled(old, name="s"),
            kill_after(death),
            advance(instant + 6 * SECOND),
            cancelled(late, name="s") if death != "dispatch.deliveries" else check(void),
            taken_back(old) if not decided else check(void),
            check(lost) if number == len(DEATHS) else check(void),
            restart(driver_rows=0 if number % 2 == 0 else 200_000),
            advance(instant + 7 * SECOND),
            got(*given),
            became(old, *((1, 0, 0, 0) if decided else (0, 0, 1, 0))),
        ]
        if death != "dispatch.deliveries":
            steps.append(became(late, *((0, 1, 0, 0) if decided else (1, 0, 0, 0))))
    world = play(spark, folder, steps)
    assert world.rows(CURSORS) == []
    every = [f"{kind}{number}" for number in range(len(REBUILT)) for kind in ("old", "late", "other")]
    assert Counter(received(world, "plain")) == Counter((key, 0) for key in every)
    left_out = Counter((row["reason"], row["subscription"]) for row in world.rows(REJECTED_DISPATCH))
    assert left_out == {("cancelled", "s"): len(every) - len(given)}
    world.sound()
