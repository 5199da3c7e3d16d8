"""What consumers acknowledge is settled; what they do not stays open, whatever restarts."""

from __future__ import annotations

from pyspark.sql import Row, SparkSession

from schemas import CLOSED, CURSORS, INBOX, REJECTED_SETTLE, SEGMENTS
from tests.support.consuming import acknowledging, payloads_open, received, said, says, standing
from tests.support.stream import (
    World,
    advance,
    append,
    check,
    message,
    play,
    restart,
    subscribe,
    unsubscribe,
)

T0 = 1_700_000_000_000
SECOND = 1_000


def retries(world: World) -> list[Row]:
    """Rows of `segments` that settle wrote."""
    return [row for row in world.rows(SEGMENTS) if row["kind"] == "retry"]


def test_what_is_acknowledged_is_settled_and_the_rest_stays_open_over_a_restart(
    spark: SparkSession, folder: str
) -> None:
    """Acknowledgements come one by one, out of order, and twice."""

    def before(world: World) -> None:
        assert payloads_open(world) == {"a", "b", "c"}

    def after(world: World) -> None:
        assert payloads_open(world) == {"a"}
        assert world.rows(REJECTED_SETTLE) == [] == world.rows(CLOSED)

    play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            advance(T0),
            append(message("a"), message("b"), message("c")),
            advance(T0 + SECOND),
            check(before),
            says("ack", "c"),
            advance(T0 + 2 * SECOND),
            says("ack", "b", "c"),
            restart(),
            advance(T0 + 3 * SECOND),
            check(after),
            restart(),
            check(after),
        ],
    )


def test_a_subscription_that_does_not_acknowledge_costs_nothing(spark: SparkSession, folder: str) -> None:
    """Nothing is written for it, neither when it alone is there nor beside one that does."""

    def nothing(world: World) -> None:
        assert world.rows(CURSORS) == []

    def own(world: World) -> None:
        assert {row["subscription"] for row in world.rows(CURSORS)} == {"s"}

    play(
        spark,
        folder,
        [
            subscribe("t", "plain"),
            advance(T0),
            append(message("a")),
            advance(T0 + SECOND),
            check(nothing),
            acknowledging("t", "s"),
            advance(T0 + 2 * SECOND),
            append(message("b")),
            advance(T0 + 3 * SECOND),
            check(own),
            check(lambda world: _same(payloads_open(world), {"b"})),
        ],
    )


def test_what_failed_is_put_back_for_its_delay_or_for_the_backoff(spark: SparkSession, folder: str) -> None:
    """The first delay of the backoff is doubled with each failure; a consumer may name a delay of its own."""

    def put_back(world: World) -> None:
        rows = retries(world)
        told = (row[column] for row in rows for column in ("first_due", "last_due"))
        dues = {each.timestamp() * 1_000 - (T0 + 2 * SECOND) for each in told}
        assert dues == {4 * SECOND, 10 * SECOND}
        assert {(row["redelivery_count"], row["cause"]) for row in rows} == {(1, "nack")}
        assert sum(row["count"] for row in rows) == 2
        assert {(each["name"], each["life"]) for row in rows for each in row["subscriptions"]} == {("s", 1)}

    play(
        spark,
        folder,
        [
            acknowledging("t", "s", retry_min_ms=10 * SECOND, retry_multiplier=2),
            advance(T0),
            append(message("a"), message("b")),
            advance(T0 + SECOND),
            says("nack", "a", after_ms=4 * SECOND),
            says("nack", "b"),
            advance(T0 + 2 * SECOND),
            check(put_back),
            says("nack", "a", "b"),
            advance(T0 + 3 * SECOND),
            check(put_back),
        ],
    )


def test_a_dead_letter_is_sent_once_with_where_it_comes_from(spark: SparkSession, folder: str) -> None:
    """Redelivered never: the first failure is the last one."""

    def dead(world: World) -> None:
        letters = [row for row in world.rows(INBOX) if row["topic"] == "t-s-DLQ"]
        assert [bytes(row["payload"]) for row in letters] == [b"bad"]
        told = letters[0]["properties"]
        assert told.pop("delayline.position").count(":") == 1
        assert told == {
            "delayline.topic": "t",
            "delayline.subscription": "s",
            "delayline.redelivery_count": "0",
            "delayline.cause": "ack_timeout",
        }
        assert payloads_open(world) == {"good"}
        assert ("bad", 0) in received(world, "graveyard")

    play(
        spark,
        folder,
        [
            acknowledging("t", "s", max_redeliveries=0),
            subscribe("t-s-DLQ", "graveyard"),
            advance(T0),
            append(message("good"), message("bad")),
            advance(T0 + SECOND),
            says("nack", "bad", cause="ack_timeout"),
            advance(T0 + 2 * SECOND),
            restart(),
            advance(T0 + 3 * SECOND),
            says("nack", "bad"),
            advance(T0 + 4 * SECOND),
            check(dead),
        ],
    )


def test_what_cannot_be_followed_is_refused_with_a_reason_and_stops_nothing(spark: SparkSession, folder: str) -> None:
    """Rows of any Delta writer, and lines of the registry."""
    own = {"topic": "t", "subscription": "s", "life": 1, "ledger_id": 0, "first_entry": 0, "last_entry": 0}
    far = own | {"ledger_id": 10**15}

    def refused(world: World) -> None:
        reasons = sorted(row["reason"].partition(":")[0] for row in world.rows(REJECTED_SETTLE))
        assert reasons == [
            "bad_after_ms",
            "bad_position",
            "bad_redelivery_count",
            "never_delivered",
            "not_acknowledging",
            "not_acknowledging",
            "other_incarnation",
            "policy",
            "unknown_kind",
        ]
        assert payloads_open(world) == {"a"}

    play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            acknowledging("t", "wrong", slots=0),
            advance(T0),
            append(message("a")),
            advance(T0 + SECOND),
            said(
                own | {"kind": "nack", "redelivery_count": 0, "after_ms": -5},
                own | {"kind": "ack", "last_entry": -1},
                own | {"kind": "nack"},
                far | {"kind": "ack"},
                own | {"kind": "ack", "subscription": "stranger"},
                {"kind": "ack"},
                own | {"kind": "ack", "life": 2},
                own | {"kind": "dance"},
            ),
            advance(T0 + 2 * SECOND),
            restart(),
            advance(T0 + 3 * SECOND),
            check(refused),
        ],
    )


def test_who_comes_back_under_its_name_begins_with_nothing_open(spark: SparkSession, folder: str) -> None:
    """What its earlier incarnation left open is given up, and its acknowledgements count no longer."""

    def begun(world: World) -> None:
        assert standing(world, life=2).open() == {}

    def new(world: World) -> None:
        assert len(standing(world, life=2).open()) == 1

    play(
        spark,
        folder,
        [
            acknowledging("t", "s"),
            advance(T0),
            append(message("old")),
            advance(T0 + SECOND),
            unsubscribe("t", "s"),
            advance(T0 + 2 * SECOND),
            acknowledging("t", "s"),
            advance(T0 + 3 * SECOND),
            check(begun),
            append(message("new")),
            advance(T0 + 4 * SECOND),
            restart(),
            check(new),
        ],
    )


def _same(found: object, wanted: object) -> None:
    assert found == wanted
