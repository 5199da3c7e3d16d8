"""Messages come while the window of their topic is open, by the clock of their recipient, whatever dies and is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipeline.client.commanding.commands import cancel, release_now, reschedule, shift, undo
from pipeline.client.insight.trace import trace
from pipeline.client.subscribing.deadletters import put_back
from pipeline.client.subscribing.policysetting import set_policy
from pipeline.config.routes import NotInDriver
from pipeline.config.settings import Settings
from pipeline.settle import retrytimes
from pipeline.storage.arrays import IntArray
from pipeline.storage.parquet import RowGroup
from pipeline.subscriptions.windows import TopicWindow
from schemas import DELIVERIES, MESSAGES, REJECTED_DISPATCH
from tests.support.consuming import acknowledging, says
from tests.support.examined import wrong
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    kill_after,
    message,
    restart,
    same,
    subscribe,
)
from tests.support.worlds import Play, commits, play_here

# A Wednesday, 05:33:20 in Rome, 12:33:20 in Tokyo and 23:33:20 of Tuesday in New York; behind any wall clock.
T0 = 2_000_000_000_000
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
ROME, NEW_YORK, TOKYO = T0 + 8_800 * SECOND, T0 + 30_400 * SECOND, T0
"""When 08:00 is next, or the present in Tokyo, where it is open."""
OF_INGEST = ("ingest.messages", "ingest.redelivery", "ingest.segments")
"""Steps behind the commit that decides."""


def window(topic: str = "t", **stated: str | int) -> Step:
    """The topic has a window by day, where a recipient is."""
    values: dict[str, Any] = {"window": "08:00-20:00", "window_zone": "property:zone, Europe/Rome", **stated}
    return check(lambda world: same(set_policy(world.warehouse.root, topic, **values), wanted=True))


def closed(topic: str = "t") -> Step:
    """The topic has another window."""
    return check(lambda world: same(set_policy(world.warehouse.root, topic, window="Su 01:00-02:00"), wanted=True))


def to(zone: str | None, topic: str = "t", **when: int) -> dict[str, Any]:
    """A message for somebody in a zone, whose payload is that."""
    properties = [] if zone is None else [("zone", zone), ("other", "x")]
    return {**message(str(zone), topic, **when), "message_key": str(zone), "properties": properties}


def came(world: World, topic: str = "t") -> dict[str, list[int]]:
    """When messages came, by payload, ms UTC."""
    found: dict[str, list[int]] = {}
    for row in world.rows(DELIVERIES):
        if row["topic"] == topic:
            when = round(row["due_time"].timestamp() * 1_000)
            found.setdefault(bytes(row["payload"]).decode(), []).append(when)
            assert when <= round(row["released_at"].timestamp() * 1_000)
    return {name: sorted(times) for name, times in found.items()}


@pytest.mark.parametrize("death", [None, *OF_INGEST])
def test_a_message_comes_by_day_where_its_recipient_is(play: Play, death: str | None) -> None:
    """Ingest dies anywhere, and other policies are set before it repeats the batch. What is due at once waits, too."""
    zones = ("Europe/Rome", "America/New_York", "Asia/Tokyo", "Mars/Olympus", None)
    world = play(
        [
            subscribe("t", "s"),
            window(),
            advance(T0 - SECOND),
            append(*(to(each) for each in zones), to("Asia/Tokyo", after=HOUR)),
            *([] if death is None else [kill_after(death)]),
            advance(T0),
            *([] if death is None else [closed(), restart()]),
            advance(T0 + 1),
            advance(T0 + HOUR),
            check(lambda world: same(came(world), {"Asia/Tokyo": [T0, T0 + HOUR]})),
            advance(ROME - 1),
            check(lambda world: same(came(world), {"Asia/Tokyo": [T0, T0 + HOUR]})),
            advance(ROME),
            advance(NEW_YORK - 1),
            restart(),
            advance(NEW_YORK),
        ],
        Settings(express_ms=4 * SECOND),
    )
    expected = {"Europe/Rome": [ROME], "America/New_York": [NEW_YORK], "Asia/Tokyo": [T0, T0 + HOUR]}
    assert came(world) == expected | {"Mars/Olympus": [ROME], "None": [ROME]}
    put_off = {row["message_key"]: row["put_off_from"] for row in world.rows(MESSAGES) if row["put_off_from"]}
    assert put_off.keys() == {"Europe/Rome", "America/New_York", "Mars/Olympus", "None"}
    assert {each.timestamp() * 1_000 for each in put_off.values()} == {T0}
    world.sound()


@pytest.mark.parametrize("death", [None, "ingest.messages", "ingest.segments"])
def test_the_ticks_count_by_which_messages_are_released(play: Play, death: str | None) -> None:
    """A life keeps its tick, whatever another writer makes of its line; whoever joins has that of the registry.

    A tick of ten minutes has buckets of 524 s, of which one ends 235 s before the window closes.
    """
    end, minutes = ROME + 12 * HOUR, 60 * SECOND
    world = play(
        [
            subscribe("old", "s", tick_ms=10 * minutes),
            window("old", window_zone="Europe/Rome"),
            window("new", window_zone="Europe/Rome"),
            append(message("a", "old", deliver_at=end - 4 * minutes)),
            advance(T0),
            subscribe("old", "s", tick_ms=1),
            subscribe("new", "s", tick_ms=1),
            subscribe("new", "coarse", tick_ms=10 * minutes),
            append(*(message("b", topic, deliver_at=end - minutes) for topic in ("old", "new"))),
            *([] if death is None else [kill_after(death)]),
            advance(T0 + SECOND),
            *([] if death is None else [restart()]),
            *(advance(each) for each in (end, end + DAY)),
        ]
    )
    due = {(row["topic"], row["payload"].decode()): row["due_time"].timestamp() * 1_000 for row in world.rows(MESSAGES)}
    late = ROME + DAY
    assert due == {("old", "a"): end - 4 * minutes, ("old", "b"): late, ("new", "b"): late}
    assert wrong(world.warehouse.root) == {("two_lines", "old/s")}


def test_what_comes_in_at_night_is_spread_over_the_opening(play: Play) -> None:
    """A batch of many, and batches of one; each ten seconds get their share, and nobody comes twice."""
    rows = [message(str(number), "t") for number in range(60)]
    world = play(
        [
            subscribe("t", "s"),
            window(window_zone="Europe/Rome", window_spread_ms=60 * SECOND),
            append(*rows[:48]),
            advance(T0),
            *(step for n, row in enumerate(rows[48:], 1) for step in (append(row), advance(T0 + n * SECOND))),
            *(advance(ROME + n * SECOND) for n in (-1, 0, 30, 60)),
        ]
    )
    times = [each for found in came(world).values() for each in found]
    assert len(times) == len(rows)
    tens = [sum(ROME + n * SECOND <= each < ROME + (n + 10) * SECOND for each in times) for n in range(0, 60, 10)]
    assert min(tens) >= 8
    assert max(tens) <= 12


@pytest.mark.parametrize("cause", [None, "ack_timeout", "owner_lost"])
def test_what_fails_in_the_evening_comes_again_in_the_morning(play: Play, cause: str | None) -> None:
    """A nack, a timeout and a lost consumer, by the zone of the recipient, which is in the message; whatever dies."""
    late = ROME + 12 * HOUR - SECOND
    world = play(
        [
            acknowledging("t", "s"),
            window(),
            append(to("Europe/Rome", deliver_at=late), to("America/New_York", deliver_at=late)),
            advance(T0),
            advance(late),
            says("nack", "Europe/Rome", "America/New_York", after_ms=60 * SECOND, cause=cause),
            kill_after("settle.segments"),
            advance(late + SECOND),
            closed(),
            restart(),
            advance(late + 2 * SECOND),
            advance(late + 70 * SECOND),
            advance(ROME + DAY - 1),
            check(lambda world: same(len(came(world)["Europe/Rome"]), 1)),
            advance(ROME + DAY),
        ]
    )
    again = late + SECOND + 60 * SECOND
    assert came(world) == {"Europe/Rome": [late, ROME + DAY], "America/New_York": [late, again]}
    world.sound()


def test_a_dead_letter_that_is_put_back_at_night_comes_in_the_morning(play: Play) -> None:
    """It is sent anew, with the zone of its recipient."""
    late = ROME + 12 * HOUR - SECOND
    world = play(
        [
            acknowledging("t", "s", max_redeliveries=0),
            window(window_zone="property:zone"),
            append(to("Europe/Rome", deliver_at=late)),
            advance(T0),
            advance(late),
            says("nack", "Europe/Rome"),
            advance(late + SECOND),
            advance(late + 2 * SECOND),
            check(lambda world: same(sum(put_back(world.warehouse.root, "t-s-DLQ", ("t", "s"))), 1)),
            advance(late + HOUR),
            advance(ROME + DAY - 1),
            check(lambda world: same(came(world), {"Europe/Rome": [late]})),
            advance(ROME + DAY),
        ]
    )
    assert came(world) == {"Europe/Rome": [late, ROME + DAY]}
    world.sound()


def test_zones_of_what_failed_are_looked_up_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no payloads for them, however nacks and acknowledgements take turns."""
    read, take, late = list[tuple[str, ...]](), RowGroup.take, ROME + 12 * HOUR - SECOND

    def taken(self: RowGroup, columns: Sequence[str], rows: IntArray) -> Iterator[pa.Table]:
        read.append(tuple(columns))
        return take(self, columns, rows)

    names = [f"{number}" for number in range(12)]
    world = play_here(
        [
            acknowledging("t", "s"),
            window(),
            append(*({**to("Europe/Rome", deliver_at=late), "payload": name.encode()} for name in names)),
            advance(T0),
            advance(late),
            *(says(("nack", "ack")[n % 2], name) for n, name in enumerate(names)),
            check(lambda _: monkeypatch.setattr(RowGroup, "take", taken)),
            advance(late + SECOND),
            check(lambda _: monkeypatch.undo()),
            check(lambda _: same(read, [("properties",)])),
            advance(ROME + DAY),
        ]
    )
    again = {name: [late, ROME + DAY] if n % 2 == 0 else [late] for n, name in enumerate(names)}
    assert came(world) == again


def test_spark_looks_up_the_zones_of_what_failed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only Spark reads messages; what does not fail lies between."""
    late, names = ROME + 12 * HOUR - SECOND, ("Europe/Rome", "America/New_York", "Mars/Olympus")
    steps: list[Step] = [
        acknowledging("t", "s"),
        window(),
        append(*(to(name, deliver_at=late) for name in names), message("ok", deliver_at=late)),
        advance(T0),
        advance(late),
        says("nack", *names, after_ms=60 * SECOND),
        says("ack", "ok"),
        advance(late + SECOND),
        advance(late + 70 * SECOND),
        advance(ROME + DAY),
    ]

    def only_spark(*_asked: object) -> Iterator[object]:
        raise NotInDriver

    monkeypatch.setattr(retrytimes, "message_groups", only_spark)
    again = {"America/New_York": [late, late + SECOND + 60 * SECOND], "ok": [late]}
    expected = again | {name: [late, ROME + DAY] for name in ("Europe/Rome", "Mars/Olympus")}
    # What fails is looked up by Spark alone; ingest and dispatch have small batches.
    assert came(play(steps, Settings(driver_rows=200_000))) == expected


def test_what_waits_for_an_opening_does_not_expire(play: Play) -> None:
    """A time to live counts from the time at which it comes, also of what failed; then it does count."""
    late = ROME + 12 * HOUR - SECOND
    paused = check(lambda world: same(set_policy(world.warehouse.root, "t", "s", paused=True), wanted=True))
    world = play(
        [
            acknowledging("t", "s", ttl_ms=HOUR),
            window(window_zone="Europe/Rome"),
            append(*(message(each, deliver_at=late) for each in ("a", "b"))),
            advance(T0),
            advance(late),
            says("nack", "a", "b", after_ms=60 * SECOND),
            advance(late + SECOND),
            append(message("at night")),
            advance(late + HOUR),
            advance(ROME + DAY),
            says("nack", "a", after_ms=60 * SECOND),
            advance(ROME + DAY + SECOND),
            paused,
            advance(ROME + DAY + 2 * HOUR),
        ]
    )
    assert came(world) == {"a": [late, ROME + DAY], "b": [late, ROME + DAY], "at night": [ROME + DAY]}
    (gone,) = world.rows(REJECTED_DISPATCH)
    assert (gone["reason"], gone["redelivery_count"]) == ("expired", 2)
    world.sound()


def test_commands_obey_the_window(play: Play) -> None:
    """A time at night moves to the morning; what is released at night comes no later than it would have."""

    def commanded(world: World) -> None:
        root, night = world.warehouse.root, datetime.fromtimestamp((T0 + DAY) / 1_000, UTC)
        moved = reschedule(root, "t", to=night, key="rescheduled", dry_run=True)
        assert (moved.first_then, moved.last_then) == (ROME + DAY, ROME + DAY)
        reschedule(root, "t", to=night, key="rescheduled")
        shift(root, "t", span=timedelta(hours=12), key="shifted")
        gone = cancel(root, "t", key="cancelled")
        undo(root, gone.command_id or "")
        back = shift(root, "t", span=timedelta(hours=20), key="moved back")
        undo(root, back.command_id or "")

    keys = ("rescheduled", "shifted", "cancelled", "moved back", "released")
    due = ROME + HOUR
    world = play(
        [
            subscribe("t", "s"),
            window(window_zone="Europe/Rome"),
            append(*({**message(key, deliver_at=due), "message_key": key} for key in keys)),
            advance(T0),
            check(commanded),
            *(advance(each) for each in (T0 + SECOND, ROME, due, ROME + 13 * HOUR, ROME + DAY)),
        ]
    )
    assert came(world) == {
        "rescheduled": [ROME + DAY],
        "shifted": [ROME + DAY],
        "cancelled": [due],
        "moved back": [due],
        "released": [due],
    }
    assert release_now(world.warehouse.root, "t", key="released").command_id is None
    (traced,) = trace(world.warehouse.root, "t", key="rescheduled")
    assert traced.sent.put_off_from is None


def test_spark_lets_the_same_messages_come_at_the_same_times(play: Play) -> None:
    """Rows lie in files of several commits; each keeps its place in the spread, whoever works on the batch."""
    zones = ("Europe/Rome", "America/New_York", "Mars/Olympus", None)
    steps: list[Step] = [
        subscribe("t", "s"),
        window(window_spread_ms=600 * SECOND),
        advance(T0 - SECOND),
        commits(*([to(zones[n % 4]) | {"message_key": f"{part} {n}"} for n in range(9)] for part in range(3))),
        restart(),
        advance(T0),
    ]

    def due(world: World) -> dict[str, tuple[float, bool]]:
        rows = world.rows(MESSAGES)
        return {row["message_key"]: (row["due_time"].timestamp(), row["put_off_from"] is None) for row in rows}

    by_spark, here = due(play(steps, Settings(driver_rows=0))), due(play_here(steps))
    assert len(by_spark) == 27
    assert len(set(by_spark.values())) == 27
    assert by_spark == here


def test_a_repetition_with_other_rules_of_zones_loses_nothing(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package with the rules is another one after the restart: what was written before counts."""

    def forgotten(_world: World) -> None:
        monkeypatch.setattr(TopicWindow, "put_off", lambda _, times, *_more, **_named: times)

    def restored(_world: World) -> None:
        monkeypatch.undo()

    def played(*steps: Step) -> dict[str, list[int]]:
        begin = [subscribe("t", "s"), window(window_zone="Europe/Rome"), advance(T0 - SECOND)]
        found = play([*begin, *steps, advance(T0 + SECOND), advance(ROME)], Settings(express_ms=4 * SECOND))
        return came(found)

    killed = (append(message("a")), kill_after("ingest.messages"), advance(T0))
    assert played(*killed, check(forgotten), restart()) == {"a": [ROME]}
    assert played(check(forgotten), *killed, check(restored), restart()) == {"a": [T0]}
