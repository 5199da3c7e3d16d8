"""Random worlds as scripts: topics and subscriptions with all kinds of policies, and what users, consumers and time do.

A script says nothing of who does the work. `tests.support.playedscripts` plays it, on one way or another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pipeline.config.settings import MINUTE_MS, SECOND_MS
from pipeline.subscriptions.policies import Policies
from pipeline.subscriptions.records import REPLACES
from pipeline.subscriptions.topicpolicies import TopicPolicies
from tests.support.changed_minds import OF_DISPATCH, OF_INGEST, OF_SETTLE

# 03:33:20 in UTC, and behind any wall clock, by which commands count.
T0 = 2_000_000_000_000
HOURS = ("03:34-03:35,03:36-04:00", "00:00-03:34,03:35-03:37,03:38-23:00")
TOPICS: Mapping[str, dict[str, Any]] = {
    "plain": {},
    "newest": {"unique": "replace"},
    "first": {"unique": "drop", "unique_by": "property:tenant"},
    "put off": {"unique": "extend", "unique_max_wait_ms": MINUTE_MS},
    "by day": {"window": HOURS[1], "window_zone": "property:zone, UTC", "window_spread_ms": 2 * SECOND_MS},
    "newest by day": {"window": HOURS[0], "unique": "replace", "ttl_ms": 40 * SECOND_MS},
    "bounded": {"min_delay_ms": 700, "max_delay_ms": 2 * MINUTE_MS},
}
_ACKS = {"ack": True, "retry_min_ms": 7_000, "retry_multiplier": 2, "max_redeliveries": 1}
_UNPAID = "NOT EXISTS (SELECT 1 FROM paid p WHERE p.order_id = message_key)"
_FAILS = "CAST(message_key AS BIGINT) > 0"
RATED: Mapping[str, dict[str, Any]] = {
    "slow": {"max_rate": 2},
    "in turn": {"max_rate": 1, "fair_by": "key"},
    "slow and open": {"max_rate": 3, "open": HOURS[0], "ttl_ms": 40_000, **_ACKS},
    "all": {
        **_ACKS, "max_rate": 2, "fair_by": "property:tenant", "fair_weights": "b=2", "open": HOURS[1],
        "ttl_ms": 40_000, "guard": _UNPAID, "priority": "urgency",
    },
}  # fmt: skip
STEADY: Mapping[str, dict[str, Any]] = {
    "asks for nothing": {},
    "acks": _ACKS,
    "gives up": {**_ACKS, "max_redeliveries": 0},
    "expires": {"ttl_ms": 20_000},
    "expires and acks": {"ttl_ms": 20_000, **_ACKS},
    "open": {"open": HOURS[0]},
    "asks": {"guard": _UNPAID},
    "asks and acks": {"guard": _UNPAID, "ttl_ms": 40_000, **_ACKS},
    "urgent": {"priority": "urgency"},
    "takes turns": {"fair_by": "property:tenant", "priority": "urgency"},
}
"""A start changes nothing about these; a rate begins anew with it."""
DOUBTS: Mapping[str, dict[str, Any]] = {"doubts": {"guard": _FAILS}, "doubts and acks": {"guard": _FAILS, **_ACKS}}
"""Their guard fails on some messages."""
POLICIES = {**STEADY, **RATED, **DOUBTS}
DEATHS = (*OF_INGEST, "ingest.replaced", "ingest.rejected_ingest", *OF_DISPATCH, *OF_SETTLE)
KEYS = ("a", "a", "b", "1", "2", "", None, "ü'\n\"%_\x00")
TENANTS = ("a", "b", "", "\u2028")
_DELAYS = (None, 0, 1, 500, 900, 900, 4_000, 4_000, 9_000, 35_000, 95_000, 5 * MINUTE_MS, -1, 10**13)
_SPANS = (0, 1, 500, 1_000, 5_000, 20_000, 45_000)


class Act(NamedTuple):
    """What is done: its name, two numbers that choose to whom or how much, and rows for the inbox."""

    name: str
    which: int = 0
    more: int = 0
    rows: tuple[tuple[dict[str, Any], ...], ...] = ()


@dataclass(frozen=True)
class Line:
    """A subscription: its topic, the name of its policies, its tick, and whether it is there from the beginning."""

    topic: str
    name: str
    tick_ms: int
    earliest: bool
    joins: bool

    @property
    def policies(self) -> Policies:
        """What it asks for."""
        return Policies(**POLICIES[self.name])


@dataclass(frozen=True)
class Script:
    """Who subscribes, and what happens then."""

    lines: tuple[Line, ...]
    acts: tuple[Act, ...]

    @property
    def topics(self) -> Mapping[str, TopicPolicies]:
        """The topics that have policies."""
        return {name: TopicPolicies(**TOPICS[name]) for name in sorted({each.topic for each in self.lines})}


def rows(topics: SearchStrategy[str]) -> SearchStrategy[dict[str, Any]]:
    """Rows of the inbox, less when they were sent."""
    properties = st.fixed_dictionaries(
        {},
        optional={
            "tenant": st.sampled_from(TENANTS),
            "urgency": st.sampled_from(["1", "2", "-3", "x", ""]),
            "zone": st.sampled_from(["Europe/Rome", "Asia/Tokyo", "Mars/Olympus", ""]),
            REPLACES: st.sampled_from(["a", "b", "1"]),
        },
    )
    return st.fixed_dictionaries(
        {
            "topic": topics,
            "message_key": st.sampled_from(KEYS),
            "properties": st.none() | properties.map(lambda found: list(found.items())),
            "deliver_after_ms": st.sampled_from(_DELAYS),
            "payload": st.sampled_from([None, b"", b"x", b"\x00\xff"]),
        }
    )


def _act(*columns: SearchStrategy[Any]) -> SearchStrategy[Act]:
    return st.tuples(*columns).map(lambda each: Act(*each))


def _numbered(*names: str) -> SearchStrategy[Act]:
    return _act(st.sampled_from(names), st.integers(0, 9), st.integers(0, 9))


def rounds(topics: SearchStrategy[str], *, deaths: bool) -> SearchStrategy[list[Act]]:
    """What is done next: something is sent and taken, and all sorts of things are done before time passes.

    Each commit of a producer has some rows, or none.
    """
    parts = st.lists(st.lists(rows(topics), max_size=9).map(tuple), min_size=1, max_size=3).map(tuple)
    sends = _act(st.just("send"), st.just(0), st.just(0), parts)
    moments, passes = (_act(st.just("pass"), st.sampled_from(spans)) for spans in ((0, 1), _SPANS))
    consumes = _numbered("ack", "nack", "nack", "nack", "ack and nack")
    commands = _numbered("cancel", "cancel for one", "shift", "reschedule", "release", "undo")
    changes = _numbered("pause", "resume", "join", "leave", "clear", "rewind", "pay", "maintain", "merge", "away")
    others = consumes | commands | changes | _numbered("recur", "recur", "halt")
    others |= _act(st.just("die"), st.integers(0, len(DEATHS) - 1)) if deaths else others
    whole = st.tuples(sends, moments, st.lists(others, max_size=4), passes)
    return whole.map(lambda each: [each[0], each[1], *each[2], each[3]])


@st.composite
def scripts(
    draw: st.DrawFn, policies: Mapping[str, object], least: int = 3, most: int = 6, *, deaths: bool = False
) -> Script:
    """A world of some rounds, whose subscriptions have some of these policies."""
    topics = draw(st.lists(st.sampled_from(list(TOPICS)), min_size=1, max_size=3, unique=True))
    names = st.lists(st.sampled_from(list(policies)), min_size=1, max_size=4, unique=True)
    lines = tuple(
        Line(topic, name, draw(st.sampled_from([1, 1, 1_000])), draw(st.booleans()), draw(st.integers(0, 5)) == 5)
        for topic in topics
        for name in draw(names)
    )
    found = draw(st.lists(rounds(st.sampled_from(topics), deaths=deaths), min_size=least, max_size=most))
    return Script(lines, tuple(each for some in found for each in some))
