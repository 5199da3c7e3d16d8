"""Rows of `inbox` that Hypothesis draws: most of them are ordinary, some hostile; their texts are bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pipeline.config.settings import FIRST_INSTANT_MS, LAST_INSTANT_MS
from pipeline.storage.texts import ADDED_BYTES, ENTRY_BYTES, MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_PROPERTIES_BYTES
from pipeline.subscriptions.lines import Topics
from pipeline.subscriptions.records import REFUSED_MS
from pipeline.subscriptions.topicpolicies import PROPORTIONAL, TopicPolicies
from tests.support.rows import T0

US = 1_000
TICKS = {"w": 1_000}
"""Of those who listen to topics with windows, ms."""
# What is drawn often is drawn in several places: most rows break one rule at most.
small = st.integers(-3, 3)
times = st.one_of(
    *[st.none()] * 3,
    st.builds(lambda ms, off: ms * US + off, st.sampled_from((0, T0, FIRST_INSTANT_MS, LAST_INSTANT_MS + 1)), small),
    st.builds(lambda ms, off: (T0 + ms) * US + off, st.sampled_from((-10_000, 5, 10_000)), st.integers(-1_001, 1_001)),
    st.sampled_from((-(2**63), -(2**63) + 1, 2**63 - 1)),
)
delays = st.one_of(
    st.none(),
    st.builds(int.__add__, st.sampled_from((0, 10_000, LAST_INSTANT_MS)), small),
    st.sampled_from((-(2**63), REFUSED_MS, 2**63 - 1)),
)
known_topics = st.sampled_from(("t", "u", "z", "w", "v", "é-partition-12", "\U0001f600", "\uffff")).map(str.encode)
POLICIES = Topics(
    {
        "t": TopicPolicies(fixed_delay_ms=7_000),
        "u": TopicPolicies(min_delay_ms=5, max_delay_ms=9_999),
        "é": TopicPolicies(min_delay_ms=10_001, precision=PROPORTIONAL),
        "z": TopicPolicies(precision=PROPORTIONAL),
        "w": TopicPolicies(window="12:00-20:00", window_zone="property:a, Asia/Tokyo", window_spread_ms=60_000),
        "v": TopicPolicies(window="Mo 08:00-20:00; 23:00-23:05", min_delay_ms=5, window_spread_ms=600_000),
        "\U0001f600": TopicPolicies(),
    }
)
topics = st.one_of(
    *[known_topics] * 5,
    st.none(),
    st.sampled_from((b"", b" ", b" t ", b"\t", b"\0", "\u3000".encode())),
    st.sampled_from((b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"t\xe2\x82")),
    st.binary(max_size=4),
)
known_texts = st.sampled_from((b"", b"a", b"a\0b", "é".encode()))
keys = st.one_of(st.none(), *[known_texts] * 9, st.sampled_from((b"\xff", b"\xed\xa0\x80", b"a\xe2\x82")))
zones = st.sampled_from((b"Europe/Rome", b"America/New_York", b"Mars/Olympus", b"../UTC", b"x" * 100)) | st.none()
zoned = st.fixed_dictionaries({b"a": zones}, optional={b"": known_texts})
maps = st.one_of(st.none(), *[zoned] * 2, *[st.dictionaries(known_texts, st.none() | known_texts, max_size=2)] * 9)
maps |= st.dictionaries(known_texts, keys, max_size=3) | st.dictionaries(
    keys.map(lambda key: key or b""), keys, max_size=3
)
payloads = st.one_of(st.none(), st.integers(0, 6).map(bytes))
inbox_rows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "topic": topics,
        "message_key": keys,
        "properties": maps,
        "payload": payloads,
        "publish_time": times,
        "deliver_at": times,
        "deliver_after_ms": delays,
    }
)

FINE: dict[str, Any] = {
    "topic": b"z",
    "message_key": None,
    "properties": None,
    "payload": None,
    "publish_time": None,
    "deliver_at": None,
    "deliver_after_ms": None,
}
_LONG = {
    "topic": MAX_NAME_BYTES,
    "message_key": MAX_KEY_BYTES,
    "properties": MAX_PROPERTIES_BYTES + ADDED_BYTES - ENTRY_BYTES,
}
SELDOM: list[dict[str, Any]] = [
    FINE | {"deliver_after_ms": -1},
    FINE | {"publish_time": (T0 + 10_001) * US},
    FINE | {"payload": bytes(5)},
    *(
        FINE | {name: {b"": text * most, **more} if name == "properties" else text * most + bytes(len(more))}
        for name, most in _LONG.items()
        for text in (b"x", b"\xff")
        for more in ({}, {b"y": None})
    ),
]
"""Rows that break the rules which not every thousand of drawn rows breaks first."""
