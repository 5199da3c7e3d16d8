"""Policies of a subscription: texts of the registry, checked, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.errors import BadValue
from pipeline.subscriptions.fairness import number_of, numbers_of
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.policytable import PolicyTable
from pipeline.subscriptions.topicnames import partition_of, topic_of
from pipeline.subscriptions.topicpolicies import TopicPolicies

BESIDE: dict[str, dict[str, Any]] = {
    "window": {"window": "Mo"},
    "open": {"open": "Mo"},
    "fair_by": {"fair_by": "key"},
    "extend": {"unique_max_wait_ms": 5},
}
"""What has to be stated beside some policies, and beside some values."""
BESIDE |= {"unique": {"unique": "extend", "unique_max_wait_ms": 5}}
GOLD = 5_418_593_745_518_863_692
"""The number of a value."""
EVERY = {
    "ack": "true",
    "ack_after": "17",
    "ack_timeout_ms": "30000",
    "retry_min_ms": "1000",
    "retry_multiplier": "3",
    "retry_max_ms": "20000",
    "max_redeliveries": "4",
    "dead_letter_topic": "lost orders",
    "slots": "16",
    "max_unacked": "100",
}


def test_what_the_registry_holds_comes_back_as_it_was() -> None:
    """Only what differs from the defaults is written."""
    assert Policies.of_map(EVERY).as_map() == EVERY
    assert Policies.of_map(None) == Policies() == Policies.of_map({})
    assert Policies().as_map() == {}


def test_a_text_that_is_null_is_the_default() -> None:
    """A map of Delta may hold NULL."""
    assert Policies.of_map({"ack": "true", "slots": None}) == Policies(ack=True)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("acks", "true", "ack, ack_after, ack_timeout_ms"),
        ("ack", "yes", "true, false"),
        ("slots", "many", "a whole number"),
        ("slots", "0", r"1\.\.4096"),
        ("slots", "4097", r"1\.\.4096"),
        ("ack_timeout_ms", "999", r"1000\.\."),
        ("retry_max_ms", "10", r"60000\.\."),
        ("retry_multiplier", "0", r"1\.\.1000"),
        ("max_redeliveries", "-1", r"0\.\."),
        ("max_unacked", "-1", r"0\.\."),
        ("ack_after", "-2", r"-1\.\."),
        ("dead_letter_topic", " ", "a name"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused_with_its_name_value_and_range(
    name: str, text: str, allowed: str
) -> None:
    """Also a name that is no policy: nothing is kept without being followed."""
    with pytest.raises(BadValue, match=f"{text if name != 'acks' else name}.*{allowed}"):
        Policies.of_map({name: text})


@pytest.mark.parametrize(
    "values",
    [
        {"ack": "yes"},
        {"ack": None},
        {"retry_multiplier": 1.5},
        {"retry_min_ms": None},
        {"max_rate": True},
        {"max_rate": "5"},
        {"dead_letter_topic": 7},
        {"guard": b"true"},
        {"sink_refused": None},
    ],
)
def test_a_value_of_another_type_is_refused(values: dict[str, Any]) -> None:
    """Its text in the registry could not be followed, and nobody would be told where it was set."""
    (name,) = values
    with pytest.raises(BadValue, match=name):
        Policies(**values)


@pytest.mark.parametrize("table", [Policies, TopicPolicies])
def test_whatever_a_policy_may_be_its_text_gives_it_back(table: type[PolicyTable]) -> None:
    """At both ends of each range."""
    bounds = {row.within.not_below: {row.name: row.within.high} for row in table.rows.values()}
    for row in table.rows.values():
        ends = {row.within.low, row.within.high, row.within.off} if row.kind is int else set[Any]()
        for value in ends | set(row.text.choices if row.text else ()) | {row.default}:
            if row.within.not_below is None or value == row.within.high:
                beside = bounds.get(row.name, {}) | BESIDE.get(row.needs or "", {}) | BESIDE.get(str(value), {})
                stated = table(**{row.name: row.default if value is None else value, **beside})
                assert table.of_map(stated.as_map()) == stated


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("window", {"window": "Mo-Fr 8-20"}),
        ("window", {"window": " "}),
        ("window_zone", {"window": "Mo", "window_zone": "Mars/Olympus"}),
        ("window_zone", {"window": "Mo", "window_zone": "property:"}),
        ("window_zone", {"window": "Mo", "window_zone": "property:zone, Rome"}),
        ("window_spread_ms", {"window": "Mo", "window_spread_ms": 86_400_001}),
        ("window_zone", {"window_zone": "Europe/Rome"}),
        ("window_spread_ms", {"window_spread_ms": 1}),
    ],
)
def test_a_window_that_cannot_be_followed_is_refused(name: str, values: dict[str, Any]) -> None:
    """With the name of the policy: rules that are none, no such zone, and what belongs to no window."""
    with pytest.raises(BadValue) as refused:
        TopicPolicies(**values)
    assert refused.value.field == name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("open", {"open": "Mo-Fr 8-20"}),
        ("open", {"open": ""}),
        ("open", {"open": "Mo 08:00-08:00"}),
        ("open_zone", {"open": "Mo", "open_zone": "Mars/Olympus"}),
        ("open_zone", {"open": "Mo", "open_zone": "property:zone"}),
        ("open_zone", {"open_zone": "Europe/Rome"}),
    ],
)
def test_hours_that_cannot_be_followed_are_refused(name: str, values: dict[str, Any]) -> None:
    """With the name of the policy; of a subscription one zone counts. What another writer gets wrong is as if unset."""
    with pytest.raises(BadValue) as refused:
        Policies(**values)
    assert refused.value.field == name
    assert Policies.followed({**values, "max_rate": "5"}) == Policies(max_rate=5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fair_by", {"fair_by": "tenant"}),
        ("fair_by", {"fair_by": "property:"}),
        ("fair_by", {"fair_by": "key "}),
        ("fair_weights", {"fair_weights": "gold=3"}),
        *(
            ("fair_weights", {"fair_by": "key", "fair_weights": each})
            for each in ("gold", "=3", "gold=0", "gold=1001", "gold=-1", "gold=3,", "gold=1, gold=2", "gold=\u0663")
        ),
    ],
)
def test_turns_that_cannot_be_followed_are_refused(name: str, values: dict[str, Any]) -> None:
    """With the name of the policy. What another writer gets wrong is as if unset."""
    with pytest.raises(BadValue) as refused:
        Policies(**values)
    assert refused.value.field == name
    assert Policies.followed({**values, "max_rate": "5"}) == Policies(max_rate=5)


def test_weights_are_those_of_values_and_of_others_one() -> None:
    """A value may have blanks and signs within; its number is the same for ever."""
    rule = Policies(fair_by="property: tenant id", fair_weights="gold=3, a = b =2").turns
    assert rule is not None
    assert (rule.property_name, rule.column, rule.weights) == ("tenant id", "properties", (("gold", 3), ("a = b", 2)))
    values = np.sort([number_of(each) for each in (b"gold", b"a = b", b"x", None)])
    known = {number_of(b"gold"): 3, number_of(b"a = b"): 2}
    assert rule.weigh(values).tolist() == [known.get(each, 1) for each in values.tolist()]
    assert rule.weigh(np.array([5])).tolist() == [1]
    assert (number_of(b"gold"), number_of(None)) == (GOLD, 0)
    assert numbers_of(pa.array(["gold", None, "gold"])).tolist() == [GOLD, 0, GOLD]


@pytest.mark.parametrize(
    ("text", "zone", "name"),
    [
        ("Europe/Rome", "Europe/Rome", None),
        ("property:zone", "UTC", "zone"),
        ("property:zone, Asia/Tokyo", "Asia/Tokyo", "zone"),
        ("property:a, b, Asia/Tokyo", "Asia/Tokyo", "a, b"),
    ],
)
def test_the_zone_of_a_window_is_that_of_the_topic_or_of_a_recipient(text: str, zone: str, name: str | None) -> None:
    """Behind the last comma is the topic's own."""
    opening = TopicPolicies(window="Mo", window_zone=text).opening
    assert opening is not None
    assert (opening.zone.own, opening.zone.property) == (zone, name)


def test_each_policy_that_can_be_followed_is_followed() -> None:
    """Any Delta writer may set texts: a wrong one changes none of the others, but for those that go with it."""
    assert Policies.followed(EVERY) == Policies.of_map(EVERY)
    wrong = EVERY | {"slots": "many", "colour": "red"}
    assert Policies.followed(wrong) == replace(Policies.of_map(EVERY), slots=Policies().slots)
    assert Policies.followed({"retry_min_ms": "700000", "retry_max_ms": "soon"}) == Policies()
    sink = {"sink": "kafka://host:9092/out", "sink_after": "3"}
    assert Policies.followed(sink | {"max_rate": "fast"}) == Policies.of_map(sink)
    assert Policies.followed(sink | {"sink_after": "soon"}) == Policies()
    assert Policies.followed(sink | {"ack": "true"}) == Policies(ack=True)
    assert Policies.followed({"guard_tables": "{}"}) == Policies.followed(None) == Policies()


def test_the_delay_of_a_failed_message_grows_as_the_policies_say() -> None:
    """And so does the number of times that it comes again."""
    retry = Policies.of_map(EVERY).retry
    assert [retry.backoff.delay(count) for count in range(4)] == [1_000, 3_000, 9_000, 20_000]
    assert [retry.gives_up(count) for count in (3, 4)] == [False, True]


def test_one_consumer_at_a_time_needs_one_slot() -> None:
    """Only shared subscriptions are cut into slots."""
    policies = Policies(slots=16)
    types = ("exclusive", "failover", "shared", "key_shared")
    assert [policies.slots_of(each) for each in types] == [1, 1, 16, 16]


def test_dead_letters_have_a_topic_named_after_topic_and_subscription() -> None:
    """Unless the policy names one."""
    assert Policies().dead_letters("orders", "billing") == "orders-billing-DLQ"
    assert Policies(dead_letter_topic="lost").dead_letters("orders", "billing") == "lost"


@pytest.mark.parametrize(
    ("name", "number", "topic"),
    [("t-partition-0", 0, "t"), ("t-partition-999999999", 999_999_999, "t")]
    + [(each, -1, each) for each in ("t", "t-partition-", f"t-partition-{'9' * 5_000}", "t-partition-\u0661")],
)
def test_a_topic_is_a_partition_by_a_number_of_few_digits(name: str, number: int, topic: str) -> None:
    """Anybody may send to any topic; by a number of 5 000 digits consumers and commands failed for good."""
    assert (partition_of(name), topic_of(name)) == (number, topic)
