"""From a failure to the next delivery: settle, schedule and dispatch together, each redelivery once and in its time."""

from __future__ import annotations

from pyspark.sql import SparkSession

from schemas import CLOSED, DELIVERIES, INBOX
from tests.support.consuming import acknowledging, payloads_open, received, says
from tests.support.stream import World, advance, append, check, message, play, restart

T0 = 1_700_000_000_000
SECOND = 1_000


def test_a_failed_message_comes_again_after_its_delay_until_it_is_acknowledged_or_given_up(
    spark: SparkSession, folder: str
) -> None:
    """Its position stays what it was, its count grows; a nack counts once, and only for the delivery that it names."""

    def first(world: World) -> None:
        assert received(world) == [("good", 0), ("bad", 0)]

    def second(world: World) -> None:
        assert received(world) == [("good", 0), ("bad", 0), ("good", 1), ("bad", 1)]
        assert payloads_open(world) == {"good", "bad"}

    def last(world: World) -> None:
        assert received(world) == [("good", 0), ("bad", 0), ("good", 1), ("bad", 1), ("bad", 2)]
        assert payloads_open(world) == set()
        letters = [bytes(row["payload"]) for row in world.rows(INBOX) if row["topic"] == "t-s-DLQ"]
        assert letters == [b"bad"]
        places = {(row["ledger_id"], row["entry_id"]) for row in world.rows(DELIVERIES) if row["payload"] == b"bad"}
        assert len(places) == 1
        causes = [row["cause"] for row in world.rows(DELIVERIES) if row["redelivery_count"]]
        assert sorted(causes) == ["nack", "nack", "owner_lost"]

    play(
        spark,
        folder,
        [
            acknowledging("t", "s", max_redeliveries=2, retry_min_ms=10 * SECOND),
            advance(T0),
            append(message("good"), message("bad")),
            advance(T0 + SECOND),
            says("nack", "good", "bad", cause="nack"),
            advance(T0 + 2 * SECOND),
            says("nack", "bad"),
            advance(T0 + 11 * SECOND),
            check(first),
            restart(),
            advance(T0 + 13 * SECOND),
            check(second),
            says("ack", "good"),
            says("nack", "bad", after_ms=0, cause="owner_lost"),
            advance(T0 + 14 * SECOND),
            advance(T0 + 15 * SECOND),
            says("nack", "bad"),
            advance(T0 + 16 * SECOND),
            restart(),
            advance(T0 + 60 * SECOND),
            check(last),
        ],
    )


def test_who_acknowledges_late_gets_it_no_more(spark: SparkSession, folder: str) -> None:
    """The consumer was slow, its lease ended, and then it was done all the same."""

    def none(world: World) -> None:
        assert received(world) == [("slow", 0)]
        assert payloads_open(world) == set()
        assert [(row["redelivery_count"], row["cause"]) for row in world.rows(CLOSED)] == [(1, "ack")]

    play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            advance(T0),
            append(message("slow")),
            advance(T0 + SECOND),
            says("nack", "slow", after_ms=30 * SECOND, cause="owner_lost"),
            advance(T0 + 2 * SECOND),
            says("ack", "slow"),
            advance(T0 + 3 * SECOND),
            restart(),
            advance(T0 + 60 * SECOND),
            check(none),
        ],
    )
