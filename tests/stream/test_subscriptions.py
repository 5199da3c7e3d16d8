"""Who gets what: several topics, several subscriptions, early and late ones.

A run has a topic for each of its tests, so that the stages start and stop for all of them together.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.subscriptions import TYPES
from pipeline.config.session import PARTITIONS
from pipeline.config.settings import Settings
from pipeline.delta import deltars
from pipeline.schedule import keys
from schemas import DELIVERIES, REJECTED_INGEST, SEGMENTS, SUBSCRIPTIONS
from tests.support.stream import (
    Step,
    World,
    advance,
    append,
    check,
    delivered,
    message,
    payloads,
    play,
    restart,
    subscribe,
    unsubscribe,
)
from tests.support.together import Played, play_together
from tests.support.worlds import TWO_STORES, commits, on_two_stores

T0 = 1_700_000_000_000 // 32_768 * 32_768
SOON = T0 + 5_000
MINUTE, HOUR = 60_000, 3_600_000
SMALL = 3
"""Entries of a ledger in the run of a day."""


def early_and_late(topic: str) -> list[Step]:
    """Subscriptions that come while near, loaded and parked messages wait."""
    everybody = ("first", "all", "last")
    return [
        subscribe(topic, "first"),
        append(
            message("now", topic), message("soon", topic, after=10 * MINUTE), message("parked", topic, after=5 * HOUR)
        ),
        advance(T0),
        subscribe(topic, "all", start="earliest"),
        subscribe(topic, "new", start="latest"),
        advance(SOON - 1),
        delivered("now", subscription="all", topic=topic),
        restart(),
        append(message("fresh", topic, after=6 * HOUR)),
        advance(T0 + 10 * MINUTE),
        delivered("now", "soon", subscription="all", topic=topic),
        subscribe(topic, "last", start="earliest"),
        advance(T0 + 5 * HOUR),
        *(delivered("now", "soon", "parked", subscription=name, topic=topic) for name in everybody),
        delivered(subscription="new", topic=topic),
        advance(T0 + 7 * HOUR),
        *(delivered("now", "soon", "parked", "fresh", subscription=name, topic=topic) for name in everybody),
        delivered("fresh", subscription="new", topic=topic),
    ]


def ticks(topic: str, other: str) -> list[Step]:
    """Two ticks and one that leaves; another topic, and one that nobody listens to."""

    def no_stranger(world: World) -> None:
        rows = (row for row in world.rows(DELIVERIES) if row["topic"] in (topic, other, "nobody's"))
        pairs = Counter((row["topic"], row["subscription"]) for row in rows)
        assert pairs == {(topic, "s"): 3, (topic, "minute"): 3, (other, "other"): 1}

    return [
        subscribe(topic, "s", tick_ms=1),
        subscribe(topic, "minute", tick_ms=60_000),
        subscribe(topic, "gone", tick_ms=1_000),
        subscribe(other, "other"),
        append(
            message("b", topic, deliver_at=T0 + 20_000),
            message("a", topic, deliver_at=T0 + 10_000),
            message("c", topic, deliver_at=T0 + 40_000),
            message("u", other, deliver_at=T0 + 10_000),
            message("nobody", topic="nobody's"),
        ),
        advance(T0),
        unsubscribe(topic, "gone"),
        advance(T0 + 32_767),
        delivered("a", "b", subscription="s", topic=topic),
        delivered(subscription="minute", topic=topic),
        advance(T0 + 32_768),
        delivered("a", "b", subscription="minute", topic=topic),
        advance(T0 + 65_536),
        delivered("a", "b", "c", subscription="s", topic=topic),
        delivered("a", "b", "c", subscription="minute", topic=topic),
        check(no_stranger),
    ]


def equal_times(topic: str, entries: int) -> list[Step]:
    """Two hundred messages of one delay, from two commits, in ledgers of so many entries."""
    names = [f"{i:03d}" for i in range(200)]

    def dense(world: World) -> None:
        rows = [(row["ledger_id"], row["entry_id"]) for row in world.rows(DELIVERIES) if row["topic"] == topic]
        assert len(set(rows)) == len(names)
        assert max(entry for _, entry in rows) == min(entries, len(names)) - 1
        assert payloads(world, topic=topic) == names
        kinds = {row["kind"] for row in world.rows(SEGMENTS) if row["topic"] == topic}
        assert kinds - {"marker"} == {"near"}

    return [
        subscribe(topic, "s"),
        advance(T0),
        advance(SOON - 1),
        commits(*([message(name, topic, deliver_at=SOON) for name in half] for half in (names[:100], names[100:]))),
        restart(),
        advance(SOON),
        check(dense),
    ]


def all_types(topic: str) -> list[Step]:
    """Ten messages, for a subscription of each type."""
    names = [f"{i}" for i in range(10)]
    return [
        *(subscribe(topic, kind, kind=kind) for kind in TYPES),
        append(*({**message(name, topic, after=SOON - T0), "message_key": name} for name in names)),
        advance(T0),
        advance(SOON - 1),
        *(delivered(subscription=kind, topic=topic) for kind in TYPES),
        advance(SOON),
        *(delivered(*names, subscription=kind, topic=topic) for kind in TYPES),
    ]


def changed_tick(topic: str) -> list[Step]:
    """Somebody edits the registry; another line of it was wrong from the beginning."""

    def edit(world: World) -> None:
        table = deltars.open_table(world.warehouse.root, SUBSCRIPTIONS)
        table.update({"tick_ms": "60000"}, predicate=f"topic = '{topic}' AND subscription = 's'")

    def said(world: World) -> None:
        rows = [(row["reason"], row["properties"]) for row in world.rows(REJECTED_INGEST) if row["topic"] == topic]
        changed = ("tick_changed", {"subscription": "s", "tick_ms": "60000"})
        assert sorted(rows) == [changed, ("tick_out_of_range", {"subscription": "never", "tick_ms": "0"})]
        assert pending(world.warehouse.root).in_inbox == 0

    return [
        subscribe(topic, "s"),
        subscribe(topic, "never", tick_ms=0),
        append(message("a", topic, deliver_at=T0 + 10)),
        advance(T0),
        check(edit),
        append(message("b", topic, deliver_at=SOON - 1)),
        advance(SOON - 1),
        restart(),
        append(message("c", topic, deliver_at=SOON)),
        advance(SOON),
        delivered("a", "b", "c", topic=topic),
        delivered(subscription="never", topic=topic),
        check(said),
    ]


@pytest.fixture(scope="module", params=TWO_STORES)
def day(request: pytest.FixtureRequest) -> Played:
    """A run from morning to evening."""
    scripts = {
        "early and late": early_and_late("early and late"),
        "ticks": ticks("ticks", "ticks of another"),
        "equal times": equal_times("equal times", SMALL),
        "all types": all_types("all types"),
        "changed tick": changed_tick("changed tick"),
    }
    return play_together(scripts, Settings(entries_per_ledger=SMALL), request.param)


def test_late_subscriptions_get_the_backlog_or_what_comes_from_now_on(day: Played) -> None:
    """`earliest` gets near, loaded and still parked messages of before; `latest` gets none of them."""
    day.shows("early and late")


def test_ticks_differ_topics_do_not_mix_and_a_removed_subscription_is_dropped(day: Played) -> None:
    """Each subscription is released by its own tick; a topic's messages reach its own subscriptions only."""
    day.shows("ticks")


def test_equal_times_arrive_in_the_order_of_publication(day: Played) -> None:
    """First in, first out, also when a batch has many ledgers."""
    day.shows("equal times")


@pytest.mark.soak
def test_equal_times_arrive_in_the_order_of_publication_in_large_ledgers(spark: SparkSession, folder: str) -> None:
    """All are in one."""
    play(spark, folder, equal_times("t", 50_000), stores=2)


def test_every_subscription_type_honours_a_delay(day: Played) -> None:
    """All ten for each type, in order, after five seconds and not before."""
    day.shows("all types")


def test_a_changed_tick_is_refused_with_a_row_and_nothing_stops(day: Played) -> None:
    """The subscription keeps the tick that its life began with; the row says what was not followed, once."""
    day.shows("changed tick")


def by_itself(segments: DataFrame, count: int) -> DataFrame:
    """Whom chunks were for before decision 0022: each subscription had an index, and Python wrote its name."""
    each = segments.where("kind <> 'marker'").select("*", F.explode("subscriptions").alias("listener"))
    return each.select(
        F.pmod(F.hash("topic", "listener.name", "listener.life"), F.lit(count)).cast("bigint").alias("shard"),
        F.format_string('["%s", "%s", %d]', "topic", "listener.name", "listener.life").alias("owner"),
        F.unix_millis("segment_start").alias("segment_ms"),
        F.col("listener.tick_ms").alias("tick_ms"),
        "chunk",
    )


def each_by_itself(topic: str) -> list[Step]:
    """Messages wait from before the first restart, and some come after it."""
    return [
        subscribe(topic, "s"),
        subscribe(topic, "z"),
        append(message("old", topic, after=MINUTE), message("oldest", topic, after=2 * MINUTE)),
        advance(T0),
        restart(),
        append(message("new", topic, deliver_at=T0 + 2 * MINUTE)),
        advance(T0 + MINUTE),
        *(delivered("old", subscription=name, topic=topic) for name in "sz"),
        advance(T0 + 2 * MINUTE),
        *(delivered("old", "oldest", "new", subscription=name, topic=topic) for name in "sz"),
    ]


def other_stores(topic: str, counts: set[int]) -> list[Step]:
    """Six subscriptions of as many ticks, whose messages wait while the number of stores goes up, and down."""
    names = [f"s{number}" for number in range(6)]

    def stores(count: str) -> list[Step]:
        def change(world: World) -> None:
            world.end()
            world.warehouse.spark.conf.set(PARTITIONS, count)

        return [check(change), restart(), check(lambda world: counts.add(keys.shards(world.warehouse.spark)))]

    def everyone_got(*expected: str) -> Step:
        def step(world: World) -> None:
            rows = (row for row in world.rows(DELIVERIES) if row["topic"] == topic)
            found = Counter((row["subscription"], bytes(row["payload"]).decode()) for row in rows)
            assert found == Counter((name, payload) for name in names for payload in expected)

        return check(step)

    return [
        *(subscribe(topic, name, tick_ms=1 << number) for number, name in enumerate(names)),
        append(message("early", topic, after=MINUTE), message("middle", topic, after=2 * MINUTE)),
        advance(T0),
        *stores("7"),
        append(message("late", topic, deliver_at=T0 + 2 * MINUTE), message("last", topic, deliver_at=T0 + 3 * MINUTE)),
        advance(T0 + MINUTE),
        everyone_got("early"),
        advance(T0 + 2 * MINUTE),
        everyone_got("early", "middle", "late"),
        *stores("1"),
        advance(T0 + 3 * MINUTE),
        everyone_got("early", "middle", "late", "last"),
    ]


COUNTS = set[int]()
"""The numbers of shards in the run with several."""


@cache
def old_days() -> Played:
    """A run that begins with an index for each subscription."""
    old = patch.object(keys, "addressed", by_itself)
    scripts = {"each by itself": each_by_itself("each by itself"), "other stores": other_stores("other stores", COUNTS)}
    # What is read at the first start is from before; at the first restart it is as it is now.
    scripts["each by itself"].insert(4, check(lambda _: old.stop()))
    old.start()
    try:
        return play_together(scripts, play=on_two_stores)
    finally:
        old.stop()


def test_a_checkpoint_of_when_each_had_an_index_goes_on() -> None:
    """What waits under a name of one leaves under it, beside what has come since for those who listen alike."""
    old_days().shows("each by itself")


def test_another_number_of_state_stores_at_another_start_loses_nobody() -> None:
    """A machine with more cores: indexes change their shard while messages wait in them, and again back."""
    old_days().shows("other stores")
    assert sorted(COUNTS) == [4, 28]
