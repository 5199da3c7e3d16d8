"""No two messages with one key wait on a topic that says so, whatever dies, is commanded and is set."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from pipeline.client.commanding.commands import cancel, release_now, shift
from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.subscriptions.letters import PUT_BACK
from pipeline.subscriptions.schedules import SCHEDULE
from schemas import DELIVERIES, MESSAGES, REJECTED_DISPATCH, REJECTED_INGEST, REPLACED
from tests.support.consuming import acknowledging, says
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    at,
    check,
    delivered,
    kill_after,
    message,
    restart,
    same,
    subscribe,
)
from tests.support.worlds import Play, commits, play_here

# Behind any wall clock, by which commands count.
T0 = 2_000_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DEATHS = (None, "ingest.messages", "ingest.replaced", "ingest.segments", "dispatch.rejected_dispatch", "dispatch.noted")


def unique(mode: str | None, topic: str = "t", **stated: str | int) -> Step:
    """The topic has the policy, or has it no more."""
    values: dict[str, Any] = {"unique": mode, **stated}
    return check(lambda world: same(set_policy(world.warehouse.root, topic, **values), wanted=True))


def keyed(key: str | None, payload: str, after: int | None = HOUR, topic: str = "t", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - columns
    """A message with a key."""
    return {**message(payload, topic, after=after), "message_key": key, **more}


def left_out(world: World) -> Counter[tuple[str, str]]:
    """Reasons and subscriptions of what dispatch left out."""
    return Counter((row["reason"], row["subscription"]) for row in world.rows(REJECTED_DISPATCH))


def refusals(world: World) -> dict[str, str | None]:
    """The payloads that ingest refused as duplicates, and those of the messages that wait."""
    names = {(row["ledger_id"], row["entry_id"]): row["payload"].decode() for row in world.rows(MESSAGES)}
    rows = world.rows(REJECTED_INGEST)
    assert {row["reason"] for row in rows} <= {"duplicate_pending"}
    older = (names.get((row["older_ledger_id"], row["older_entry_id"])) for row in rows)
    return dict(zip((row["payload"].decode() for row in rows), older, strict=True))


def waits(world: World, name: str = "s") -> int:
    """How many messages are pending for a subscription."""
    return sum(each.count for each in pending(world.warehouse.root).backlogs if each.subscription == name)


@pytest.mark.parametrize("death", DEATHS)
def test_a_newer_message_comes_in_the_place_of_the_older_one(play: Play, death: str | None) -> None:
    """For all subscriptions; also of two that arrive together. What has no key, or another one, stays."""
    ingest = death if death is not None and death.startswith("ingest") else None
    dispatch = death if ingest is None else None
    world = play(
        [
            subscribe("t", "s"),
            acknowledging("t", "acks"),
            unique("replace"),
            append(keyed("a", "a1"), keyed("b", "b1"), keyed(None, "none 1"), keyed("c", "c1"), keyed("c", "c2")),
            advance(T0),
            append(keyed("a", "a2", 2 * HOUR), keyed("c", "c3", None), keyed(None, "none 2")),
            *([] if ingest is None else [kill_after(ingest)]),
            advance(T0 + MINUTE),
            *([] if ingest is None else [unique("drop"), restart(), unique("replace")]),
            advance(T0 + 2 * MINUTE),
            check(lambda world: same((waits(world), waits(world, "acks")), (4, 4))),
            *([] if dispatch is None else [kill_after(dispatch)]),
            advance(T0 + HOUR),
            *([] if dispatch is None else [restart()]),
            advance(T0 + 2 * HOUR),
            advance(T0 + 3 * HOUR),
            delivered("c3", "b1", "none 1", "none 2", "a2"),
            delivered("c3", "b1", "none 1", "none 2", "a2", subscription="acks"),
        ]
    )
    assert left_out(world) == {("replaced", "s"): 3, ("replaced", "acks"): 3}
    assert len(world.rows(REPLACED)) == 3
    world.sound()


@pytest.mark.parametrize("death", [None, "ingest.messages", "ingest.rejected_ingest", "ingest.segments"])
def test_a_newer_message_is_refused_while_the_older_one_waits(play: Play, death: str | None) -> None:
    """And accepted when it is due, or cancelled; whatever is commanded before a batch is repeated."""

    def commanded(world: World) -> None:
        assert cancel(world.warehouse.root, "t", key="a").selection.count == 1

    world = play(
        [
            subscribe("t", "s"),
            unique("drop"),
            append(keyed("a", "a1"), keyed("a", "a2"), keyed(None, "n1"), keyed(None, "n2"), keyed("b", "b1", None)),
            advance(T0),
            append(keyed("a", "a3"), keyed("b", "b2"), keyed("b", "b3", None), keyed("c", "c1")),
            *([] if death is None else [kill_after(death)]),
            advance(T0 + MINUTE),
            check(commanded),
            *([] if death is None else [unique(None), restart(), unique("drop")]),
            advance(T0 + 2 * MINUTE),
            append(keyed("a", "a4")),
            advance(T0 + 3 * MINUTE),
            append(keyed("a", "a5")),
            advance(T0 + 4 * MINUTE),
            append(keyed("a", "a6", None)),
            advance(T0 + 3 * MINUTE + HOUR),
            advance(T0 + 3 * HOUR),
            delivered("b1", "n1", "n2", "b2", "c1", "a4", "a6"),
        ]
    )
    assert refusals(world) == {"a2": "a1", "a3": "a1", "b3": "b2", "a5": "a4"}
    world.sound()


@pytest.mark.parametrize("death", [None, "ingest.messages", "ingest.replaced"])
def test_what_is_put_off_again_and_again_comes_each_five_minutes(play: Play, death: str | None) -> None:
    """One key each minute, to come 90 s later: at the latest five minutes after the first one, on time."""
    steps: list[Step] = []
    for number in range(11):
        is_fatal = death is not None and number in (2, 7)
        steps += [append(keyed("a", str(number), 90 * SECOND))]
        steps += [kill_after(death)] if death is not None and is_fatal else []
        steps += [advance(T0 + number * MINUTE), *([restart()] if is_fatal else [])]
    world = play(
        [
            subscribe("t", "s"),
            unique("extend", unique_max_wait_ms=5 * MINUTE),
            *steps,
            advance(T0 + 12 * MINUTE),
            append(keyed("a", "alone", 10 * MINUTE)),
            advance(T0 + 13 * MINUTE),
            append(keyed("a", "other", 15 * MINUTE)),
            advance(T0 + 14 * MINUTE),
            advance(T0 + HOUR),
        ]
    )
    came = [row["due_time"].timestamp() * 1_000 - T0 for row in world.rows(DELIVERIES)]
    # One that asks for more than the longest wait gets it, and whoever replaces it comes then, too.
    last, alone = 10 * MINUTE + 90 * SECOND, 13 * MINUTE + 10 * MINUTE
    assert sorted(came) == [5 * MINUTE, 10 * MINUTE, last, alone]
    world.sound()


def test_a_key_that_is_sent_each_second_for_an_hour_comes_each_five_minutes(play: Play) -> None:
    """With what was sent last, and on time. A batch has what was sent in 150 seconds, or since something was due."""
    ends = sorted({*range(150, 3_601, 150), *range(301, 3_602, 300)})
    steps: list[Step] = []
    for begin, end in pairwise([0, *ends]):
        seconds = range(begin + 1, min(end, 3_600) + 1)
        sent = (keyed("a", str(each), 200 * SECOND, publish_time=at(T0 + each * SECOND)) for each in seconds)
        steps += [append(*sent), advance(T0 + end * SECOND)]
    hour = [subscribe("t", "s"), unique("extend", unique_max_wait_ms=5 * MINUTE), advance(T0), *steps]
    rows = sorted(play(hour).rows(DELIVERIES), key=lambda row: row["due_time"])
    due = [round(row["due_time"].timestamp() * 1_000 - T0) // SECOND for row in rows]
    assert due == list(range(301, 3_602, 300))
    assert all(row["released_at"] == row["due_time"] for row in rows)
    assert [int(row["payload"]) for row in rows] == [each - 1 for each in due]


def test_keys_count_in_all_partitions_and_by_property(play: Play) -> None:
    """What has not the property is not unique."""

    def of(name: str | None, payload: str, topic: str) -> dict[str, Any]:
        properties = [] if name is None else [("user", name), ("other", "x")]
        return keyed("same", payload, topic=topic, properties=properties)

    first, second = "t-partition-0", "t-partition-1"
    world = play(
        [
            *(subscribe(topic, "s") for topic in (first, second)),
            unique("replace", unique_by="property:user"),
            append(of("u", "u1", first), of(None, "n1", first), of("v", "v1", second)),
            advance(T0),
            append(of("u", "u2", second), of(None, "n2", first), of("v", "v2", second)),
            advance(T0 + MINUTE),
            check(lambda world: same(waits(world), 4)),
            advance(T0 + 2 * HOUR),
        ]
    )
    assert sorted(row["payload"].decode() for row in world.rows(DELIVERIES)) == ["n1", "n2", "u2", "v2"]
    world.sound()


def test_a_policy_holds_for_what_waits_already(play: Play) -> None:
    """All that wait with the key are replaced. While it is off nothing is, and what was replaced stays so."""
    world = play(
        [
            subscribe("t", "s"),
            append(keyed("a", "a1"), keyed("a", "a2")),
            advance(T0),
            unique("replace"),
            append(keyed("a", "a3")),
            advance(T0 + MINUTE),
            unique(None),
            append(keyed("a", "a4")),
            advance(T0 + 2 * MINUTE),
            unique("drop"),
            append(keyed("a", "a5")),
            advance(T0 + 3 * MINUTE),
            restart(),
            unique("replace"),
            append(keyed("b", "b1")),
            advance(T0 + 4 * MINUTE),
            append(keyed("b", "b2"), keyed("a", "a6", 2 * HOUR)),
            advance(T0 + 5 * MINUTE),
            check(lambda world: same(waits(world), 2)),
            advance(T0 + 3 * HOUR),
            delivered("b2", "a6"),
        ]
    )
    assert list(refusals(world)) == ["a5"]


def test_commands_say_what_waits(play: Play) -> None:
    """What is cancelled for one of two subscriptions waits for the other one; what came early does not wait."""

    def commanded(world: World) -> None:
        root = world.warehouse.root
        cancel(root, "t", "s", key="one")
        cancel(root, "t", key="both")
        release_now(root, "t", key="now")
        shift(root, "t", span=timedelta(minutes=10), key="later")

    world = play(
        [
            subscribe("t", "s"),
            subscribe("t", "u"),
            unique("drop"),
            append(*(keyed(key, f"{key} 1") for key in ("one", "both", "now", "later"))),
            advance(T0),
            check(commanded),
            advance(T0 + MINUTE),
            append(*(keyed(key, f"{key} 2") for key in ("one", "both", "now", "later"))),
            advance(T0 + 2 * MINUTE),
            advance(T0 + 3 * HOUR),
            delivered("now 1", "both 2", "now 2", "later 1"),
            delivered("now 1", "one 1", "both 2", "now 2", "later 1", subscription="u"),
        ]
    )
    assert refusals(world) == {"one 2": "one 1", "later 2": "later 1"}


@pytest.mark.parametrize("mode", ["replace", "drop"])
def test_what_failed_does_not_wait_for_its_key(play: Play, mode: str) -> None:
    """It came; the newer one replaces nothing, and both come. So does a dead letter that is put back meanwhile."""
    letter: dict[str, Any] = {"properties": [(PUT_BACK, "t-s-DLQ 0:0")]}
    world = play(
        [
            acknowledging("t", "s"),
            unique(mode),
            advance(T0 - SECOND),
            append(keyed("a", "a1", None)),
            advance(T0),
            says("nack", "a1", after_ms=HOUR),
            advance(T0 + SECOND),
            append(keyed("a", "a2", 2 * HOUR)),
            advance(T0 + MINUTE),
            append(keyed("a", "put back", None, **letter)),
            advance(T0 + 2 * MINUTE),
            advance(T0 + HOUR + MINUTE),
            advance(T0 + 3 * HOUR),
            delivered("a1", "put back", "a1", "a2"),
        ]
    )
    assert not world.rows(REPLACED)
    world.sound()


def test_who_arrives_together_is_put_off_as_one_after_the_other(play: Play) -> None:
    """The latest time of their chain has come, but the window of a recipient has put off what waits."""
    zones = {"1": "UTC", "2": "America/New_York", "3": "UTC", "4": "UTC"}
    how: dict[str, Any] = {"unique_max_wait_ms": MINUTE, "window": "09:00-17:00", "window_zone": "property:zone"}
    ten = T0 - T0 % (24 * HOUR) + 10 * HOUR

    def sent(name: str, after: int, *topics: str) -> Step:
        return append(*(keyed("k", name, after, topic, properties=[("zone", zones[name])]) for topic in topics))

    world = play(
        [
            *(step for topic in ("one", "two") for step in (subscribe(topic, "s"), unique("extend", topic, **how))),
            sent("1", SECOND, "one", "two"),
            advance(T0),
            sent("2", SECOND, "one", "two"),
            advance(T0 + SECOND),
            sent("3", HOUR, "one", "two"),
            sent("4", HOUR, "one"),
            advance(ten),
            sent("4", HOUR, "two"),
            advance(ten),
            advance(ten + HOUR),
            check(lambda world: same(waits(world), 0)),
        ]
    )
    came = {(row["topic"], row["payload"].decode(), row["due_time"].hour) for row in world.rows(DELIVERIES)}
    assert came == {(topic, "4", 11) for topic in ("one", "two")}


def test_spark_decides_the_same(play: Play) -> None:
    """Rows lie in files of several commits; a topic for each policy. Some messages recur, or were put back.

    What waits by then was taken in by the driver, which also takes in what comes next.
    """
    modes: dict[str, dict[str, Any]] = {
        "r": {"mode": "replace"},
        "d": {"mode": "drop"},
        "e": {"mode": "extend", "unique_max_wait_ms": HOUR},
    }
    keyless: dict[int, dict[str, Any]] = {
        8: {"properties": [(SCHEDULE, "hourly")]},
        4: {"properties": [(PUT_BACK, "t-s-DLQ 0:0")]},
    }
    rows = [
        keyed(f"{n % 5}", f"{t} {n}", (n % 7) * 20 * MINUTE, topic=t, **keyless.get(n % 9, {}))
        for n in range(24)
        for t in (*modes, "plain")
    ]

    def script(driver_rows: int) -> list[Step]:
        return [
            *(subscribe(topic, "s") for topic in (*modes, "plain")),
            *(unique(topic=topic, **stated) for topic, stated in modes.items()),
            append(*rows[:16]),
            advance(T0 - MINUTE),
            # One batch takes both.
            commits(rows[16:40], rows[40:]),
            restart(driver_rows=driver_rows),
            advance(T0 + 20 * MINUTE),
            restart(driver_rows=1_000_000),
            append(*rows[:4]),
            advance(T0 + HOUR),
            advance(T0 + 6 * HOUR),
        ]

    def told(world: World) -> tuple[Any, ...]:
        names = {(row["ledger_id"], row["entry_id"]): row["payload"].decode() for row in world.rows(MESSAGES)}
        columns = (("ledger_id", "entry_id"), ("by_ledger_id", "by_entry_id"))
        gone = (tuple(names[row[ledger], row[entry]] for ledger, entry in columns) for row in world.rows(REPLACED))
        came = ((row["payload"].decode(), row["due_time"]) for row in world.rows(DELIVERIES))
        return sorted(names.values()), sorted(gone), sorted(came), refusals(world)

    by_spark = told(play(script(0)))
    assert by_spark == told(play_here(script(1_000_000)))
    assert len(by_spark[1]) > 20
    assert len(by_spark[3]) > 10
