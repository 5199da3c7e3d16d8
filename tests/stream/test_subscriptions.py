"""Who gets what: several topics, several subscriptions, early and late ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from pipeline.client.pending import pending
from pipeline.client.subscribing.subscriptions import TYPES
from pipeline.config.session import PARTITIONS
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

T0 = 1_700_000_000_000
HOUR = 3_600_000


def test_late_subscriptions_get_the_backlog_or_what_comes_from_now_on(spark: SparkSession, folder: str) -> None:
    """`earliest` gets near, loaded and still parked messages of before; `latest` gets none of them."""
    play(
        spark,
        folder,
        [
            subscribe("t", "first"),
            append(message("now"), message("soon", after=600_000), message("parked", after=5 * HOUR)),
            advance(T0),
            subscribe("t", "all", start="earliest"),
            subscribe("t", "new", start="latest"),
            advance(T0 + 1_000),
            delivered("now", subscription="all"),
            restart(),
            append(message("fresh", after=6 * HOUR)),
            advance(T0 + 600_000),
            delivered("now", "soon", subscription="all"),
            subscribe("t", "last", start="earliest"),
            advance(T0 + 5 * HOUR),
            delivered("now", "soon", "parked", subscription="first"),
            delivered("now", "soon", "parked", subscription="all"),
            delivered("now", "soon", "parked", subscription="last"),
            delivered(subscription="new"),
            advance(T0 + 7 * HOUR),
            delivered("now", "soon", "parked", "fresh", subscription="first"),
            delivered("now", "soon", "parked", "fresh", subscription="all"),
            delivered("now", "soon", "parked", "fresh", subscription="last"),
            delivered("fresh", subscription="new"),
        ],
    )


def test_ticks_differ_topics_do_not_mix_and_a_removed_subscription_is_dropped(spark: SparkSession, folder: str) -> None:
    """Each subscription is released by its own tick; a topic's messages reach its own subscriptions only."""
    base = T0 - T0 % 32_768

    def no_stranger(world: World) -> None:
        pairs = Counter((row["topic"], row["subscription"]) for row in world.rows(DELIVERIES))
        assert pairs == {("t", "s"): 3, ("t", "minute"): 3, ("u", "other"): 1}

    play(
        spark,
        folder,
        [
            subscribe("t", "s", tick_ms=1),
            subscribe("t", "minute", tick_ms=60_000),
            subscribe("t", "gone", tick_ms=1_000),
            subscribe("u", "other"),
            append(
                message("b", deliver_at=base + 20_000),
                message("a", deliver_at=base + 10_000),
                message("c", deliver_at=base + 40_000),
                message("u", topic="u", deliver_at=base + 10_000),
                message("nobody", topic="v"),
            ),
            advance(base),
            unsubscribe("t", "gone"),
            advance(base + 32_767),
            delivered("a", "b", subscription="s"),
            delivered(subscription="minute"),
            advance(base + 32_768),
            delivered("a", "b", subscription="minute"),
            advance(base + 65_536),
            delivered("a", "b", "c", subscription="s"),
            delivered("a", "b", "c", subscription="minute"),
            check(no_stranger),
        ],
    )


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


def test_a_checkpoint_of_when_each_had_an_index_goes_on(
    spark: SparkSession, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits under a name of one leaves under it, beside what has come since for those who listen alike."""
    monkeypatch.setattr(keys, "addressed", by_itself)

    def now_shared(world: World) -> None:
        monkeypatch.undo()
        restart()(world)

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            subscribe("t", "z"),
            append(message("old", after=60_000), message("oldest", after=120_000)),
            advance(T0),
            check(now_shared),
            append(message("new", deliver_at=T0 + 120_000)),
            advance(T0 + 60_000),
            *(delivered("old", subscription=name) for name in "sz"),
            advance(T0 + 120_000),
            *(delivered("old", "oldest", "new", subscription=name) for name in "sz"),
        ],
    )


def test_another_number_of_state_stores_at_another_start_loses_nobody(spark: SparkSession, folder: str) -> None:
    """A machine with more cores: indexes change their shard while messages wait in them, and again back."""
    names = [f"s{number}" for number in range(6)]
    usual = str(spark.conf.get(PARTITIONS))
    counts = set[int]()

    def stores(count: str) -> Step:
        def step(world: World) -> None:
            spark.conf.set(PARTITIONS, count)
            restart()(world)
            counts.add(keys.shards(spark))

        return check(step)

    def everyone_got(*expected: str) -> Step:
        def step(world: World) -> None:
            found = Counter((row["subscription"], bytes(row["payload"]).decode()) for row in world.rows(DELIVERIES))
            assert found == Counter((name, payload) for name in names for payload in expected)

        return check(step)

    try:
        play(
            spark,
            folder,
            [
                *(subscribe("t", name, tick_ms=1 << number) for number, name in enumerate(names)),
                append(message("early", after=60_000), message("middle", after=120_000)),
                advance(T0),
                stores("7"),
                append(message("late", deliver_at=T0 + 120_000), message("last", deliver_at=T0 + 180_000)),
                advance(T0 + 60_000),
                everyone_got("early"),
                advance(T0 + 120_000),
                everyone_got("early", "middle", "late"),
                stores("1"),
                advance(T0 + 180_000),
                everyone_got("early", "middle", "late", "last"),
            ],
        )
    finally:
        spark.conf.set(PARTITIONS, usual)
    assert counts == {28, 4}


@pytest.mark.parametrize("entries", [3, pytest.param(50_000, marks=pytest.mark.soak)])
def test_equal_times_arrive_in_the_order_of_publication(spark: SparkSession, folder: str, entries: int) -> None:
    """Two hundred messages of one delay, from two commits: first in, first out, with small ledgers and with large."""
    names = [f"{i:03d}" for i in range(200)]

    def small_ledgers(world: World) -> None:
        world.options = replace(world.options, settings=replace(world.options.settings, entries_per_ledger=entries))
        world.end()
        world.begin()

    def two_commits(world: World) -> None:
        """Both commits are there before ingest looks: one batch takes them."""
        world.end()
        for half in (names[:100], names[100:]):
            world.waiting = [message(name, deliver_at=T0 + 5_000) for name in half]
            world.produce()
        world.begin()

    def dense(world: World) -> None:
        rows = [(row["ledger_id"], row["entry_id"]) for row in world.rows(DELIVERIES)]
        assert len(set(rows)) == len(names)
        assert max(entry for _, entry in rows) < entries
        assert payloads(world) == names
        assert {row["kind"] for row in world.rows(SEGMENTS)} == {"near", "marker"}

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            check(small_ledgers),
            advance(T0),
            check(two_commits),
            advance(T0 + 5_000),
            check(dense),
        ],
    )


def test_every_subscription_type_honours_a_delay(spark: SparkSession, folder: str) -> None:
    """Ten messages delayed by five seconds: all ten for each type, in order, after five seconds and not before."""
    names = [f"{i}" for i in range(10)]

    play(
        spark,
        folder,
        [
            *(subscribe("t", kind, kind=kind) for kind in TYPES),
            append(*({**message(name, after=5_000), "message_key": name} for name in names)),
            advance(T0),
            advance(T0 + 4_999),
            *(delivered(subscription=kind) for kind in TYPES),
            advance(T0 + 5_000),
            *(delivered(*names, subscription=kind) for kind in TYPES),
        ],
    )


def test_a_changed_tick_is_refused_with_a_row_and_nothing_stops(spark: SparkSession, folder: str) -> None:
    """The subscription keeps the tick that its life began with; the row says what was not followed, once."""
    base = T0 - T0 % 32_768

    def edit(world: World) -> None:
        table = DeltaTable.forPath(world.spark, world.warehouse.path(SUBSCRIPTIONS))
        table.update("subscription = 's'", {"tick_ms": F.lit(60_000)})

    def said(world: World) -> None:
        rows = [(row["reason"], row["topic"], row["properties"]) for row in world.rows(REJECTED_INGEST)]
        changed = ("tick_changed", "t", {"subscription": "s", "tick_ms": "60000"})
        assert sorted(rows) == [changed, ("tick_out_of_range", "t", {"subscription": "never", "tick_ms": "0"})]
        assert pending(world.warehouse.root).in_inbox == 0

    play(
        spark,
        folder,
        [
            subscribe("t", "s"),
            subscribe("t", "never", tick_ms=0),
            append(message("a", deliver_at=base + 10)),
            advance(base),
            check(edit),
            append(message("b", deliver_at=base + 20)),
            advance(base + 1),
            restart(),
            append(message("c", deliver_at=base + 30)),
            advance(base + 30),
            delivered("a", "b", "c"),
            delivered(subscription="never"),
            check(said),
        ],
    )
