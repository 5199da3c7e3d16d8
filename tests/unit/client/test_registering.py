"""Registering subscriptions with policies, changing them, and ending subscriptions: each by one commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the client needs requirements/all.lock")
pytest.importorskip("pyspark", reason="the table contracts need requirements/all.lock")

from pipeline.client.choices import ConsumerType
from pipeline.client.consuming.registering import register
from pipeline.client.exceptions import SubscriptionNotFound
from pipeline.client.subscribing.lines import registered_in
from pipeline.client.subscribing.policysetting import set_policy, unset_policy
from pipeline.client.subscribing.subscriptions import (
    Subscription,
    change,
    line_of,
    set_policies,
    subscribe,
    subscriptions,
    unsubscribe,
)
from pipeline.config.errors import AlreadySubscribed, BadValue, StillConflicting
from pipeline.delta.deltars import ATTEMPTS, open_table, query
from pipeline.subscriptions.policies import Policies
from schemas import DELIVERIES, REDELIVERY, SUBSCRIPTIONS
from tests.support.client import put

ACK = Policies(ack=True)
ROW = {"topic": "t", "subscription": "s", "type": "shared", "start": "latest", "tick_ms": 1_000, "active": True}


def released(root: str) -> int:
    """Release nothing once more; the version of `redelivery` afterwards."""
    put(root, REDELIVERY)
    return open_table(root, REDELIVERY).version()


def lines(root: str) -> list[tuple[str, str, bool]]:
    """All lines of the registry but those that say what was."""
    rows = query(
        "SELECT * FROM s WHERE type <> 'history' ORDER BY topic, subscription", s=open_table(root, SUBSCRIPTIONS)
    )
    return [(row["topic"], row["subscription"], row["active"]) for row in rows]


def test_what_was_released_before_acknowledgement_began_counts_as_settled(root: str) -> None:
    """A subscription that is new, and one that begins to acknowledge, note how far the table is."""
    version = released(root)
    subscribe(root, Subscription("t", "new", policies=ACK))
    subscribe(root, Subscription("t", "old"))
    later = released(root)
    assert set_policies(root, "t", "old", ACK)
    found = {each.name: each.policies for each in subscriptions(root)}
    assert found == {"new": replace(ACK, ack_after=version), "old": replace(ACK, ack_after=later)}


def test_a_subscription_that_acknowledges_is_registered_once(root: str) -> None:
    """Since when is nothing that a second caller states; what it states must be the same."""
    new = Subscription("t", "s", policies=replace(ACK, ack_timeout_ms=5_000))
    assert subscribe(root, new)
    released(root)
    assert not subscribe(root, new)
    with pytest.raises(AlreadySubscribed) as refused:
        subscribe(root, Subscription("t", "s", policies=ACK))
    assert "ack_timeout_ms" in refused.value.found


def test_other_policies_replace_the_line_and_keep_since_when_they_acknowledge(root: str) -> None:
    """One commit, so that the subscription is there in every version: whoever left would begin anew."""
    subscribe(root, Subscription("t", "s", "key_shared", "earliest", 60_000, ACK))
    before = line_of(open_table(root, SUBSCRIPTIONS), ("t", "s"))
    released(root)
    version = open_table(root, SUBSCRIPTIONS).version()
    assert set_policies(root, "t", "s", Policies(ack=True, max_redeliveries=3))
    assert not set_policies(root, "t", "s", Policies(ack=True, max_redeliveries=3))
    assert open_table(root, SUBSCRIPTIONS).version() == version + 1
    assert before is not None
    assert before.policies.ack_after is not None
    assert subscriptions(root) == [replace(before, policies=replace(before.policies, max_redeliveries=3))]
    assert lines(root) == [("t", "s", True)]


def test_slots_stay_while_a_subscription_acknowledges(root: str) -> None:
    """Leases name slots. An exclusive one has one slot, whatever its policies say."""
    subscribe(root, Subscription("t", "s", policies=ACK))
    subscribe(root, Subscription("t", "e", "exclusive", policies=ACK))
    with pytest.raises(BadValue) as refused:
        set_policies(root, "t", "s", Policies(ack=True, slots=8))
    assert (refused.value.field, refused.value.value) == ("slots", 8)
    assert set_policies(root, "t", "e", Policies(ack=True, slots=8))


def test_a_subscription_that_ended_is_not_active_and_may_come_back(root: str) -> None:
    """Its neighbours stay as they are, also those whose names need quotes."""
    for name in ("s", "it's", "s' OR 'a' = 'a"):
        subscribe(root, Subscription("t", name))
    unsubscribe(root, "t", "s' OR 'a' = 'a")
    unsubscribe(root, "t", "s")
    assert [each.name for each in subscriptions(root)] == ["it's"]
    assert sorted(lines(root)) == [("t", "it's", True), ("t", "s", False), ("t", "s' OR 'a' = 'a", False)]
    for call in (lambda: unsubscribe(root, "t", "s"), lambda: set_policies(root, "t", "s", ACK)):
        with pytest.raises(SubscriptionNotFound) as refused:
            call()
        assert refused.value.subscription == "s"
    assert subscribe(root, Subscription("t", "s", tick_ms=5))
    assert len(lines(root)) == 3


def test_of_several_lines_the_one_that_ingest_follows_is_changed(root: str) -> None:
    """Any Delta writer may have appended them; one is left."""
    put(root, SUBSCRIPTIONS, ROW | {"tick_ms": 2_000}, ROW, ROW | {"start": "earliest"})
    assert set_policies(root, "t", "s", Policies(max_unacked=7))
    assert subscriptions(root) == [Subscription("t", "s", start="earliest", policies=Policies(max_unacked=7))]


def test_policies_that_cannot_be_followed_are_read_as_stages_read_them(root: str) -> None:
    """They stop nobody from looking; the others hold."""
    put(root, SUBSCRIPTIONS, ROW | {"policies": {"ack": "true", "slots": "many"}})
    put(root, SUBSCRIPTIONS, ROW | {"subscription": "t", "policies": {"colour": "red", "ack": None}})
    put(root, SUBSCRIPTIONS, ROW | {"subscription": "u", "policies": {"max_rate": "fast", "paused": "true"}})
    put(root, SUBSCRIPTIONS, ROW | {"subscription": "v", "active": False, "policies": {"max_rate": "fast"}})
    put(root, SUBSCRIPTIONS, ROW | {"subscription": "w", "tick_ms": 0}, ROW | {"subscription": "x"})
    assert [each.policies for each in subscriptions(root)] == [ACK, Policies(), Policies(paused=True), Policies()]
    assert registered_in(open_table(root, SUBSCRIPTIONS)).unclear == {("t", "s"), ("t", "t"), ("t", "u"), ("t", "w")}


@pytest.mark.parametrize("wrong", [{"sink": "kafka:out", "sink_after": "0"}, {"max_rate": "fast"}, {"colour": "red"}])
def test_policies_that_cannot_be_followed_are_taken_away_by_policies_that_are_set(
    root: str, wrong: dict[str, str]
) -> None:
    """Also by those that are followed in their place: the registry says these then, and nothing else."""
    put(root, SUBSCRIPTIONS, ROW | {"policies": {"max_unacked": "7", **wrong}})
    assert not subscribe(root, Subscription("t", "s", policies=Policies(max_unacked=7)))
    assert registered_in(open_table(root, SUBSCRIPTIONS)).unclear == {("t", "s")}
    assert set_policies(root, "t", "s", Policies(max_unacked=7))
    assert not set_policies(root, "t", "s", Policies(max_unacked=7))
    assert registered_in(open_table(root, SUBSCRIPTIONS)).unclear == set()
    (row,) = query("SELECT policies FROM s WHERE type <> 'history'", s=open_table(root, SUBSCRIPTIONS))
    assert dict(row["policies"]) == {"max_unacked": "7"}


@pytest.mark.parametrize("change_of", ["unset", "set"])
@pytest.mark.parametrize(
    ("wrong", "value", "after"),
    [
        ({"sink_after": "soon"}, 4, {"unset": 0, "set": 4}),
        ({"ack": "true", "sink_after": "7"}, False, {"unset": 7, "set": 7}),
    ],
)
def test_a_sink_stays_when_the_policy_that_contradicted_it_is_set_or_unset(
    root: str, wrong: dict[str, str], value: int, after: dict[str, int], change_of: str
) -> None:
    """It is not followed until then. What is not stated of it begins with what comes from now on."""
    put(root, SUBSCRIPTIONS, ROW | {"policies": {"sink": "kafka://there:1/out", **wrong}})
    assert subscriptions(root)[0].policies.sink is None
    name = next(iter(wrong))
    if change_of == "set":
        assert set_policy(root, "t", "s", **{name: value})
    else:
        assert unset_policy(root, "t", name, subscription="s")
    (line,) = subscriptions(root)
    found = line.policies
    assert (found.sink, found.ack, found.sink_after) == ("kafka://there:1/out", False, after[change_of])
    assert registered_in(open_table(root, SUBSCRIPTIONS)).unclear == set()


@pytest.mark.parametrize("wrong", [{"sink": "kafka:out"}, {"sink": "kafka://there:1/out", "ack": "true"}])
def test_another_sink_does_not_begin_where_one_did_that_cannot_be_followed(root: str, wrong: dict[str, str]) -> None:
    """It begins with what is delivered from now on, like any new one."""
    put(root, DELIVERIES)
    put(root, SUBSCRIPTIONS, ROW | {"policies": {"sink_after": "0", **wrong}})
    set_policy(root, "t", "s", sink="kafka://there:1/other", ack=False)
    assert subscriptions(root)[0].policies == Policies(sink="kafka://there:1/other", sink_after=1)


@pytest.mark.parametrize(
    ("texts", "values", "left"),
    [
        ({"retry_min_ms": "soon", "retry_max_ms": "5000"}, {"retry_min_ms": 1_000}, {"retry_max_ms": 5_000}),
        ({"retry_min_ms": "900000", "retry_max_ms": "soon"}, {"retry_max_ms": 1_800_000}, {"retry_min_ms": 900_000}),
        ({"max_rate": "fast", "slots": "many", "paused": "true"}, {"slots": 8}, {"paused": True}),
        ({"retry_max_ms": "soon", "max_redeliveries": "3"}, {"ack": True}, {"max_redeliveries": 3}),
    ],
)
def test_what_belongs_to_a_policy_that_is_mended_stays(
    texts: dict[str, str], values: dict[str, Any], left: dict[str, Any]
) -> None:
    """As far as it fits what is set."""
    assert Policies.changed(texts, values) == Policies(**{**values, **left})


def test_what_is_set_and_contradicts_what_can_be_followed_is_refused(root: str) -> None:
    """Nothing of it is taken away for that, as on a line that can be followed."""
    put(root, SUBSCRIPTIONS, ROW | {"policies": {"sink": "kafka://there:1/out", "slots": "many"}})
    with pytest.raises(BadValue, match="does not acknowledge"):
        set_policy(root, "t", "s", ack=True)


def test_who_consumes_takes_away_no_policy_that_cannot_be_followed(root: str) -> None:
    """A newer version may follow it. What is stated holds already."""
    put(root, SUBSCRIPTIONS, ROW | {"policies": {"ack": "true", "ack_after": "0", "colour": "red"}})
    before = open_table(root, SUBSCRIPTIONS).version()
    register(root, ["t"], "s", ConsumerType.Shared, {})
    assert open_table(root, SUBSCRIPTIONS).version() == before


def test_who_is_overtaken_decides_anew(root: str) -> None:
    """Two processes register one name at the same moment: the second finds it registered."""
    seen = []

    def decide(found: Subscription | None) -> Subscription | None:
        seen.append(found)
        if found is not None:
            return None
        subscribe(root, Subscription("t", "s", tick_ms=7))
        return Subscription("t", "s")

    pauses: list[float] = []
    assert not change(root, ("t", "s"), decide, pause=pauses.append)
    assert (seen, len(pauses)) == ([None, Subscription("t", "s", tick_ms=7)], 1)
    assert subscriptions(root) == [Subscription("t", "s", tick_ms=7)]


def test_who_is_always_overtaken_gives_up(root: str) -> None:
    """It says so; nothing was written."""
    ticks = iter(range(1, 100))

    def decide(_: Subscription | None) -> Subscription | None:
        put(root, SUBSCRIPTIONS, ROW | {"tick_ms": next(ticks)})
        return Subscription("t", "s", tick_ms=777)

    with pytest.raises(StillConflicting) as refused:
        change(root, ("t", "s"), decide, pause=lambda _: None)
    assert refused.value.attempts == ATTEMPTS
    assert 777 not in {each.tick_ms for each in subscriptions(root)}


def test_two_subscriptions_do_not_get_one_topic_of_dead_letters_by_chance(root: str) -> None:
    """Names that are put together are one name for two; whoever wants that names the topic."""
    letters = Policies(ack=True, max_redeliveries=3)
    subscribe(root, Subscription("a-b", "c", policies=letters))
    with pytest.raises(BadValue, match="dead letters of a-b/c"):
        subscribe(root, Subscription("a", "b-c", policies=letters))
    subscribe(root, Subscription("a", "b-c", policies=Policies(ack=True)))
    with pytest.raises(BadValue, match="dead letters of a-b/c"):
        set_policies(root, "a", "b-c", letters)
    assert set_policies(root, "a", "b-c", replace(letters, dead_letter_topic="a-b-c-DLQ"))
    assert set_policies(root, "a-b", "c", replace(letters, max_unacked=7))
