"""What is put back comes again at its time: through the schedule and dispatch, once, with its count and cause.

A run has a topic for each test, so that the stages start and stop for all of them together. `make soak` has the
scripts that differ by who works, and the other places where the process may die.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline.config.settings import Settings
from pipeline.config.stages import DISPATCH, SCHEDULE
from pipeline.delta import deltars
from pipeline.dispatch.prepared import PreparedStore
from schemas import DELIVERIES, MESSAGES, REDELIVERY, REJECTED_DISPATCH, SEGMENTS
from tests.support.retries import Again, again, came, close, put_back
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    kill_after,
    message,
    play,
    restart,
    stop,
    subscribe,
)
from tests.support.together import Played, play_together
from tests.support.worlds import SHELLS

T0 = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
DUE = T0 + HOUR
"""When most of what is put back comes again."""


def came_again(topic: str, *expected: tuple[str, str, int, str, int]) -> Step:
    """Exactly these were released, and delivered, once more; nothing of the topic was refused."""

    def step(world: World) -> None:
        assert again(world, REDELIVERY, topic) == list(expected)
        assert again(world, DELIVERIES, topic) == list(expected)
        assert refused(world, topic) == []

    return check(step)


def refused(world: World, topic: str) -> list[tuple[str, int, str]]:
    """Reason, count and cause of what dispatch refused of a topic."""
    rows = (row for row in world.rows(REJECTED_DISPATCH) if row["topic"] == topic)
    return [(row["reason"], row["redelivery_count"], row["cause"]) for row in rows]


def when_due(topic: str) -> list[Step]:
    """Two are put back; beside them a message is due for the first time, and another subscription listens."""
    once_more = ("s", "a", 1, "nack", DUE), ("s", "b", 2, "ack_timeout", DUE + 5)
    return [
        subscribe(topic, "s"),
        subscribe(topic, "other"),
        append(message("a", topic), message("b", topic, after=10)),
        advance(T0),
        append(message("new", topic, deliver_at=DUE)),
        advance(T0 + MINUTE),
        put_back(Again("a", DUE, topic=topic), Again("b", DUE + 5, 2, "ack_timeout", topic=topic)),
        advance(DUE - 1),
        delivered("a", "b", topic=topic),
        came_again(topic),
        advance(DUE),
        delivered("a", "b", "a", "new", topic=topic),
        came_again(topic, once_more[0]),
        advance(DUE + MINUTE),
        delivered("a", "b", "a", "new", "b", topic=topic),
        delivered("a", "b", "new", subscription="other", topic=topic),
        came_again(topic, *once_more),
    ]


def rounds(topic: str) -> list[Step]:
    """Three subscriptions, two of which listen alike, put the same messages back at different counts."""
    bucket = -(-DUE // 512) * 512
    return [
        subscribe(topic, "s"),
        subscribe(topic, "z"),
        subscribe(topic, "coarse", tick_ms=1_000),
        append(message("a", topic), message("b", topic)),
        advance(T0),
        put_back(
            Again("a", DUE, topic=topic),
            Again("a", DUE, 3, "owner_lost", subscription="z", topic=topic),
            Again("b", DUE, 3, "owner_lost", subscription="z", topic=topic),
            Again("a", DUE, 1, "nack", subscription="coarse", tick_ms=1_000, topic=topic),
        ),
        advance(T0 + MINUTE),
        restart(),
        advance(DUE),
        came_again(topic, ("s", "a", 1, "nack", DUE), *(("z", name, 3, "owner_lost", DUE) for name in "ab")),
        put_back(Again("a", DUE + 10, 2, "ack_timeout", topic=topic)),
        advance(DUE + 10),
        restart(),
        advance(DUE + MINUTE),
        came_again(
            topic,
            ("s", "a", 1, "nack", DUE),
            *(("z", name, 3, "owner_lost", DUE) for name in "ab"),
            ("s", "a", 2, "ack_timeout", DUE + 10),
            ("coarse", "a", 1, "nack", bucket),
        ),
    ]


def killed(topic: str, fatal: str, due: int) -> list[Step]:
    """The process dies after a step of the batch that brings them."""
    return [
        subscribe(topic, "s"),
        append(message("a", topic), message("b", topic)),
        advance(T0),
        put_back(Again("a", due - 2, topic=topic), Again("b", due, topic=topic)),
        kill_after(fatal),
        advance(due),
        restart(),
        advance(DUE + MINUTE),
        came_again(topic, ("s", "a", 1, "nack", due - 2), ("s", "b", 1, "nack", due)),
    ]


def closed(topic: str) -> list[Step]:
    """Some are closed for their count; of others another count is, or another subscription."""

    def released(world: World) -> None:
        counts = [[each[1:3] for each in again(world, table, topic)] for table in (REDELIVERY, DELIVERIES)]
        assert counts == [[("a", 1), ("b", 1), ("c", 1), ("c", 2)], [("b", 1), ("c", 2)]]
        assert refused(world, topic) == []

    return [
        subscribe(topic, "s"),
        append(message("a", topic), message("b", topic), message("c", topic)),
        advance(T0),
        put_back(*(Again(name, DUE, topic=topic) for name in "abc")),
        close(
            Again("a", DUE, topic=topic),
            Again("b", DUE, count=2, topic=topic),
            Again("b", DUE, subscription="z", topic=topic),
        ),
        close(Again("c", DUE, topic=topic)),
        advance(DUE),
        put_back(Again("c", DUE + MINUTE, count=2, topic=topic)),
        advance(DUE + MINUTE),
        check(released),
    ]


def closed_and_dead(topic: str) -> list[Step]:
    """Dispatch died before they were visible, and their files are gone."""

    def lose_files(world: World) -> None:
        store = PreparedStore(world.warehouse.files, world.warehouse.path(DELIVERIES))
        for file in (file for each in store.all() for part in each.parts for file in part.files):
            Path(world.warehouse.path(DELIVERIES), file.path).unlink()

    return [
        subscribe(topic, "s"),
        append(message("a", topic), message("b", topic)),
        advance(T0),
        put_back(Again("a", DUE, topic=topic), Again("b", DUE, topic=topic)),
        close(Again("a", DUE, topic=topic)),
        kill_after("dispatch.noted"),
        advance(DUE),
        stop(),
        check(lose_files),
        restart(),
        advance(DUE + MINUTE),
        delivered("a", "b", "b", topic=topic),
    ]


def gone(topic: str) -> list[Step]:
    """The message is deleted meanwhile."""

    def lose_messages(world: World) -> None:
        deltars.open_table(world.warehouse.root, MESSAGES).delete(f"topic = '{topic}'")

    return [
        subscribe(topic, "s"),
        append(message("a", topic)),
        advance(T0),
        put_back(Again("a", DUE, count=4, topic=topic)),
        check(lose_messages),
        advance(DUE),
        delivered("a", topic=topic),
        check(lambda world: _same(refused(world, topic), [("message_missing", 4, "nack")])),
    ]


def _same(found: object, expected: object) -> None:
    assert found == expected


def schedule_rebuilt(topic: str) -> list[Step]:
    """The schedule loses its state twice while some wait, beside what came again and what was closed.

    Once the rows are read here, and once by Spark.
    """
    due = DUE + 2 * MINUTE - 1_000

    def lost(world: World, driver_rows: int = 1_000_000) -> None:
        world.lose(SCHEDULE)
        world.rebuild(SCHEDULE, driver_rows=driver_rows)
        rows = [row for row in world.rows(SEGMENTS) if row["kind"] == "rebuild"]
        newest = max(row["batch_id"] for row in rows)
        mine = [row for row in rows if row["batch_id"] == newest and row["topic"] == topic]
        chunks = [(row["redelivery_count"], row["cause"], row["count"]) for row in mine]
        assert sorted(chunks, key=str) == [
            (1, "nack", 1),
            (2, "ack_timeout", 1),
            (3, "nack", 1),
            *[(None, None, 1)] * 2,
        ]

    coarse: dict[str, Any] = {"subscription": "coarse", "tick_ms": 1_000}
    return [
        subscribe(topic, "s"),
        subscribe(topic, "coarse", tick_ms=1_000),
        append(message("a", topic), message("b", topic), message("c", topic)),
        advance(T0),
        put_back(
            Again("a", T0 + MINUTE, topic=topic),
            Again("c", T0 + MINUTE, topic=topic, **coarse),
        ),
        append(message("later", topic, after=HOUR + MINUTE // 2)),
        advance(T0 + MINUTE),
        advance(DUE + 10),
        put_back(
            Again("a", due, count=2, cause="ack_timeout", topic=topic),
            Again("b", due, topic=topic),
            Again("c", due, topic=topic),
            Again("c", due, count=3, topic=topic, **coarse),
            Again("b", due, life=9, topic=topic),
        ),
        close(Again("b", due, topic=topic)),
        check(lost),
        restart(),
        advance(DUE + MINUTE),
        check(partial(lost, driver_rows=0)),
        restart(),
        advance(DUE + 2 * MINUTE),
        check(lambda world: _all_of(world, due, topic)),
    ]


def _all_of(world: World, due: int, topic: str) -> None:
    """What comes in the script above, each once."""
    bucket = -(-due // 512) * 512
    early = -(-(T0 + MINUTE) // 512) * 512
    assert again(world, topic=topic) == [
        ("s", "a", 1, "nack", T0 + MINUTE),
        ("coarse", "c", 1, "nack", early),
        ("s", "c", 1, "nack", due),
        ("s", "a", 2, "ack_timeout", due),
        ("coarse", "c", 3, "nack", bucket),
    ]
    assert len(came(world, topic=topic)) == 5 + 2 * 4
    assert refused(world, topic) == []


def dispatch_rebuilt(topic: str) -> list[Step]:
    """Dispatch loses its checkpoint when one has come again and another waits."""

    def lost(world: World) -> None:
        world.lose(DISPATCH)
        world.rebuild(DISPATCH)

    return [
        subscribe(topic, "s"),
        append(message("a", topic), message("b", topic)),
        advance(T0),
        put_back(Again("a", DUE, topic=topic), Again("b", DUE + MINUTE, topic=topic)),
        advance(DUE + 10),
        check(lost),
        restart(),
        advance(DUE + MINUTE),
        came_again(topic, ("s", "a", 1, "nack", DUE), ("s", "b", 1, "nack", DUE + MINUTE)),
    ]


@pytest.fixture(scope="module", params=SHELLS)
def day(request: pytest.FixtureRequest) -> Played:
    """The run in which the schedule has something to show."""
    scripts: dict[str, Callable[[str], list[Step]]] = {
        "when due": when_due,
        "rounds": rounds,
        "killed": partial(killed, fatal="schedule.redelivery", due=DUE + 5),
        "schedule rebuilt": schedule_rebuilt,
    }
    return play_together({name: script(name) for name, script in scripts.items()}, play=request.param)


@pytest.fixture(scope="module", params=SHELLS)
def night(request: pytest.FixtureRequest) -> Played:
    """The run of the others."""
    scripts: dict[str, Callable[[str], list[Step]]] = {
        "killed": partial(killed, fatal="dispatch.noted", due=DUE + 10),
        "closed": closed,
        "gone": gone,
        "dispatch rebuilt": dispatch_rebuilt,
    }
    return play_together({name: script(name) for name, script in scripts.items()}, play=request.param)


def test_a_message_comes_again_when_it_is_due_and_not_before(day: Played) -> None:
    """Hours after it was due, beside messages that are due for the first time; to whom it was put back for only."""
    day.shows("when due")


def test_each_round_and_each_listener_comes_by_itself(day: Played) -> None:
    """Two who listen alike put the same message back at different counts; each gets its own, by its own tick."""
    day.shows("rounds")


def test_what_comes_again_comes_once_when_the_schedule_is_killed(day: Played) -> None:
    """A repeated batch is the same."""
    day.shows("killed")


def test_what_comes_again_comes_once_when_dispatch_is_killed(night: Played) -> None:
    """A repeated batch is the same."""
    night.shows("killed")


@pytest.mark.soak
@pytest.mark.parametrize("fatal", ["dispatch.counted", "dispatch.deliveries"])
def test_what_comes_again_comes_once_wherever_dispatch_dies(spark: SparkSession, folder: str, fatal: str) -> None:
    """After a step that is near one of the others."""
    play(spark, folder, killed("t", fatal, DUE + 5))


def test_what_is_closed_does_not_come_again(night: Played) -> None:
    """Of this round only: when it was acknowledged late, what waits is left out, and a later round is another one."""
    night.shows("closed")


@pytest.mark.soak
@pytest.mark.parametrize("script", [when_due, closed])
def test_what_comes_again_is_the_same_by_spark(spark: SparkSession, folder: str, script: object) -> None:
    """What arrays in the driver do, Spark does when there is much."""
    assert callable(script)
    play(spark, folder, script("t"), Settings(driver_rows=0), stores=2)


def test_what_is_closed_stays_out_when_deliveries_are_prepared_again(spark: SparkSession, folder: str) -> None:
    """They are made again, by Spark, less what was closed."""
    play(spark, folder, closed_and_dead("t"))


def test_a_message_that_is_gone_is_refused_with_its_count(night: Played) -> None:
    """Nothing vanishes: the row says which round found no message."""
    night.shows("gone")


def test_a_schedule_that_is_rebuilt_knows_what_is_to_come_again(day: Played) -> None:
    """What waits does, beside first deliveries; what came again or was closed does not; and a second time."""
    day.shows("schedule rebuilt")


def test_dispatch_that_is_rebuilt_goes_on_behind_what_came_again(night: Played) -> None:
    """A new checkpoint takes nothing twice, of first deliveries and of later ones."""
    night.shows("dispatch rebuilt")
