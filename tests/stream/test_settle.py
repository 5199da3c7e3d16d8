"""What consumers acknowledge is settled; what they do not stays open, whatever restarts.

One run has a topic for each test, so that the stages start and stop for all of them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from schemas import CLOSED, CURSORS, INBOX, REJECTED_SETTLE, SEGMENTS
from tests.support.consuming import acknowledging, payloads_open, received, said, says, standing
from tests.support.stream import Step, World, advance, append, check, message, restart, subscribe, unsubscribe
from tests.support.worlds import SHELLS

T0 = 1_700_000_000_000
SECOND = 1_000


@dataclass(frozen=True)
class Day:
    """The run, and what was looked at on the way, by name."""

    world: World
    seen: dict[str, Any]


def open_of(topic: str) -> Callable[[World], set[str]]:
    """The payloads that are open of subscription `s` of a topic."""
    return lambda world: payloads_open(world, topic=topic)


def retries(world: World) -> list[dict[str, Any]]:
    """Rows of `segments` that settle wrote."""
    return [row.asDict(recursive=True) for row in world.rows(SEGMENTS) if row["kind"] == "retry"]


def said_wrongly() -> Step:
    """Rows of any Delta writer that nobody can follow."""
    own = {"topic": "refused", "subscription": "s", "life": 1, "ledger_id": 0, "first_entry": 0, "last_entry": 0}
    return said(
        own | {"kind": "nack", "redelivery_count": 0, "after_ms": -5},
        own | {"kind": "ack", "last_entry": -1},
        own | {"kind": "nack"},
        own | {"kind": "ack", "ledger_id": 10**15},
        own | {"kind": "ack", "subscription": "stranger"},
        {"kind": "ack"},
        own | {"kind": "ack", "life": 2},
        own | {"kind": "dance"},
    )


@pytest.fixture(scope="module", params=SHELLS)
def day(request: pytest.FixtureRequest) -> Day:
    """The run."""
    found: dict[str, Any] = {}

    def seen(name: str, look: Callable[[World], object]) -> Step:
        return check(lambda world: found.update({name: look(world)}))

    world: World = request.param(
        [
            subscribe("plain", "s"),
            advance(T0),
            append(message("a", "plain")),
            advance(T0 + SECOND),
            seen("rows while nobody acknowledges", lambda world: world.rows(CURSORS)),
            acknowledging("acked", "s"),
            acknowledging("failed", "s", retry_min_ms=10 * SECOND, retry_multiplier=2),
            acknowledging("dead", "s", max_redeliveries=0),
            subscribe("dead-s-DLQ", "graveyard"),
            acknowledging("refused", "s"),
            acknowledging("refused", "wrong", slots=0),
            acknowledging("back", "s"),
            advance(T0 + 2 * SECOND),
            append(*(message(each, "acked") for each in ("a", "b", "c"))),
            append(*(message(each, "failed") for each in ("a", "b"))),
            append(message("good", "dead"), message("bad", "dead")),
            append(message("a", "refused"), message("old", "back")),
            advance(T0 + 3 * SECOND),
            seen("open before", open_of("acked")),
            says("ack", "c", topic="acked"),
            says("nack", "a", topic="failed", after_ms=4 * SECOND),
            says("nack", "b", topic="failed"),
            says("nack", "bad", topic="dead", cause="ack_timeout"),
            said_wrongly(),
            unsubscribe("back", "s"),
            advance(T0 + 4 * SECOND),
            seen("put back", retries),
            says("ack", "b", "c", topic="acked"),
            says("nack", "a", "b", topic="failed"),
            says("nack", "bad", topic="dead"),
            acknowledging("back", "s"),
            restart(),
            advance(T0 + 5 * SECOND),
            seen("put back later", retries),
            seen("begun again", lambda world: standing(world, "back", life=2).open()),
            append(message("new", "back")),
            advance(T0 + 6 * SECOND),
            restart(),
        ]
    )
    return Day(world, found)


def test_what_is_acknowledged_is_settled_and_the_rest_stays_open_over_a_restart(day: Day) -> None:
    """Acknowledgements come one by one, out of order, and twice."""
    assert open_of("acked")(day.world) == {"a"}
    assert day.seen["open before"] == {"a", "b", "c"}
    assert day.world.rows(CLOSED) == []


def test_a_subscription_that_does_not_acknowledge_costs_nothing(day: Day) -> None:
    """Nothing is written for it, neither when it alone is there nor beside one that does."""
    topics = {row["topic"] for row in day.world.rows(CURSORS)}
    assert day.seen["rows while nobody acknowledges"] == []
    assert topics == {"acked", "failed", "dead", "refused", "back"}


def test_what_failed_is_put_back_for_its_delay_or_for_the_backoff(day: Day) -> None:
    """A consumer may name a delay; a failure counts once, for the delivery that it names."""
    rows = [row for row in day.seen["put back"] if row["topic"] == "failed"]
    dues = {round(row[each].timestamp() * 1_000) for row in rows for each in ("first_due", "last_due")}
    assert {due - (T0 + 4 * SECOND) for due in dues} == {4 * SECOND, 10 * SECOND}
    assert {(row["redelivery_count"], row["cause"]) for row in rows} == {(1, "nack")}
    assert sum(row["count"] for row in rows) == 2
    assert {(each["name"], each["life"]) for row in rows for each in row["subscriptions"]} == {("s", 1)}
    assert day.seen["put back later"] == day.seen["put back"]


def test_a_dead_letter_is_sent_once_with_where_it_comes_from(day: Day) -> None:
    """Redelivered never: the first failure is the last one."""
    letters = [row.asDict(recursive=True) for row in day.world.rows(INBOX) if row["topic"] == "dead-s-DLQ"]
    assert [bytes(row["payload"]) for row in letters] == [b"bad"]
    properties = letters[0]["properties"]
    assert properties.pop("delayline.position").count(":") == 1
    assert properties == {
        "delayline.topic": "dead",
        "delayline.subscription": "s",
        "delayline.redelivery_count": "0",
        "delayline.cause": "ack_timeout",
    }
    assert open_of("dead")(day.world) == {"good"}
    assert received(day.world, "graveyard", "dead-s-DLQ") == [("bad", 0)]


def test_what_cannot_be_followed_is_refused_with_a_reason_and_stops_nothing(day: Day) -> None:
    """Rows of any Delta writer, and a line of the registry, once for each."""
    reasons = sorted(row["reason"].partition(":")[0] for row in day.world.rows(REJECTED_SETTLE))
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
    assert open_of("refused")(day.world) == {"a"}


def test_who_comes_back_under_its_name_begins_with_nothing_open(day: Day) -> None:
    """What its earlier incarnation left open is given up."""
    assert len(standing(day.world, "back", life=2).open()) == 1
    assert day.seen["begun again"] == {}
