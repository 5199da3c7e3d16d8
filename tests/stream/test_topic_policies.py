"""Policies of a topic decide when its messages are due, whatever dies and whatever is set meanwhile."""

from __future__ import annotations

from typing import Any

from pipeline.client.insight.pending import pending
from pipeline.client.subscribing.policysetting import followed_since, set_policy
from pipeline.config.settings import Settings
from pipeline.delta import deltars
from schemas import DELIVERIES, REJECTED_INGEST, SUBSCRIPTIONS
from tests.support import examined
from tests.support.stream import Step, World, advance, append, check, kill_after, message, restart, subscribe
from tests.support.worlds import Play

T0 = 1_700_000_000_000
SECOND = 1_000
_COARSE = 61_440
"""After a delay of 61 s buckets are 512 ms wide; this is the end of one, in ms after T0."""


def policies(topic: str, **stated: int | str) -> Step:
    """Policies of a topic are set."""
    values: dict[str, Any] = dict(stated)
    return check(lambda world: same(set_policy(world.warehouse.root, topic, **values), wanted=True))


def wrong(world: World) -> None:
    """Somebody writes a policy that cannot be followed."""
    line = {"topic": "u", "subscription": "", "type": "topic", "start": "latest", "tick_ms": 1, "active": False}
    rows = [{**line, "policies": {"fixed_delay_ms": "soon"}}]
    deltars.append(world.warehouse.root, SUBSCRIPTIONS, deltars.rows_of(SUBSCRIPTIONS, rows))


def came(world: World) -> dict[str, int]:
    """When each message came, in ms after T0."""
    rows = world.rows(DELIVERIES)
    assert all(row["deliver_at"] is None or row["deliver_at"] <= row["due_time"] for row in rows)
    found = {bytes(row["payload"]).decode(): round(row["due_time"].timestamp() * 1_000) - T0 for row in rows}
    assert len(found) == len(rows)
    return found


def test_delays_follow_the_policies_of_the_batch_that_took_a_message(play: Play) -> None:
    """Ingest dies when it has noted what a batch is made with; other policies, set meanwhile, count for the next one.

    Some messages go past the schedule.
    """
    world = play(
        [
            *(subscribe(topic, "s") for topic in ("fixed", "least", "t-partition-0", "u", "coarse")),
            policies("fixed", fixed_delay_ms=10 * SECOND),
            policies("least", min_delay_ms=5 * SECOND, max_delay_ms=20 * SECOND),
            policies("t", min_delay_ms=3 * SECOND),
            policies("coarse", precision="proportional"),
            check(wrong),
            advance(T0),
            *(append(message(f"{topic} now", topic, after=0)) for topic in ("fixed", "least", "t-partition-0", "u")),
            append(
                message("fixed late", "fixed", after=3_600 * SECOND), message("least in time", "least", after=9_000)
            ),
            append(message("least late", "least", after=20_001), message("fixed bare", "fixed")),
            append(*(message(f"coarse {n}", "coarse", T0 + 61 * SECOND + n) for n in range(3))),
            kill_after("ingest.messages"),
            advance(T0 + SECOND),
            policies("fixed", fixed_delay_ms=1),
            policies("least", min_delay_ms=1),
            policies("coarse", precision="exact"),
            restart(),
            append(message("fixed after", "fixed", after=0)),
            advance(T0 + 2 * SECOND),
            check(lambda world: same(followed_since(world.warehouse.root, "fixed") is not None, wanted=True)),
            check(lambda world: same(pending(world.warehouse.root, "fixed").backlogs[0].count, 4)),
            advance(T0 + 60 * SECOND),
            advance(T0 + _COARSE - 1),
            check(lambda world: same(sum(name.startswith("coarse") for name in came(world)), 0)),
            advance(T0 + _COARSE),
        ],
        Settings(express_ms=4 * SECOND),
    )
    assert came(world) == {
        "fixed now": 11 * SECOND,
        "fixed late": 11 * SECOND,
        "fixed bare": 11 * SECOND,
        "fixed after": 2 * SECOND + 1,
        "least now": 6 * SECOND,
        "least in time": 10 * SECOND,
        "t-partition-0 now": 4 * SECOND,
        "u now": SECOND,
        **{f"coarse {n}": _COARSE for n in range(3)},
    }
    refused = [(row["reason"], row["topic"]) for row in world.rows(REJECTED_INGEST)]
    assert sorted(refused) == [("max_delay_exceeded", "least"), ("topic_policy", "u")]
    assert pending(world.warehouse.root).in_inbox == 0
    assert examined.wrong(world.warehouse.root) == {("policy_refused", "u")}


def same(found: object, wanted: object) -> None:
    """Both are equal."""
    assert found == wanted
