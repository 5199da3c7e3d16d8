"""Keys of topics: policies that cannot be followed, and what is followed of what another writer wrote."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.config.errors import BadValue
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.topicpolicies import TopicPolicies
from pipeline.subscriptions.uniqueness import Uniqueness
from state.unique import Mode


@pytest.mark.parametrize(
    ("stated", "field", "value", "allowed"),
    [
        ({"unique": "newest"}, "unique", "newest", "replace, extend, drop"),
        ({"unique": "drop", "unique_by": "payload"}, "unique_by", "payload", "key, or property:NAME"),
        ({"unique": "drop", "unique_by": "property: "}, "unique_by", "property: ", "key, or property:NAME"),
        ({"unique": "extend"}, "unique_max_wait_ms", None, "a duration, with unique = extend"),
        ({"unique": "drop", "unique_max_wait_ms": 5}, "unique_max_wait_ms", 5, "a topic with unique = extend"),
        ({"unique": "extend", "unique_max_wait_ms": 0}, "unique_max_wait_ms", 0, r"1\.\.315360000000"),
        ({"unique_by": "property:user"}, "unique_by", "property:user", "a topic with unique"),
        ({"unique_max_wait_ms": 5}, "unique_max_wait_ms", 5, "a topic with unique"),
    ],
)
def test_what_cannot_be_followed_is_refused(stated: dict[str, Any], field: str, value: object, allowed: str) -> None:
    """With field, value and what is allowed."""
    with pytest.raises(BadValue, match=allowed) as refused:
        TopicPolicies(**stated)
    assert (refused.value.field, refused.value.value) == (field, value)


def test_a_property_is_told_from_its_name() -> None:
    """Blanks around it are none of it."""
    topic = TopicPolicies(unique="extend", unique_by="property: user", unique_max_wait_ms=300_000)
    assert topic.uniqueness == Uniqueness(Mode.EXTEND, "user", 300_000)
    assert TopicPolicies().uniqueness is None


def test_what_another_writer_gets_wrong_switches_keys_off_and_nothing_else() -> None:
    """A topic that has policies it cannot follow keeps the others; a partition has those of its topic."""
    texts = {"unique": "extend", "min_delay_ms": "5"}
    topics = Topics.of_rows([("t", texts), ("u", {"unique": "drop"})])
    assert topics.of("t") == TopicPolicies(min_delay_ms=5)
    assert "unique_max_wait_ms" in topics.wrong["t"]
    assert topics.of("u-partition-3").uniqueness == Uniqueness(Mode.DROP)
    assert (topics.owner("u-partition-3"), set(topics.unique)) == ("u", {"u"})


def test_another_mode_needs_no_longest_wait() -> None:
    """What belongs to the mode before goes with it."""
    before = TopicPolicies(unique="extend", unique_by="property:user", unique_max_wait_ms=5).as_map()
    changed = TopicPolicies.changed(before, {"unique": "drop"})
    assert changed.unique == "drop"
    assert changed.unique_max_wait_ms is None
    assert TopicPolicies.changed(before, {"unique": None}).as_map() == {}
