"""Messages that wait get another due time, earlier or later, and some of that is taken back, whatever dies."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.client.commanding.commands import cancel, reschedule, shift, undo
from pipeline.client.commanding.outcomes import Outcome, outcomes
from pipeline.client.insight.pending import pending
from pipeline.config.stages import DISPATCH, SCHEDULE
from schemas import CURSORS, REJECTED_DISPATCH
from state.cursor_bytes import read_block
from tests.support.consuming import acknowledging, deliveries, received, says, standing
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    each_by_itself,
    kill_after,
    message,
    play,
    restart,
    revive,
    same,
    subscribe,
)
from tests.support.worlds import Play

T0 = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
OF_SETTLE = ("settle.planned", "settle.noted", "settle.segments", "settle.cursors")
OF_DISPATCH = (
    "dispatch.counted",
    "dispatch.written",
    "dispatch.rejected_dispatch",
    "dispatch.noted",
    "dispatch.deliveries",
)
DECIDED = 2
"""From this death on a batch of dispatch had said what it leaves out."""
OF_SCHEDULE = ("schedule.counted", "schedule.redelivery")
OF_INGEST = ("ingest.messages", "ingest.segments")


def keyed(key: str, after: int) -> dict[str, Any]:
    """A message whose payload is its key."""
    return {**message(key, after=after), "message_key": key}


def shifted(span: int, *keys: str, name: str | None = None) -> Step:
    """Shift messages by a span in ms, for one subscription or for all."""

    def step(world: World) -> None:
        for key in keys:
            found = shift(world.warehouse.root, "t", name, span=timedelta(milliseconds=span), key=key)
            assert found.command_id is not None, key

    return step


def rescheduled(to: int, *keys: str, name: str | None = None) -> Step:
    """Messages are due at an instant."""

    def step(world: World) -> None:
        for key in keys:
            at = datetime.fromtimestamp(to / 1_000, UTC)
            assert reschedule(world.warehouse.root, "t", name, to=at, key=key).command_id is not None, key

    return step


def cancelled(*keys: str) -> Step:
    """Cancel messages for all."""

    def step(world: World) -> None:
        for key in keys:
            assert cancel(world.warehouse.root, "t", key=key).command_id is not None, key

    return step


def taken_back(key: str) -> Step:
    """Undo the last command over a key."""

    def step(world: World) -> None:
        assert undo(world.warehouse.root, outcome_of(world, key).command_id).command_id is not None, key

    return step


def outcome_of(world: World, key: str, place: int = 0) -> Outcome:
    """What became of a command over a key; the last one is the first."""
    return [each for each in outcomes(world.warehouse.root, 99) if each.asked == f"message_key = '{key}'"][place]


def became(key: str, *counts: int, place: int = 0) -> Step:
    """A command was applied, too late, undone, and is being decided for so many."""

    def look(world: World) -> None:
        found = outcome_of(world, key, place)
        assert (found.applied, found.too_late, found.undone, found.deciding) == counts, key

    return check(look)


def got(*keys: str, name: str = "s") -> Step:
    """A subscription was given exactly these messages so far, each once."""
    return check(lambda world: same(Counter(received(world, name)), Counter((key, 0) for key in keys)))


def waiting(count: int, due: int, name: str = "s") -> Step:
    """So many messages are pending for a subscription, the first of them at an instant."""

    def look(world: World) -> None:
        (found,) = pending(world.warehouse.root, "t", name).backlogs
        assert (found.count, found.next_due) == (count, due)

    return check(look)


def commanded() -> list[Step]:
    """Messages that are due after a minute, but for one, and commands over them."""
    return [
        each_by_itself(),
        acknowledging("t", "s"),
        subscribe("t", "plain"),
        advance(T0 - SECOND),
        append(*(keyed(key, MINUTE) for key in ("stay", "later", "sooner", "twice", "back", "off"))),
        append(keyed("parked", 9 * HOUR), keyed("one", MINUTE)),
        advance(T0),
        waiting(8, T0 + MINUTE),
        shifted(2 * MINUTE, "later"),
        shifted(-50 * SECOND, "sooner"),
        shifted(MINUTE, "twice"),
        rescheduled(T0 + 90 * SECOND, "twice"),
        shifted(HOUR, "back"),
        taken_back("back"),
        shifted(30 * SECOND, "off"),
        cancelled("off"),
        shifted(HOUR, "one", name="plain"),
        rescheduled(T0 + 20 * SECOND, "parked"),
        waiting(7, T0 + 10 * SECOND),
        became("sooner", 2, 0, 0, 0),
        became("back", 0, 0, 2, 0),
    ]


def comes() -> list[Step]:
    """What comes of it, after a settle that died when it had put them into the index."""
    return [
        kill_after("settle.segments"),
        advance(T0 + SECOND),
        revive(),
        advance(T0 + 11 * SECOND),
        got("sooner"),
        got("sooner", name="plain"),
        says("nack", "sooner", after_ms=100 * SECOND),
        advance(T0 + 21 * SECOND),
        got("sooner", "parked", name="plain"),
        waiting(5, T0 + MINUTE, name="plain"),
        shifted(-60 * SECOND, "sooner", name="s"),
        says("ack", "parked"),
        advance(T0 + 61 * SECOND),
        got("sooner", "parked", "stay", "back", "one"),
        got("sooner", "parked", "stay", "back", name="plain"),
        check(lambda world: same(shift_of(world, "stay"), 0)),
        became("sooner", 1, 0, 0, 0),
        advance(T0 + 62 * SECOND),
        check(lambda world: same(again(world), [("sooner", 1, T0 + 61 * SECOND)])),
        advance(T0 + 91 * SECOND),
        got("sooner", "parked", "stay", "back", "twice", name="plain"),
        advance(T0 + 3 * MINUTE),
        advance(T0 + 4 * MINUTE),
        got("sooner", "parked", "stay", "back", "twice", "later", name="plain"),
        advance(T0 + 10 * HOUR),
        advance(T0 + 11 * HOUR),
        got("sooner", "parked", "stay", "back", "twice", "later", "one", name="plain"),
        waiting_none("plain"),
        waiting_none("s"),
        became("later", 2, 0, 0, 0),
        became("off", 2, 0, 0, 0),
    ]


def test_what_gets_another_due_time_comes_then_and_once(play: Play) -> None:
    """Earlier, later, twice, and back again; near, parked, or failed; with and without acknowledgement."""
    world = play([*commanded(), *comes()])
    reasons = Counter((row["subscription"], row["reason"]) for row in world.rows(REJECTED_DISPATCH))
    assert reasons == {
        ("s", "rescheduled"): 9,
        ("plain", "rescheduled"): 9,
        ("s", "cancelled"): 1,
        ("plain", "cancelled"): 1,
    }
    assert sorted(standing(world).open().values()) == [0, 0, 0, 0, 0, 1]
    assert cursor_blocks(world, "plain") == {}
    world.sound()


def cursor_blocks(world: World, name: str) -> dict[int, object]:
    """What `cursors` holds of a subscription by now, by block."""
    newest: dict[int, tuple[int, bytes | None]] = {}
    for row in world.rows(CURSORS):
        if row["subscription"] == name:
            known = newest.get(row["block"], (-1, None))
            newest[row["block"]] = max(known, (row["batch_id"], row["bytes"]), key=lambda each: each[0])
    assert newest
    held = {block: bytes(data) for block, (_, data) in newest.items() if data is not None}
    return {block: read_block(data) if block >= 0 else data for block, data in held.items()}


@pytest.mark.soak
@pytest.mark.parametrize("stage", ["dispatch", "settle", "schedule", "ingest"])
def test_other_due_times_count_or_come_too_late_whatever_dies(spark: SparkSession, folder: str, stage: str) -> None:
    """Each stage dies after each of its commits, with commands in flight.

    Of what dispatch had in its hands when the command came, it decides once: it comes then, or at its other time.
    """
    deaths = {"dispatch": OF_DISPATCH, "settle": OF_SETTLE, "schedule": OF_SCHEDULE, "ingest": OF_INGEST}[stage]
    steps: list[Step] = [each_by_itself(), acknowledging("t", "s"), subscribe("t", "plain"), advance(T0 - SECOND)]
    given: list[str] = []
    for number, death in enumerate(deaths):
        instant = T0 + number * MINUTE
        later, sooner, caught, new = (f"{kind}{number}" for kind in ("later", "sooner", "caught", "new"))
        given += [later, sooner, caught, new]
        undecided, seen = death in OF_DISPATCH[:DECIDED], stage == "dispatch"
        dies = {each: [kill_after(death)] if each == stage else [] for each in ("dispatch", "settle", "schedule")}
        lives = {each: [revive()] if each == stage else [] for each in ("settle", "schedule", "ingest")}
        lives["dispatch"] = [revive(driver_rows=0 if number % 2 else 200_000)] if seen else []
        steps += [
            append(*(keyed(key, 20 * SECOND) for key in (later, sooner, caught))),
            advance(instant),
            shifted(20 * SECOND, later),
            shifted(-15 * SECOND, sooner),
            *dies["settle"],
            *([kill_after(death), append(keyed(new, 19 * SECOND))] if stage == "ingest" else []),
            advance(instant + SECOND),
            *lives["settle"],
            *lives["ingest"],
            *([] if stage == "ingest" else [append(keyed(new, 18 * SECOND))]),
            advance(instant + 2 * SECOND),
            *dies["dispatch"],
            *dies["schedule"],
            advance(instant + 21 * SECOND),
            *([shifted(10 * SECOND, caught)] if _caught(stage, death) else []),
            *lives["dispatch"],
            *lives["schedule"],
            advance(instant + 22 * SECOND),
            *([became(caught, *((2, 0, 0, 0) if undecided else (0, 2, 0, 0)))] if _caught(stage, death) else []),
            advance(instant + 41 * SECOND),
            got(*given),
            got(*given, name="plain"),
        ]
    world = play(spark, folder, steps)
    world.sound()


def _caught(stage: str, death: str) -> bool:
    """Whether something was commanded that dispatch had in its hands; what is delivered is named by no command."""
    return stage == "dispatch" and death != "dispatch.deliveries"


@pytest.mark.soak
def test_schedule_and_dispatch_that_lost_their_checkpoints_know_what_has_another_due_time(
    spark: SparkSession, folder: str
) -> None:
    """What waits in its later round comes from the tables, and what was left out does not come."""
    world = play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            subscribe("t", "plain"),
            advance(T0 - SECOND),
            append(keyed("last", 20 * SECOND), keyed("first", 30 * SECOND)),
            advance(T0),
            shifted(20 * SECOND, "last"),
            shifted(-28 * SECOND, "first"),
            advance(T0 + SECOND),
            check(rebuilt),
            restart(),
            advance(T0 + 3 * SECOND),
            got("first"),
            advance(T0 + 31 * SECOND),
            check(rebuilt),
            restart(),
            advance(T0 + 50 * SECOND),
            advance(T0 + 51 * SECOND),
            got("first", "last"),
            got("first", "last", name="plain"),
        ],
    )
    world.sound()


def rebuilt(world: World) -> None:
    """Schedule and dispatch lose their checkpoints."""
    world.end()
    world.rebuild(SCHEDULE, DISPATCH)


def again(world: World) -> list[tuple[str, int, int]]:
    """What came again: payload, redelivery count, due time."""
    rows = [row for row in deliveries(world) if row["redelivery_count"]]
    return [(bytes(row["payload"]).decode(), row["redelivery_count"], _ms(row["due_time"])) for row in rows]


def _ms(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp() * 1_000) if time.tzinfo is None else int(time.timestamp() * 1_000)


def shift_of(world: World, key: str) -> int:
    """How many messages a shift of a key would name."""
    return shift(world.warehouse.root, "t", span=timedelta(hours=1), key=key, dry_run=True).selection.count


def waiting_none(name: str) -> Step:
    """Nothing is pending."""
    return check(lambda world: same(pending(world.warehouse.root, "t", name).backlogs[0].count, 0))
