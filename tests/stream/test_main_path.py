"""From the inbox to deliveries, under the virtual clock.

One run has a topic for each test, so that the stages start and stop for all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial

from pipeline.config.options import StageListener
from pipeline.config.stages import STAGES
from schemas import DELIVERIES, PUBLICATIONS, REDELIVERY, REJECTED_INGEST
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    at,
    check,
    delivered,
    message,
    restart,
    stop,
    subscribe,
)
from tests.support.together import Played, play_together
from tests.support.worlds import on_spark

T0 = 1_700_000_000_000 // 512 * 512
DAY = 86_400_000
BEFORE, SOON, LATE = T0 + 3_071, T0 + 3_072, T0 + 5_120
"""Multiples of 512 ms, and a millisecond before the first of them."""


def at_its_instant(topic: str) -> list[Step]:
    """Immediate, delayed by time and delayed by duration, across a restart."""
    return [
        subscribe(topic, "s"),
        append(message("late", topic, deliver_at=LATE), message("soon", topic, after=SOON - T0), message("now", topic)),
        advance(T0),
        delivered("now", topic=topic),
        advance(BEFORE),
        delivered("now", topic=topic),
        stop(),
        restart(),
        advance(SOON),
        delivered("now", "soon", topic=topic),
        advance(LATE),
        delivered("now", "soon", "late", topic=topic),
    ]


def by_bucket(topic: str) -> list[Step]:
    """A tick of 1000 ms: the bucket width is 512 ms."""
    return [
        subscribe(topic, "s", tick_ms=1000),
        append(message("a", topic, deliver_at=SOON - 16), message("b", topic, deliver_at=LATE - 120)),
        advance(T0),
        advance(BEFORE),
        delivered(topic=topic),
        advance(SOON),
        delivered("a", topic=topic),
        advance(LATE - 1),
        delivered("a", topic=topic),
        advance(LATE),
        delivered("a", "b", topic=topic),
    ]


def parked(topic: str) -> list[Step]:
    """Nothing is sent for weeks, and nothing else waits."""

    def no_state(world: World) -> None:
        progress = world.running[1].query.lastProgress
        assert progress is not None
        assert progress.stateOperators[0].numRowsTotal == 0

    return [
        subscribe(topic, "s"),
        append(
            message("c", topic, deliver_at=T0 + 30 * DAY),
            message("b", topic, deliver_at=T0 + 10 * DAY),
            message("a", topic),
        ),
        advance(T0),
        delivered("a", topic=topic),
        advance(T0 + 9 * DAY),
        delivered("a", topic=topic),
        check(no_state),
        restart(driver_rows=0, horizon_ms=0),
        advance(T0 + 11 * DAY),
        delivered("a", "b", topic=topic),
        advance(T0 + 40 * DAY),
        delivered("a", "b", "c", topic=topic),
    ]


def refused(topic: str) -> list[Step]:
    """A row for each rule of acceptance, between good ones."""
    return [
        subscribe(topic, "s"),
        subscribe("日本", "s"),
        append(
            message("both", topic, deliver_at=T0 + 1, after=1),
            message("far", topic, deliver_at=T0 + 4_000 * DAY, published=T0),
            message("blank", topic=" "),
            message("none", topic=None),
            message("negative", topic, after=-1),
            message("x" * (6 * 1024 * 1024), topic),
            message("old", topic, deliver_at=-2_208_988_800_000),
            message("ünï", topic="日本"),
            {"topic": topic},
        ),
        advance(T0),
    ]


@dataclass(frozen=True)
class Ways(StageListener):
    """Who worked on batches, and why."""

    seen: list[tuple[str, str]] = field(default_factory=list)

    def routed(self, stage: str, way: str) -> None:
        """Remember it."""
        self.seen.append((stage, way))


def watched(topic: str) -> list[Step]:
    """Messages under one setting after the other, while somebody watches."""
    ways = Ways()

    def watch(world: World) -> None:
        world.options = replace(world.options, watch=ways)

    def only(way: str) -> Step:
        return check(lambda _: assert_same(set(ways.seen), {(stage, way) for stage in STAGES}))

    def by_size(_: World) -> None:
        assert {("ingest", "size"), ("dispatch", "size")} <= set(ways.seen)

    forget = check(lambda _: ways.seen.clear())
    return [
        subscribe(topic, "s"),
        advance(BEFORE),
        check(watch),
        restart(),
        append(message("a", topic)),
        advance(SOON),
        only("driver"),
        advance(T0 + 9 * DAY),
        restart(driver_rows=0, horizon_ms=0),
        forget,
        append(message("b", topic)),
        advance(T0 + 11 * DAY),
        only("setting"),
        restart(driver_rows=1),
        append(message("c", topic), message("d", topic)),
        advance(T0 + 40 * DAY),
        delivered("a", "b", "c", "d", topic=topic),
        check(by_size),
    ]


def assert_same(found: object, expected: object) -> None:
    """They are equal."""
    assert found == expected


@cache
def weeks() -> Played:
    """The run."""
    return play_together(
        {
            "at its instant": at_its_instant("at its instant"),
            "by bucket": by_bucket("by bucket"),
            "parked": parked("parked"),
            "refused": refused("refused"),
            "watched": watched("watched"),
        },
        play=partial(on_spark, stores=2),
    )


def test_a_message_arrives_when_it_is_due_and_not_a_millisecond_before() -> None:
    """Immediate, delayed by time and delayed by duration: each comes out once, at its instant, across a restart."""
    world = weeks().shows("at its instant")
    released = {row["due_time"] for row in world.rows(REDELIVERY) if row["topic"] == "at its instant"}
    assert {due.timestamp() for due in released} == {T0 / 1e3, SOON / 1e3, LATE / 1e3}


def test_a_bucket_is_due_when_the_clock_reaches_its_rounded_time() -> None:
    """What is due 16 ms before the end of its bucket is released at that end, never before."""
    weeks().shows("by bucket")


def test_parked_messages_arrive_though_producers_went_quiet() -> None:
    """Beyond the horizon messages wait in the log; ticks alone load and release them, in order of due time."""
    weeks().shows("parked")


def test_refused_rows_are_kept_with_the_reason_and_nothing_stops() -> None:
    """Each rule of acceptance has its row; accepted and rejected add up to what was sent."""
    world = weeks().shows("refused")
    reasons = sorted(row["reason"] for row in world.rows(REJECTED_INGEST))
    expected = ["deliver_at_and_deliver_after", "max_delay_exceeded", "missing_topic", "missing_topic"]
    assert reasons == [*expected, "negative_delay", "payload_too_large"]
    assert sum(row["topic"] in ("refused", "日本") for row in world.rows(DELIVERIES)) == 3
    assert at(T0) == max(row["rejected_at"].astimezone(at(0).tzinfo) for row in world.rows(REJECTED_INGEST))


def test_each_batch_of_deliveries_has_a_row_with_its_count() -> None:
    """Those of the whole run add up; Spark dropped no row as late meanwhile."""
    world = weeks().shows("watched")
    assert sum(row["count"] for row in world.rows(PUBLICATIONS)) == len(world.rows(DELIVERIES)) == 15
    dropped = [operator.numRowsDroppedByWatermark for each in world.progress for operator in each.stateOperators]
    assert set(dropped) == {0}


def test_batches_with_rows_say_who_worked_on_them_and_why() -> None:
    """The choice is by size and settings; whoever watches sees when Spark has to do it, and what to change."""
    weeks().shows("watched")
