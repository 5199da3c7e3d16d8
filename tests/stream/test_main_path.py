"""From the inbox to deliveries, under the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from pipeline.config.stages import STAGES
from pipeline.config.watching import Watch
from schemas import PUBLICATIONS, REDELIVERY, REJECTED_INGEST
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    at,
    check,
    delivered,
    message,
    play,
    restart,
    stop,
    subscribe,
)

T0 = 1_700_000_000_000
DAY = 86_400_000


def nothing_dropped(world: World) -> None:
    """Spark dropped no row as late."""
    dropped = [op.numRowsDroppedByWatermark for each in world.progress for op in each.stateOperators]
    assert dropped
    assert set(dropped) == {0}


def test_a_message_arrives_when_it_is_due_and_not_a_millisecond_before(spark: SparkSession, folder: str) -> None:
    """Immediate, delayed by time and delayed by duration: each comes out once, at its instant, across a restart."""
    world = play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("late", deliver_at=T0 + 5_000), message("soon", after=3_000), message("now")),
            advance(T0),
            delivered("now"),
            advance(T0 + 2_999),
            delivered("now"),
            stop(),
            restart(),
            advance(T0 + 3_000),
            delivered("now", "soon"),
            advance(T0 + 60_000),
            delivered("now", "soon", "late"),
        ],
    )
    nothing_dropped(world)
    released = {row["due_time"]: row["released_at"] for row in world.rows(REDELIVERY)}
    assert {due.timestamp() for due in released} == {T0 / 1e3, (T0 + 3_000) / 1e3, (T0 + 5_000) / 1e3}
    assert sum(row["count"] for row in world.rows(PUBLICATIONS)) == 3


def test_a_bucket_is_due_when_the_clock_reaches_its_rounded_time(spark: SparkSession, folder: str) -> None:
    """With a tick of 1000 ms the bucket width is 512 ms: what is due at 60400 is released at 60416, never before."""
    play(
        spark,
        folder,
        [
            subscribe("t", "s", tick_ms=1000),
            append(message("a", deliver_at=60_400), message("b", deliver_at=61_000)),
            advance(50_000),
            advance(60_415),
            delivered(),
            advance(60_416),
            delivered("a"),
            advance(61_439),
            delivered("a"),
            advance(61_440),
            delivered("a", "b"),
        ],
    )


def test_parked_messages_arrive_though_producers_went_quiet(spark: SparkSession, folder: str) -> None:
    """Beyond the horizon messages wait in the log; ticks alone load and release them, in order of due time."""

    def no_state(world: World) -> None:
        progress = world.running[1].query.lastProgress
        assert progress is not None
        assert progress.stateOperators[0].numRowsTotal == 0

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            append(message("c", deliver_at=T0 + 30 * DAY), message("b", deliver_at=T0 + 10 * DAY), message("a")),
            advance(T0),
            delivered("a"),
            check(no_state),
            advance(T0 + 9 * DAY),
            delivered("a"),
            restart(horizon_ms=0),
            advance(T0 + 11 * DAY),
            delivered("a", "b"),
            advance(T0 + 40 * DAY),
            delivered("a", "b", "c"),
        ],
    )


def test_refused_rows_are_kept_with_the_reason_and_nothing_stops(spark: SparkSession, folder: str) -> None:
    """Each rule of acceptance has its row; accepted and rejected add up to what was sent."""
    both = message("both", deliver_at=T0 + 1, after=1)
    far = message("far", deliver_at=T0 + 4_000 * DAY, published=T0)
    world = play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            subscribe("日本", "s"),
            append(
                both,
                far,
                message("blank", topic=" "),
                message("none", topic=None),
                message("negative", after=-1),
                message("x" * (6 * 1024 * 1024)),
                message("old", deliver_at=-2_208_988_800_000),
                message("ünï", topic="日本"),
                {"topic": "t"},
            ),
            advance(T0),
        ],
    )
    reasons = sorted(row["reason"] for row in world.rows(REJECTED_INGEST))
    expected = ["deliver_at_and_deliver_after", "max_delay_exceeded", "missing_topic", "missing_topic"]
    assert reasons == [*expected, "negative_delay", "payload_too_large"]
    assert sum(row["count"] for row in world.rows(PUBLICATIONS)) == 3
    assert at(T0) == max(row["rejected_at"].astimezone(at(0).tzinfo) for row in world.rows(REJECTED_INGEST))


@dataclass(frozen=True)
class Ways(Watch):
    """Who worked on batches, and why."""

    seen: list[tuple[str, str]] = field(default_factory=list)

    def routed(self, stage: str, way: str) -> None:
        """Remember it."""
        self.seen.append((stage, way))


def test_batches_with_rows_say_who_worked_on_them_and_why(spark: SparkSession, folder: str) -> None:
    """The choice is by size and settings; whoever watches sees when Spark has to do it, and what to change."""
    ways = Ways()

    def watch(world: World) -> None:
        world.options = replace(world.options, watch=ways)

    def only(way: str) -> Step:
        def step(_: World) -> None:
            assert set(ways.seen) == {(stage, way) for stage in STAGES}
            ways.seen.clear()

        return check(step)

    script = [subscribe("t", "s"), check(watch), restart(), append(message("a")), advance(T0), only("driver")]
    script += [restart(driver_rows=0), append(message("b")), advance(T0 + 1_000), only("setting")]
    script += [restart(driver_rows=1), append(message("c"), message("d")), advance(T0 + 2_000)]
    play(spark, folder, [*script, delivered("a", "b", "c", "d")])
    assert ("ingest", "size") in ways.seen
    assert ("dispatch", "size") in ways.seen
